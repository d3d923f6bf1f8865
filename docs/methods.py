"""Writes docs/methods.md from what each method states of itself: `python docs/methods.py`."""

from pathlib import Path

from jaxfl.algorithms import ALGORITHMS
from jaxfl.options import describe, parameters
from jaxfl.registry import facts_of

HEAD = """# The methods

This page is written by `python docs/methods.py` from the files in `jaxfl/algorithms/`: change those.
Each file names the equations that it computes, and under "Differs:" what is not as published.
"""


def row(name: str) -> str:
    """A method's row of the table."""
    facts = facts_of(ALGORITHMS[name])
    title = f"[{facts.title}]({facts.link})" if facts.link else facts.title
    return (
        f"| [`{name}`](#{name}) | {title} | {facts.personal or 'nothing'} | "
        f"{facts.sends or 'nothing'} |"
    )


def section(name: str) -> str:
    """A method's section: what it does, its paper, its options."""
    factory = ALGORITHMS[name]
    facts = facts_of(factory)
    lines = [
        f"## {name}",
        "",
        (factory.__doc__ or "").splitlines()[0],
        "",
        f"Paper: {facts.paper}.",
    ]
    options = parameters(factory)
    if options:
        lines += ["", "| option | default | what it may be |", "|---|---|---|"]
    for option, (hint, default) in options.items():
        words = (describe(hint) or "an array").replace("|", "\\|")
        lines.append(f"| `{option}` | `{default}` | {words} |")
    return "\n".join(lines)


def page() -> str:
    """The whole page."""
    table = ["| method | paper | personal | a client sends |", "|---|---|---|---|"]
    table += [row(name) for name in ALGORITHMS]
    return "\n\n".join([HEAD.rstrip(), "\n".join(table), *map(section, ALGORITHMS)]) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("methods.md").write_text(page())
