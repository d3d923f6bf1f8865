"""`jaxfl cite`, the publications of the methods, and CITATION.cff."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import jaxfl
from jaxfl.algorithms import ALGORITHMS
from jaxfl.cli import main
from jaxfl.core.facts import facts_of
from jaxfl.core.papers import VENUES, Paper, bibtex

ROOT = Path(__file__).parents[2]
FOUR = ("pfedgraph", "fedcedar", "gfedmtl", "pfedgat")


def fields(entry):
    """The fields of one BibTeX entry, without the outer braces of their values."""
    assert re.match(r"@\w+\{\w+,\n", entry)
    return dict(re.findall(r"^  (\w+) += \{(.*)\},$", entry, re.MULTILINE))


def balanced(text):
    """Whether every brace is closed and none is closed before it is opened."""
    depth = 0
    for character in text:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth < 0:
            return False
    return depth == 0


def test_a_method_with_a_publication_has_a_complete_bibtex_entry(factory):
    facts = facts_of(factory)
    if facts.publication is None:
        assert not facts.link, "state the paper as a `Paper`, so that it can be cited"
        return
    entry = bibtex(facts.publication)
    found = fields(entry)
    assert balanced(entry)
    assert entry.isascii()
    names = found["author"].split(" and ")
    assert all(re.fullmatch(r"[^,]+, [^,]+", name) for name in names)
    assert len(found["title"].strip("{}")) > 10
    assert re.fullmatch(r"20[12]\d", found["year"])
    assert found["url"] == facts.link
    assert found["url"].startswith("https://")
    assert entry.startswith("@misc") or found.keys() & {"booktitle", "journal"}


def test_different_publications_have_different_keys():
    published = {facts_of(factory).publication for factory in ALGORITHMS.values()} - {None}
    assert len(published) > 30
    assert len({paper.key for paper in published}) == len(published)


def test_every_venue_is_that_of_a_method():
    published = [facts_of(factory).publication for factory in ALGORITHMS.values()]
    assert {paper.venue for paper in published if paper} - {""} == set(VENUES)


def test_accents_and_small_words_in_an_entry():
    paper = Paper(
        authors="Müller, Zoë and Konečný, Jakub",
        title="On the Mean",
        venue="",
        year=2020,
        link="https://example.org",
    )
    found = fields(bibtex(paper))
    assert found["author"] == r"M{\"u}ller, Zo{\"e} and Kone{\v c}n{\'y}, Jakub"
    assert paper.key == "muller2020mean"
    assert paper.text == 'Müller and Konečný, "On the Mean", 2020'


def test_cite_prints_the_entry_of_each_publication_once(capsys):
    assert main(["cite", "krum", "pfedgraph", "multi_krum"]) == 0
    shown = capsys.readouterr().out
    assert re.findall(r"@\w+\{(\w+),", shown) == ["blanchard2017machine", "ye2023personalized"]
    assert "Ye, Rui and Ni, Zhenyang and Wu, Fangzhao and Chen, Siheng and Wang, Yanfeng" in shown
    assert "International Conference on Machine Learning" in shown


def test_cite_without_a_method_prints_the_entry_of_jaxfl(capsys):
    assert main(["cite"]) == 0
    shown = capsys.readouterr().out
    assert balanced(shown)
    assert fields(shown)["author"] == "{The jaxfl authors}"
    assert fields(shown)["version"] == jaxfl.__version__


def test_a_method_without_a_publication_is_cited_as_jaxfl(capsys):
    assert main(["cite", "local"]) == 0
    comment, entry = capsys.readouterr().out.split("\n", 1)
    assert comment.startswith("% local has no publication")
    assert entry.startswith("@misc{jaxfl,")


def test_cite_refuses_an_unknown_method_and_prints_no_entry(capsys):
    assert main(["cite", "krum", "pfedgrap"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "unknown algorithm 'pfedgrap': did you mean pfedgraph" in said.err


def test_the_citation_file_has_the_version_and_licence_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == project["version"]
    assert citation["license"] == project["license"] == "Apache-2.0"
    assert [author["name"] for author in citation["authors"]] == ["The jaxfl authors"]
    assert project["authors"] == citation["authors"]
    assert {"message", "title"} <= citation.keys()


@pytest.mark.parametrize(("place", "name"), list(enumerate(FOUR)), ids=FOUR)
def test_the_citation_file_refers_to_the_papers_of_the_four_systems(place, name):
    reference = yaml.safe_load((ROOT / "CITATION.cff").read_text())["references"][place]
    paper = facts_of(ALGORITHMS[name]).publication
    authors = [f"{who['family-names']}, {who['given-names']}" for who in reference["authors"]]
    assert " and ".join(authors) == paper.authors
    assert reference["title"] == paper.title
    assert reference["year"] == paper.year
    assert reference["url"] == paper.link
    conference = reference.get("conference", {}).get("name")
    assert conference == (VENUES[paper.venue][0] if paper.venue else None)
