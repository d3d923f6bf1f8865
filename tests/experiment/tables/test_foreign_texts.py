"""Texts of a config.json from elsewhere are shown as text: on the terminal, in Markdown, LaTeX."""

import csv
import io

import pytest
from finished_runs import run
from rich.console import Console

from jaxfl.experiment.studies.comparison import text_of
from jaxfl.experiment.tables.formats import print_sections
from jaxfl.experiment.tables.sections import sections

FOREIGN = "[link=file:///x]a\x1b[31m\u202eb\n\\input{x}<script>|`*c"
STEERING = ("\x1b", "\u202e", "\n\\input")


@pytest.fixture
def runs():
    """Runs whose hyper-parameters and labels are hostile."""
    first = run("gossip", 0.5, hyper={"graph": FOREIGN})
    second = run("gossip", 0.6, hyper={"graph": "ring"})
    return {"[a]<b>|c\\": first, "*d": second}


@pytest.mark.parametrize("by", [None, "graph"])
def test_no_format_lets_a_text_steer_what_reads_it(by, runs):
    shown = io.StringIO()
    print_sections(sections(runs, by=by), Console(file=shown, width=300, force_terminal=False))
    texts = {name: text_of(runs, name, by=by) for name in ("md", "latex", "csv", "json")}
    texts["terminal"] = shown.getvalue()
    for name, text in texts.items():
        assert all(letters not in text for letters in STEERING), name
    if by is not None:
        assert r"\x1b[31m\u202eb" in texts["terminal"]
        assert "[link=file:///x]a" in "".join(texts["terminal"].split())


def test_markdown_has_no_html_and_its_rows_have_as_many_cells(runs):
    text = text_of(runs, "md", by="graph")
    assert "<" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    cells = [row.replace("\\\\", "").replace("\\|", "").count("|") for row in rows]
    assert len(set(cells)) == 1


def test_no_row_of_latex_begins_with_what_the_one_before_takes_for_an_argument(runs):
    lines = text_of(runs, "latex").splitlines()
    assert not any(line.startswith(("[", "*", r"\input")) for line in lines)
    assert any(line.startswith("{[}a") for line in lines)
    assert any(line.startswith("{*}d") for line in lines)


def test_a_comma_separated_text_is_on_one_line_and_no_formula(runs):
    (first, *_) = csv.DictReader(io.StringIO(text_of(runs, "csv")))
    assert all(str(value).isprintable() for value in first.values())
