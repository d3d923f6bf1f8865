"""A CSV file or a data frame as text: which file is one, and what each row holds."""

import csv
import io
import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from jaxfl.core.errors import InputError, check, did_you_mean, warn
from jaxfl.core.options import checked
from jaxfl.core.text import composed

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
COMMA = re.compile(r"[+-]?\d+,\d+", re.ASCII)
MARKS = {",": ",", ".": r"\.", " ": r"\s", "'": "'"}  # between thousands
# 1,234 may be a thousand, and 1.234 too where numbers have decimal commas.
THOUSANDS = {
    mark: re.compile(rf"[+-]?[1-9]\d{{0,2}}({MARKS[mark]}\d{{3}})+({end}\d+)?", re.ASCII)
    for mark, end in {",": r"\.", ".": ",", " ": "[.,]", "'": "[.,]"}.items()
}
WHOLE = re.compile(r"([+-]?\d+)\.0*", re.ASCII)
EXCEL = re.compile(r'"?sep=(.)"?')  # a first line that Excel writes and reads
LARGEST_CELL = 100_000_000  # letters
Decimal = Literal[".", ","]
Thousands = Literal[",", ".", " ", "'"]


Cell = str | None  # None: there is no value


class Format(NamedTuple):
    """How the text of a CSV file is written; `read_sheet` describes the fields."""

    encoding: str | None = "utf-8"
    decimal: Decimal = "."
    thousands: Thousands | None = None


class Sheet(NamedTuple):
    """The cells of a table as text, without spaces around it.

    Attributes:
      file: where they are from; of a data frame its name.
      columns: by the name of the column, a cell a row.
      lines: of the file, where each row begins; of a data frame its index.
      unit: what these are.
    """

    file: Path | str
    columns: dict[str, list[Cell]]
    lines: Sequence[Any]
    unit: str = "line"

    def place(self, row: int) -> str:
        """Where a row stands: "line 3 of sites/north.csv"."""
        return f"{self.unit} {self.lines[row]} of {self.file}"


def formats(files: Sequence[Path], **given: str | Sequence[str] | None) -> list[Format]:
    """How each of several files is written.

    Args:
      files: by whose name, without its ending or as a path, a value is given for one of them.
      given: values of `Format`, each VALUE for all files or FILE=VALUE for one of them, or several.

    Raises:
      InputError: there is no such file, or a value is none that can be.

    Example:
      >>> north, south = formats([Path("north.csv"), Path("south.csv")], decimal=[".", "south=,"])
      >>> north.decimal, south.decimal
      ('.', ',')
    """
    found = [Format() for _ in files]
    known = {
        name: place for place, one in enumerate(files) for name in (str(one), one.name, one.stem)
    }
    for field, values in given.items():
        each = [values] if isinstance(values, str) else values or []
        # Values for one file come behind those for all.
        for value in sorted(each, key=lambda one: "=" in one):
            name, is_for_one, word = value.rpartition("=")
            check(
                not is_for_one or name in known,
                f"--{field} {value}: there is no file {name!r}, "
                f"{did_you_mean(name, known) or 'give its name without .csv'}",
            )
            choices = {"decimal": get_args(Decimal), "thousands": get_args(Thousands)}.get(field)
            check(
                choices is None or word in choices,
                f"--{field} is {word!r}: expected one of {' '.join(choices or ())}, or FILE=VALUE "
                "for one of the files",
            )
            places = [known[name]] if is_for_one else range(len(files))
            for place in places:
                found[place] = found[place]._replace(**{field: word})
    return found


