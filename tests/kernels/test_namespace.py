"""The names of `jaxfl.kernels`: its index, the table of the page, and what its files define."""

import inspect
import pydoc
import re
from pathlib import Path

from jaxfl import kernels

PAGE = Path(__file__).parents[2] / "docs" / "algorithms.md"
FUNCTIONS = {name for name in kernels.__all__ if not inspect.ismodule(getattr(kernels, name))}


def test_the_index_and_the_page_list_each_function_once():
    index = re.findall(r"`(\w+)`", kernels.__doc__.partition("in their files:")[2])
    table = PAGE.read_text().partition("| functions of `jaxfl.kernels` |")[2].split("\n\n")[0]
    assert sorted(index) == sorted(re.findall(r"`(\w+)`", table)) == sorted(FUNCTIONS)


def test_help_describes_each_function():
    text = pydoc.plain(pydoc.render_doc(kernels))
    assert [name for name in FUNCTIONS if f"    {name}(" not in text] == []


def test_the_names_are_those_of_the_files_and_hide_no_file():
    for name in FUNCTIONS:
        function = getattr(kernels, name)
        assert function.__name__ == name
        assert function.__module__.startswith("jaxfl.kernels.")
    files = {file.stem for file in Path(kernels.__file__).parent.glob("[!_]*.py")}
    assert files & FUNCTIONS == set()
    assert files <= set(kernels.__all__)
