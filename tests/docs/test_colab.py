"""The notebook of the first tutorial, as text; the page itself is run by test_readme.py."""

import ast
import json
import re

from examples import DOCS, script

colab = script("colab")


def cells_of(kind):
    """The texts of the committed notebook's cells of one kind."""
    cells = json.loads(colab.NOTEBOOK.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == kind]


def test_the_committed_notebook_is_that_of_the_page():
    page = (DOCS / "start.md").read_text()
    assert colab.NOTEBOOK.read_text() == colab.text_of(page), "run `python docs/colab.py`"


def test_the_notebook_installs_jaxfl_and_has_each_cell_of_the_page_once():
    install, *programs = cells_of("code")
    assert install == "%pip install --quiet jaxfl"
    page = (DOCS / "start.md").read_text()
    assert len(programs) == page.count("```{code-cell}") > 3
    for program in programs:
        assert f"{program}\n```" in page
        ast.parse(program)


def test_the_notebook_stands_alone():
    text = "\n".join(cells_of("markdown"))
    assert text.startswith("# First run")
    assert "code-cell" not in text
    targets = re.findall(r"\]\(([^)]*)\)", text)
    assert all(target.startswith("https://") for target in targets)


def test_the_notebook_has_what_the_format_asks_for():
    notebook = json.loads(colab.NOTEBOOK.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    names = [cell["id"] for cell in notebook["cells"]]
    assert len(set(names)) == len(names)
    assert all(cell.get("outputs", []) == [] for cell in notebook["cells"])
