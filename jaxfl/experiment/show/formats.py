"""Tables of finished runs as Markdown, LaTeX, CSV and JSON."""

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from jaxfl.experiment.show.sections import Section
from jaxfl.experiment.show.tables import caption

TEX = {  # what letters mean something else in LaTeX, as they are typed there
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "±": r"$\pm$",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}


def markdown(tables: Sequence[Section]) -> str:
    """The tables as Markdown, with their headings, captions and warnings; the best in bold."""
    parts = []
    for table in tables:
        titles = table.cells.titles
        lines = [f"| method | {' | '.join(titles)} |", f"|---|{'---:|' * len(titles)}"]
        lines += [f"| {' | '.join(row)} |" for row in _rows(table, _escaped, "**{}**")]
        parts += [_escaped(table.heading), "\n".join(lines), _caption(table)]
        parts += [f"{_escaped(line)} (docs/tuning.md)." for line in table.warnings]
    return "\n\n".join(part for part in parts if part) + "\n"


def latex(tables: Sequence[Section]) -> str:
    """The tables as LaTeX, for the package booktabs, the best in bold.

    Headings, captions and warnings are comments.
    """
    parts = []
    for table in tables:
        said = [table.heading, _caption(table), *table.warnings]
        lines = [f"% {line}" for line in said if line]
        lines.append(rf"\begin{{tabular}}{{l{'r' * len(table.cells.titles)}}}")
        head = " & ".join(tex(title) for title in ("method", *table.cells.titles))
        lines += [r"\toprule", rf"{head} \\", r"\midrule"]
        lines += [rf"{' & '.join(row)} \\" for row in _rows(table, tex, r"\textbf{{{}}}")]
        lines += [r"\bottomrule", r"\end{tabular}"]
        parts.append("\n".join(lines))
    return "\n\n".join(["% needs \\usepackage{booktabs}", *parts]) + "\n"


def tex(text: str) -> str:
    """The text as it is typed in LaTeX, with the minus of numbers, and a dash for no value."""
    if text == "-":
        return "--"
    typed = "".join(TEX.get(letter, letter) for letter in text)
    return re.sub(r"(?<![\w.])-(?=\d)", "$-$", typed)


def comma_separated(records: Sequence[dict[str, Any]]) -> str:
    """Records as CSV: a line of names, then a line for each record; nothing where a value is None.

    A text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    names = list(dict.fromkeys(name for record in records for name in record))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, names, lineterminator="\n")
    writer.writeheader()
    for record in records:
        writer.writerow({name: _harmless(value) for name, value in record.items()})
    return buffer.getvalue()


def as_json(records: Sequence[dict[str, Any]]) -> str:
    """Records as a JSON list."""
    return json.dumps(list(records), indent=1, allow_nan=False) + "\n"


def _rows(table: Section, escape: Callable[[str], str], bold: str) -> list[list[str]]:
    """The rows of a table as text, each with its name first."""
    found = []
    for place, (name, cells) in enumerate(table.cells.rows):
        row = [
            bold.format(escape(cell)) if (place, column) in table.cells.best else escape(cell)
            for column, cell in enumerate(cells)
        ]
        found.append([escape(name), *row])
    return found


def _caption(table: Section) -> str:
    """The caption as a sentence."""
    text = caption(table.meaning, table.cells.titles)
    return f"{text[0].upper()}{text[1:]}."


def _escaped(text: str) -> str:
    return text.replace("|", r"\|")


def _harmless(value: Any) -> Any:
    formula = isinstance(value, str) and value.startswith(("=", "+", "@", "-"))
    return f"'{value}" if formula else value