@checked
def read_sheet(
    file: Path,
    names: Sequence[str] = (),
    encoding: str | None = "utf-8",
    decimal: Decimal = ".",
    thousands: Thousands | None = None,
) -> Sheet:
    """The rows of a CSV file, whose first line names the columns; empty rows are left out.

    The separator is the comma, semicolon, tab or bar that divides the first line into most columns,
    or that of a line `sep=;` above it.

    Args:
      file: to read.
      names: of the columns, for a file whose first line is a row of data.
      encoding: of its text; None: UTF-8, where no option says another one.
      decimal: "," where 12,5 is a number; it becomes 12.5.
      thousands: "," where 1,234 is a number; it becomes 1234.

    Raises:
      InputError: the file is missing, empty or no CSV file in this encoding, columns have no names
        or the same, or a number has a point where numbers have commas.
    """
    check(decimal != thousands, f"--decimal and --thousands are both {decimal!r}: name two")
    text = _text(file, encoding)
    first = text.strip().partition("\n")[0].strip()
    # Those within quotes, or within numbers with a decimal comma, divide nothing.
    whole = r'"[^"]*"' if decimal == "." else r'"[^"]*"|\d,\d'
    separator = max(SEPARATORS, key=re.sub(whole, "", first).count)
    excel = EXCEL.fullmatch(first)
    rows, lines = _rows(file, text, excel[1] if excel else separator)
    if excel:
        separator, rows, lines = excel[1], rows[1:], lines[1:]
    check(
        len(rows) > 0,
        f"{file} is empty: expected a line with the names of the columns, and rows below it",
    )
    header = list(names)
    if not names:
        header, rows, lines = rows[0], rows[1:], lines[1:]
    header = [" ".join(name.split()) for name in header]
    _check_names(file, header, given=bool(names))
    check(len(rows) > 0, f"{file} has the names of columns and no row below them: remove the file")
    for row, line in zip(rows, lines, strict=True):
        check(
            len(row) == len(header),
            f"line {line} of {file} has {len(row)} cells, and the columns are {len(header)}, "
            f"divided by a {SEPARATORS.get(separator, separator)}: correct the line; a text that "
            'holds the separator stands in quotes (")',
        )
    columns = dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))
    sheet = Sheet(file, columns, lines)
    if decimal == "." and thousands is None:
        return sheet
    return sheet._replace(
        columns={name: _plain_numbers(sheet, name, decimal, thousands) for name in columns}
    )


def sheet_of_frame(frame: Any, name: str) -> Sheet:
    """The cells of a data frame.

    Args:
      frame: of pandas, with a column of numbers, words or truth values for each of a CSV file.
      name: of the frame, for messages.

    Raises:
      InputError: it has no rows, or columns have no names or the same.
    """
    check(len(frame) > 0, f"the data frame of {name} has no rows: leave it out")
    names = [" ".join(str(one).split()) for one in frame.columns]
    _check_names(f"the data frame of {name}", names, given=True)
    columns = {
        name: [
            None if is_missing else str(cell).strip()
            for cell, is_missing in zip(frame[key], frame[key].isna(), strict=True)
        ]
        for name, key in zip(names, frame.columns, strict=True)
    }
    return Sheet(name, columns, frame.index.tolist(), "row")


def without(sheet: Sheet, missing: Sequence[str]) -> Sheet:
    """The sheet, with None in place of cells that hold no value; -9.0 is -9 where this is none.

    Args:
      sheet: the cells.
      missing: words for no value.
    """
    words = {*missing, *map(word_of, missing)}
    is_plain = not any(" " in word or WHOLE.fullmatch(f"{word}.") for word in words)

    def value(cell: Cell) -> Cell:
        if cell is None or cell in words or not (is_plain or word_of(cell) not in words):
            return None
        return cell

    columns = {name: list(map(value, cells)) for name, cells in sheet.columns.items()}
    return sheet._replace(columns=columns)


def word_of(cell: str) -> str:
    """The word of a cell, on one line; 3.0 is the word 3.

    Example:
      >>> word_of("3.0"), word_of("3"), word_of("ward  3.0")
      ('3', '3', 'ward 3.0')
    """
    match = WHOLE.fullmatch(cell)
    return match[1] if match else " ".join(cell.split())


def check_columns(sheets: Sequence[Sheet], leave_out: Sequence[str] = ()) -> None:
    """Raises an `InputError` unless all files have the same columns, in whatever order.

    Args:
      sheets: the files.
      leave_out: columns that some files may lack.
    """
    expected = set(sheets[0].columns) - set(leave_out)
    for sheet in sheets[1:]:
        names = set(sheet.columns) - set(leave_out)
        lacks = _names("lacks", [name for name in sheets[0].columns if name in expected - names])
        other = _names("has", [name for name in sheet.columns if name in names - expected])
        check(
            names == expected,
            f"{sheet.file} {' and '.join(filter(None, [lacks, other]))}, unlike "
            f"{sheets[0].file}: give all files the same columns, an empty one where a site has "
            "measured nothing, or leave a column out of all (--leave-out COLUMN)",
        )


def check_column(option: str, name: str, columns: Iterable[str]) -> None:
    """Raises an `InputError`, which names the option, unless there is such a column."""
    if name not in columns:
        hint = did_you_mean(name, columns) or f"the columns are {_some(list(columns))}"
        raise InputError(f"{option} {name}: there is no such column, {hint}")


