"""Writes docs/methods.md from the facts and options of each method: `python docs/methods.py`."""

from pathlib import Path

from jaxfl.algorithms import ALGORITHMS
from jaxfl.options import describe, parameters
from jaxfl.registry import facts_of

OFFERING = ", ".join(
    f"`{name}`" for name in ALGORITHMS if facts_of(ALGORITHMS[name]).offers_mixture
)
HEAD = f"""# The methods

`python docs/methods.py` writes this page from the files in `jaxfl/algorithms/`. To change the page,
change those files. Each file names the equations that it computes, and lists under "Differs:" where
it deviates from the publication.

The column "personal" names the part of the deployed model that belongs to one client; with
"nothing", all clients deploy the same model. The column "a client sends" names what a client
uploads in each round. The column "whose defaults" says where the defaults of the options come from;
"pFedGraph's tables" are those of its authors' comparison (2023), with "-" there is nothing to
choose. An option is set by `--hyper NAME=VALUE` on the command line, or as a keyword
argument in Python (`jaxfl.algorithms.ditto(task, lam=0.5)`). Options that take arrays or functions
can be set in Python only.

These methods offer a mixture to each client, which the client may refuse (`--defend accept`, see
[robustness.md](robustness.md)): {OFFERING}.
"""


def row(name: str) -> str:
    """A method's row of the table."""
    facts = facts_of(ALGORITHMS[name])
    title = f"[{facts.title}]({facts.link})" if facts.link else facts.title
    return (
        f"| [`{name}`](#{name}) | {title} | {facts.personal or 'nothing'} | "
        f"{facts.sends or 'nothing'} | {facts.defaults or '-'} |"
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
    if facts.absent:
        lines += ["", f"Clients absent in the last round deploy {facts.absent}."]
    options = parameters(factory)
    if options:
        lines += ["", "| option | default | allowed values |", "|---|---|---|"]
    for option, (hint, default) in options.items():
        words = (describe(hint) or "an array").replace("|", "\\|")
        lines.append(f"| `{option}` | `{default}` | {words} |")
    return "\n".join(lines)


def page() -> str:
    """The whole page."""
    table = [
        "| method | paper | personal | a client sends | whose defaults |",
        "|---|---|---|---|---|",
    ]
    table += [row(name) for name in ALGORITHMS]
    return "\n\n".join([HEAD.rstrip(), "\n".join(table), *map(section, ALGORITHMS)]) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("methods.md").write_text(page())
