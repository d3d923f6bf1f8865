"""Writes the tables and pictures of docs/results/partitions.md: `python docs/partitions.py`.

They are made from the results that `python -m experiments.partitions` has left.
"""

from pathlib import Path
from typing import Any

import numpy as np

from experiments.partitions import PARTITIONS, RESULTS, has_graph, load, picture, ranked
from experiments.seeds import mean_text

PAGE = Path(__file__).parent / "results" / "partitions.md"
IMAGES = Path(__file__).parent / "images"
START = "<!-- python docs/partitions.py writes these tables -->\n"
END = "<!-- end of the tables -->\n"
TITLES = {"digits": "Digits", "fashion_mnist": "Fashion-MNIST"}
Found = dict[str, dict[str, Any]]


def cell(accuracies: list[float]) -> str:
    """The mean over seeds, in %, and the standard deviation."""
    return mean_text(100 * np.asarray(accuracies))


def lines_of(rows: dict[str, list[str]], heads: list[str]) -> list[str]:
    """A table with a row for each method."""
    rule = "|---|" + "---:|" * len(heads)
    return [
        f"| method | {' | '.join(heads)} |",
        rule,
        *(f"| `{method}` | {' | '.join(cells)} |" for method, cells in rows.items()),
    ]


def equal_rounds(found: Found) -> list[str]:
    """Accuracy after all rounds, and gradients of a client."""
    rows = {
        method: [cell(one["accuracy"]) for one in found[method].values()]
        + [f"{np.mean([one['batches'] for one in found[method].values()]):,.0f}"]
        for method in ranked(found)
    }
    return lines_of(rows, [*PARTITIONS, "gradients"])


def equal_gradients(found: Found) -> list[str]:
    """Accuracy after as many gradients as `local` takes, of the methods that take more in all."""
    budget = found["local"][next(iter(PARTITIONS))]["batches"]
    rows = {
        method: [cell(one["equal"]) for one in found[method].values()]
        for method in ranked(found)
        if max(one["batches"] for one in found[method].values()) > 1.005 * budget
    }
    return lines_of(rows, [*PARTITIONS])


def graph(found: Found, method: str, partition: str) -> dict[str, Any]:
    """What is known of a method's graph of the last round."""
    return found[method][partition].get("graph", {})


def groups_found(found: Found, true: dict[str, list[int] | None]) -> list[str]:
    """How far the graphs of the last round agree with the true groups."""
    grouped = [name for name, groups in true.items() if groups is not None and max(groups) > 0]
    rows = {
        method: [
            f"{np.mean(graph(found, method, name)['group_agreement']):.2f}" for name in grouped
        ]
        for method in ranked(found)
        if has_graph(found[method])
    }
    return lines_of(rows, grouped)


def collaborators(found: Found) -> list[str]:
    """The effective number of clients in a mixture of the last round."""
    rows = {
        method: [
            f"{np.mean(graph(found, method, name)['collaborators']):.1f}" for name in PARTITIONS
        ]
        for method in ranked(found)
        if has_graph(found[method])
    }
    return lines_of(rows, [*PARTITIONS])


def tables(folder: Path) -> str:
    """The sections of all data sets that have results."""
    lines = []
    for dataset, title in TITLES.items():
        if not (folder / dataset / "local.json").exists():
            continue
        found, true = load(folder / dataset)
        lines += [f"## {title}, at equal rounds", "", *equal_rounds(found), ""]
        lines += [f"## {title}, at equal gradients", "", *equal_gradients(found), ""]
        lines += [f"## {title}, groups found", "", *groups_found(found, true), ""]
        lines += [f"## {title}, clients in a mixture", "", *collaborators(found), ""]
        image = f"partitions_{dataset}.png"
        lines += [f"![Mixing weights of all methods below the true groups](../images/{image})", ""]
    return "\n".join(lines)


def page(text: str, folder: Path = RESULTS) -> str:
    """The page with new tables.

    Args:
      text: the page as it is.
      folder: of the results.
    """
    before, _, rest = text.partition(START)
    return before + START + "\n" + tables(folder) + "\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
    for dataset in TITLES:
        if (RESULTS / dataset / "local.json").exists():
            image = IMAGES / f"partitions_{dataset}.png"
            image.write_bytes(picture(*load(RESULTS / dataset)))
