"""Makes the report from stored results; no number of it is typed by hand.

`python -m experiments.what_holds` writes runs/what_holds/what_holds.pdf in seconds. It takes
typst: `pip install -e '.[paper]'`.
"""

import json
import sys
from pathlib import Path

import tyro
from rich.console import Console

from experiments import partitions
from experiments.board.page import ordered
from experiments.board.rows import read_row
from experiments.board.settings import SETTINGS
from experiments.tables import claims, claims_picture
from experiments.what_holds import pictures
from experiments.what_holds.numbers import chosen, client_scores, harms, numbers
from experiments.what_holds.published import columns, protocols
from jaxfl.algorithms import ALGORITHMS
from jaxfl.core.errors import InputError
from jaxfl.core.facts import facts_of
from jaxfl.core.papers import Paper, bibtex
from jaxfl.experiment.pictures.drawing import render
from jaxfl.experiment.store import files

FOLDER = Path(__file__).parent
BOARD = FOLDER.parent / "results" / "board"
# Methods whose graphs are drawn.
DRAWN = ("pfedgraph", "pfedgat", "fedcedar", "gfedmtl", "learned_graph")


def main(out: Path = Path("runs/what_holds")) -> None:
    """Writes the PDF, and beside it what it is made of.

    Args:
      out: the folder.
    """
    try:
        import typst
    except ImportError as error:
        raise InputError(
            "the report is set by typst, which is not installed: pip install -e '.[paper]'"
        ) from error
    findings = [claims.find(claim) for claim in claims.load()]
    rows = [read_row(file) for file in sorted(BOARD.glob("*.json"))]
    whole = [row for row in ordered(rows) if len(row["settings"]) == len(SETTINGS)]
    ours = [row for row in whole if "link" not in row]
    fashion, groups = partitions.load(partitions.RESULTS / "fashion_mnist")
    told = numbers(findings, ours) | {"protocols": protocols(findings)}
    made = {
        "numbers.json": json.dumps(told, indent=1),
        "text.typ": (FOLDER / "text.typ").read_text(),
        "references.bib": references() + (FOLDER / "related.bib").read_text(),
        "claims.svg": render(claims_picture.draw(findings), "svg"),
        "published.svg": render(pictures.published(columns(findings)), "svg"),
        "distances.svg": render(
            pictures.distances(chosen(ours), ours, fashion, list(groups)), "svg"
        ),
        "graphs.svg": render(pictures.graphs(fashion, groups, DRAWN), "svg"),
        "harm.svg": render(pictures.harm(harms(client_scores(ours))), "svg"),
        "price.svg": render(pictures.price(ours), "svg"),
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, content in made.items():
        files.write_file(out / name, content)
    pdf = typst.compile(out / "text.typ")
    files.write_file(out / "what_holds.pdf", pdf)
    Console().print(f"written to {out / 'what_holds.pdf'}", highlight=False)


def references() -> str:
    """The BibTeX entries of all methods that are published, each once."""
    papers = [facts_of(algorithm).publication for algorithm in ALGORITHMS.values()]
    entries = dict.fromkeys(bibtex(paper) for paper in papers if isinstance(paper, Paper))
    return "\n".join(entries)


if __name__ == "__main__":
    try:
        tyro.cli(main)
    except InputError as error:
        Console(stderr=True, soft_wrap=True).print(
            f"what_holds: {error}", style="red", markup=False
        )
        sys.exit(2)
