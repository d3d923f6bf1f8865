"""The pages that a build of the documentation writes from the package."""

import inspect
import os
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from examples import four_clients, script
from jax.interpreters.partial_eval import dce_jaxpr
from toys import shallow

import jaxfl
from jaxfl.algorithms import ALGORITHMS
from jaxfl.core.errors import InputError
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


@pytest.mark.sample(every=16)
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
        assert methods.formulas(differs[1]) in page
    assert ">>>" in page


@pytest.mark.slow
def test_the_index_names_each_method():
    index = methods.index()
    for name in ALGORITHMS:
        assert f"](methods/{name}.md)" in index


def test_each_method_of_the_committed_page_has_one_family():
    names = methods.named((DOCS / "methods.md").read_text())
    listed = [name for family in methods.FAMILIES for name in family.methods]
    assert sorted(listed) == sorted(set(listed))
    assert set(names) <= set(listed)
    assert set(listed) <= set(ALGORITHMS)
    assert methods.families(["mine", "fedavg"])[-1].methods == ("mine",)


def test_the_tables_have_gradients_in_units_of_fedavg_and_at_most_eight_columns():
    names = ("fedavg", "ditto", "mine")
    assert [methods.gradients_of(name) for name in names] == ["1", "2", "-"]
    assert {line.count("|") for line in methods.TABLE} == {9}


@pytest.mark.long
def test_a_method_needs_validation_data_if_its_round_reads_them(factory):
    """Of the traced round, what does not change its results is left out.

    All methods may read the masks, for the size of a client is that of all its examples.
    """
    name = factory.__name__
    cohort = jax.tree.map(jnp.asarray, four_clients())
    algorithm = factory(shallow())
    key = jax.random.key(0)
    state = jax.eval_shape(algorithm.init, key, cohort.train)

    def one_round(x, y, cohort, state):
        val = cohort.val._replace(x=x, y=y)
        return algorithm.round(key, state, cohort._replace(val=val))

    traced = jax.make_jaxpr(one_round)(cohort.val.x, cohort.val.y, cohort, state).jaxpr
    _, used = dce_jaxpr(traced, [True] * len(traced.outvars))
    assert any(used[:2]) == ("validation" in methods.needs(name))


def test_a_method_needs_a_head_if_it_refuses_a_model_without_one(factory):
    name = factory.__name__
    task = shallow()
    whole = task._replace(problem=task.problem._replace(head=None))
    if "head" in methods.needs(name):
        with pytest.raises(InputError, match="head"):
            factory(whole)
    else:
        factory(whole)


@pytest.mark.parametrize(
    "word",
    [
        *("AUC", "F1", "LoRA", "Flower", "SLURM", "CSV", "non-IID", "heterogeneity"),
        *("decentralized", "fairness", "leaderboard", "label skew", "deployed"),
    ],
)
def test_words_that_people_search_for_stand_in_headings_or_are_explained(word):
    """The search of the built pages puts headings first."""
    pages = [page.read_text() for page in DOCS.glob("*.md")]
    pages += [page.read_text() for page in (DOCS / "guides").glob("*.md")]
    headings = [line for text in pages for line in re.findall(r"^#+ .*", text, re.MULTILINE)]
    concepts = (DOCS / "concepts.md").read_text()
    headings += re.findall(r"^(.*)\n: ", concepts, re.MULTILINE)
    assert any(re.search(rf"\b{word}\b", heading, re.IGNORECASE) for heading in headings)


def test_tables_on_pages_have_at_most_eight_columns():
    """But for that of the kernels, whose row is a kernel beside one of its peers."""
    wide = set()
    for page in DOCS.rglob("*.md"):
        if not {"_build", "api", "methods"} & {folder.name for folder in page.parents}:
            rules = re.findall(r"^\|[-:| ]+\|$", page.read_text(), re.MULTILINE)
            if max((rule.count("|") - 1 for rule in rules), default=0) > 8:
                wide.add(str(page.relative_to(DOCS)))
    assert wide <= {"kernels.md"}


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
                one = getattr(thing, part)
                # A function of kernels stands where it is defined.
                homes = {thing.__name__, getattr(one, "__module__", "")}
                entries = [f":: {home}.{part}\n" for home in homes]
                assert inspect.ismodule(one) or any(entry in text for entry in entries), part
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
