"""An algorithm in words, from what its factory states: `facts.Facts`, options, documentation."""

import inspect
import re
from typing import Any, NamedTuple

from jaxfl.core.facts import facts_of
from jaxfl.core.options import describe, options_of
from jaxfl.core.types import AlgorithmFactory

SECTION = re.compile(r"^(Args|Returns|Raises|Differs|Example|State):\s*(.*)$")


class Parts(NamedTuple):
    """A docstring in Google style, taken apart."""

    first: str  # the first line
    text: str  # what stands before the first section
    sections: dict[str, str]  # the text of each section by its name, without indentation
    options: dict[str, str]  # what "Args" says of each argument


def parts_of(function: Any) -> Parts:
    """The documentation of a function, taken apart."""
    first, *rest = (inspect.getdoc(function) or "").splitlines() or [""]
    blocks: dict[str, list[str]] = {"": []}
    name = ""
    for line in rest:
        if heading := SECTION.match(line):
            name = heading[1]
            blocks[name] = [heading[2]] if heading[2] else []
        elif line.startswith("  ") or not line or name in ("State", "Differs") or not name:
            blocks[name].append(line.removeprefix("  "))
        else:
            name = ""
            blocks[name] += ["", line]
    sections = {name: "\n".join(lines).strip() for name, lines in blocks.items()}
    pairs = re.findall(r"^(\w+): ((?:.+\n?(?:  .*\n?)*))", sections.get("Args", ""), re.MULTILINE)
    options = {name: " ".join(words.split()) for name, words in pairs}
    return Parts(first, sections.pop(""), sections, options)


def first_line(function: Any) -> str:
    """The first line of a function's documentation."""
    return parts_of(function).first


def short_line(factory: AlgorithmFactory) -> str:
    """The first line of an algorithm's documentation, and its publication: ICML 2023."""
    paper = facts_of(factory).publication
    venue = f" ({paper.venue or 'preprint'} {paper.year})" if paper else ""
    return first_line(factory).removesuffix(".") + venue


def describe_function(function: Any) -> list[str | dict[str, str]]:
    """What a function does, by its documentation: paragraphs and tables."""
    parts = parts_of(function)
    paragraphs: list[str | dict[str, str]] = [parts.first]
    paragraphs += [text for text in parts.text.split("\n\n") if text]
    if "Differs" in parts.sections:
        paragraphs.append({"differs": parts.sections["Differs"]})
    return paragraphs


def describe_factory(factory: AlgorithmFactory) -> list[str | dict[str, str]]:
    """What an algorithm does, its facts, and its hyper-parameters with defaults and values.

    Returns:
      Paragraphs, and tables as dictionaries of a label and a text.
    """
    facts = facts_of(factory)
    parts = parts_of(factory)
    paragraphs = [parts.first, *(text for text in parts.text.split("\n\n") if text)]
    facts_by_label = {
        "paper": ", ".join(part for part in (facts.title, facts.paper) if part),
        "link": facts.link,
        "personal": facts.personal or "nothing: all clients deploy one model",
        "a client sends": facts.sends or "nothing",
        "absent clients": f"deploy {facts.absent}" if facts.absent else "",
        "defence": "a client may refuse its mixture (--defend accept)"
        if facts.offers_mixture
        else "",
        "sparse graph": "a client may keep its largest weights only (--top-edges K)"
        if facts.takes_top_edges
        else "",
        "change first": facts.advice,
        "defaults": facts.defaults,
        "cite": f"jaxfl cite {factory.__name__}" if facts.publication else "",
    }
    options = {}
    for name, (hint, default) in options_of(factory).items():
        words = [describe(hint) or "an array, in Python only", parts.options.get(name, "")]
        options[f"{name}={default}"] = "; ".join(word for word in words if word)
    return [
        *paragraphs,
        {label: text for label, text in facts_by_label.items() if text},
        *(["Hyper-parameters (--hyper NAME=VALUE):", options] if options else []),
    ]
