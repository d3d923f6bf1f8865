"""Writes the table of docs/tuning.md from the facts of the methods: `python docs/tuning.py`."""

from pathlib import Path

from jaxfl.algorithms import ALGORITHMS
from jaxfl.core.facts import facts_of
from jaxfl.core.options import options_of

PAGE = Path(__file__).with_name("tuning.md")
START = "<!-- python docs/tuning.py writes this table -->\n"
END = "<!-- end of the table -->\n"


def table() -> str:
    """A row for each method: what to turn first, and its options with their defaults."""
    lines = ["| method | turn first | options and defaults |", "|---|---|---|"]
    for name, factory in ALGORITHMS.items():
        options = [f"`{option}={default}`" for option, (_, default) in options_of(factory).items()]
        first = facts_of(factory).turn_first or "-"
        lines.append(f"| [`{name}`](methods.md#{name}) | {first} | {' '.join(options) or '-'} |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page with a new table.

    Args:
      text: the page as it is.
    """
    before, _, rest = text.partition(START)
    return before + START + "\n" + table() + "\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
