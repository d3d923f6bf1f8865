"""The pages that a build of the documentation writes from the package."""

import inspect
import os
import re
from pathlib import Path

import pytest
from examples import script

import jaxfl
from jaxfl.algorithms import ALGORITHMS
from jaxfl.core.facts import facts_of
from jaxfl.core.options import options_of
from jaxfl.core.papers import Paper
from jaxfl.experiment import Config

DOCS = Path(__file__).parents[2] / "docs"
# The page of all methods traces each of them; in one process it does so once.
pytestmark = pytest.mark.xdist_group("docs")

methods = script("methods")
reference = script("reference")


@pytest.mark.slow(seconds=11)
def test_the_page_of_all_methods_is_that_of_the_present_docstrings():
    """It may lack methods that are newer than the page, and nothing else."""
    text = (DOCS / "methods.md").read_text()
    assert text == methods.page(methods.named(text)), "run `make -C docs pages`"
    assert len(methods.named(text)) > 60


@pytest.mark.slow(seconds=10)
def test_the_built_pages_have_a_method_that_the_committed_ones_lack(monkeypatch):
    monkeypatch.setattr(os, "environ", os.environ.copy())  # conf.py sets variables of a build
    pages = {}
    for name in ("methods", "tuning"):
        text = (DOCS / f"{name}.md").read_text()
        older = re.sub(r"^\| \[`pfedgraph`\].*\n", "", text, flags=re.MULTILINE)
        assert older != text
        pages[name] = [older]
        script("conf").replace_source(None, name, pages[name])
    assert "| [`pfedgraph`](methods/pfedgraph.md) |" in pages["methods"][0]
    assert "| [`pfedgraph`](methods/pfedgraph.md) |" in pages["tuning"][0]


def test_a_page_has_every_option_with_its_meaning_and_every_fact(factory):
    name = factory.__name__
    page = methods.method_page(name)
    for option in options_of(factory):
        rows = re.findall(rf"^\| `{option}` \|.*\| (.*) \|$", page, re.MULTILINE)
        assert len(rows) == 1, f"{option} of {name}"
        assert rows[0], f"{option} of {name}: no meaning in the docstring"
    assert facts_of(factory).link in page
    assert facts_of(factory).personal in page
    differs = re.search(r"Differs: (\S+ \S+)", inspect.getdoc(factory))
    assert ("## Where it differs" in page) == bool(differs)
    if differs:
        assert differs[1] in page
    assert ">>>" in page


@pytest.mark.slow
def test_the_index_names_each_method():
    index = methods.index()
    for name in ALGORITHMS:
        assert f"](methods/{name}.md)" in index


def test_each_method_of_the_committed_page_is_measured():
    for name in methods.named((DOCS / "methods.md").read_text()):
        assert len(methods.measured(name)) > 5, f"{name} has no row in docs/baselines.md"


def test_the_api_reference_has_every_public_name():
    text = "\n".join(reference.page(name) for name in reference.public_modules())
    for name in jaxfl.__all__:
        thing = getattr(jaxfl, name)
        if not inspect.ismodule(thing):
            assert f":: jaxfl.{name}\n" in text
        elif thing.__name__ != "jaxfl.algorithms":
            for part in getattr(thing, "__all__", ()):
                assert f":: {thing.__name__}.{part}\n" in text, f"{thing.__name__}.{part}"
    for name in (
        "kernels.mixing.mix",
        "core.tree.take",
        "core.types.State",
        "simulation.checkpoint.save",
    ):
        assert f":: jaxfl.{name}\n" in text


def test_examples_and_their_results_stand_in_the_pages_as_they_are(monkeypatch):
    monkeypatch.setattr(os, "environ", os.environ.copy())  # conf.py sets variables of a build
    example = [">>> 2 * seed_", "2 * seed_"]
    lines = ["The seed_.", "", *example, "", "Twice seed_."]
    script("conf").plain_characters(None, None, None, None, None, lines)
    assert lines == [r"The seed\_.", "", *example, "", r"Twice seed\_."]


def test_the_reference_gives_the_comment_of_each_field():
    found = dict(reference.fields(jaxfl.types.Federation))
    assert found["test"] == "[C, n, ...] or one pool"
    assert set(found) == {"train", "val", "test"}


@pytest.mark.parametrize(("cls", "section"), [(Config, "Raises"), (Paper, "Example")])
def test_the_sections_of_a_docstring_are_no_fields(cls, section):
    assert f"    {section}:\n" in inspect.getsource(cls)
    assert section not in dict(reference.fields(cls))