def _text(file: Path, encoding: str | None) -> str:
    """The content of a file as text."""
    try:
        content = file.read_bytes()
    except OSError as error:
        hint = "give the path of a CSV file"
        raise InputError(f"cannot read {file} ({error.strerror}): {hint}") from error
    check(
        not content.startswith(b"PK\x03\x04"),
        f"{file} is a workbook or an archive, no text: save it as CSV (UTF-8)",
    )
    wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    # The mark that a spreadsheet writes before UTF-8 belongs to no name of a column.
    option = encoding is not None
    encoding = encoding or "utf-8"
    # Or says that the file is UTF-8, whatever the others are.
    plain = encoding.lower().replace("_", "-") in ("utf-8", "utf8") or content.startswith(BOM_UTF8)
    try:
        text = content.decode("utf-8-sig" if plain else encoding)
    except LookupError as error:
        raise InputError(
            f"--encoding {encoding} is none that Python knows: expected utf-8, latin-1, cp1252 or "
            "utf-16, for example"
        ) from error
    except UnicodeError as error:
        start = error.start if isinstance(error, UnicodeDecodeError) else 0
        one, *others = ["utf-16"] if wide else ["latin-1", " or cp1252"]
        hint = f", or say which encoding it has, as --encoding {one}{''.join(others)}"
        alone = f" (--encoding {file.stem}={one} for this file alone)"
        raise InputError(
            f"line {content[:start].count(10) + 1} of {file} is not {encoding}: save the file as "
            f"UTF-8{hint + alone if option else ''}"
        ) from error
    text = composed(text.removeprefix("\ufeff"))
    check("\0" not in text, f"{file} holds bytes that are no text: save it as CSV (UTF-8)")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _rows(file: Path, text: str, separator: str) -> tuple[list[list[str]], list[int]]:
    """The cells of each row that is not empty, and the line where it begins."""
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=separator, strict=True, skipinitialspace=True
    )
    rows = []
    lines = []
    start = 1
    # Of a cell: a text may be long.
    limit = csv.field_size_limit(LARGEST_CELL)
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if any(cells):
                rows.append(cells)
                lines.append(start)
            start = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            f'the row at line {start} of {file} has a quote (") that does not end where its cell '
            f"ends ({error}): close it, or write it twice where it belongs to the text"
        ) from error
    finally:
        csv.field_size_limit(limit)
    return rows, lines


def _plain_numbers(
    sheet: Sheet, name: str, decimal: Decimal, thousands: Thousands | None
) -> list[Cell]:
    """The cells of a column of a file, whose numbers are written as in Python."""
    cells = [cell or "" for cell in sheet.columns[name]]
    if thousands is not None:
        mark, group = re.compile(MARKS[thousands]), THOUSANDS[thousands]
        cells = [mark.sub("", cell) if group.fullmatch(cell) else cell for cell in cells]
    if decimal == ".":
        return list(cells)
    for row, cell in enumerate(cells):
        check(
            thousands is not None or not THOUSANDS["."].fullmatch(cell),
            f"{sheet.place(row)} has {cell!r:.40}, and with --decimal , a point may divide "
            "thousands: add --thousands . where it does, or write the number without a point",
        )
    some = [cell for cell in cells if COMMA.fullmatch(cell)]
    if thousands is None and some and all(map(THOUSANDS[","].fullmatch, some)):
        warn(
            f"all commas in column {name} of {sheet.file} have three digits behind them, as "
            f"thousands have ({some[0]}), and are read as decimal commas: if they divide "
            "thousands, give --thousands , in place of --decimal ,"
        )
    return [cell.replace(",", ".") if COMMA.fullmatch(cell) else cell for cell in cells]


def _check_names(file: object, names: Sequence[str], given: bool) -> None:
    """Raises an `InputError` unless each column has a name of its own."""
    check(
        given or not any(NUMBER.fullmatch(name) for name in names),
        f"the first line of {file} holds numbers ({_some(names)}): expected the names of the "
        "columns there; write them above, or give them as --columns NAME NAME ...",
    )
    empty = [place for place, name in enumerate(names, start=1) if not name]
    check(
        not empty,
        f"column {', '.join(map(str, empty[:1]))} of {file} has no name: name it, or write the "
        "file without it (a data frame writes its row numbers there)",
    )
    odd = [name for name in names if not name.isprintable()]
    check(
        not odd,
        f"column {', '.join(odd[:1])!r:.60} of {file} has letters that cannot be printed: give it "
        "another name",
    )
    twice = [name for name, count in Counter(names).items() if count > 1]
    check(not twice, f"{file} has two columns {_some(twice)}: give each a name of its own")


def _names(verb: str, names: Sequence[str]) -> str:
    return f"{verb} {_some(names)}" if names else ""


def _some(names: Sequence[str]) -> str:
    """Up to eight names, and how many more there are."""
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"{', '.join(names[:8])}{more}"
