"""Writes the table of docs/tuning.md from the facts of the methods: `python docs/tuning.py`.

As of docs/methods.md, the committed table may lack a new method, and a build of the documentation
makes it from the methods as they are.
"""

from collections.abc import Collection
from pathlib import Path

from jaxfl.algorithms import ALGORITHMS
from jaxfl.core.facts import facts_of
from jaxfl.core.options import options_of

PAGE = Path(__file__).with_name("tuning.md")
START = "<!-- python docs/tuning.py writes this table -->\n"
END = "<!-- end of the table -->\n"


def table(names: Collection[str] = ALGORITHMS.keys()) -> str:
    """A row for each method: what to change first, and its options with their defaults."""
    lines = ["| method | change first | options and defaults |", "|---|---|---|"]
    for name in names:
        factory = ALGORITHMS[name]
        options = [f"`{option}={default}`" for option, (_, default) in options_of(factory).items()]
        first = facts_of(factory).advice or "-"
        lines.append(f"| [`{name}`](methods.md#{name}) | {first} | {' '.join(options) or '-'} |")
    return "\n".join(lines) + "\n"


def page(text: str, names: Collection[str] = ALGORITHMS.keys()) -> str:
    """The page with a new table.

    Args:
      text: the page as it is.
      names: of the methods in the table.
    """
    before, _, rest = text.partition(START)
    return before + START + "\n" + table(names) + "\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
