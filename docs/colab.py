"""Writes docs/_static/first_run.ipynb from docs/start.md: `python docs/colab.py`.

The notebook is for Colab and for whoever wants to run the first tutorial without a copy of the
source. It has the cells of the page, without their output, behind one that installs jaxfl.
"""

import json
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
PAGE = DOCS / "start.md"
NOTEBOOK = DOCS / "_static" / "first_run.ipynb"
CELL = re.compile(
    r"^```\{code-cell\} ipython3\n(?::tags:.*?\n\n)?(.*?)^```\n", re.DOTALL | re.MULTILINE
)
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:)[^)]*\)")
INSTALL = "%pip install --quiet jaxfl"


def notebook(page: str) -> dict[str, Any]:
    """The notebook of a page: its text and its cells in their order.

    Links to other pages become plain text, because a notebook stands alone.

    Args:
      page: a tutorial in MyST-NB's Markdown.
    """
    body = re.sub(r"\A---\n.*?\n---\n", "", page, flags=re.DOTALL)
    # Text and code in turn; the first and the last are text.
    pieces = CELL.split(body)
    cells = [code(0, INSTALL)]
    for number, piece in enumerate(pieces, start=1):
        text = piece.strip()
        if text:
            cells.append(code(number, text) if number % 2 == 0 else words(number, text))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def code(number: int, text: str) -> dict[str, Any]:
    """A cell that runs."""
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": f"cell-{number}",
        "metadata": {},
        "outputs": [],
        "source": text.splitlines(keepends=True),
    }


def words(number: int, text: str) -> dict[str, Any]:
    """A cell of text."""
    plain = LINK.sub(r"\1", text)
    return {
        "cell_type": "markdown",
        "id": f"cell-{number}",
        "metadata": {},
        "source": plain.splitlines(keepends=True),
    }


def text_of(page: str) -> str:
    """The notebook as the text of its file."""
    return json.dumps(notebook(page), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    NOTEBOOK.write_text(text_of(PAGE.read_text()))
