"""Files of a comparison: its tables as text, `comparison.json`, its picture."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jaxfl.experiment.reading.by_client import Answers
from jaxfl.experiment.reading.client_tables import client_records, client_sections
from jaxfl.experiment.store import files
from jaxfl.experiment.store.records import Runs, Summary
from jaxfl.experiment.tables.formats import as_json, comma_separated, latex, markdown
from jaxfl.experiment.tables.scores import comparison_entries
from jaxfl.experiment.tables.sections import first_columns, sections
from jaxfl.experiment.tables.tidy import score_records

# The formats of the table of runs, and the files that hold it beside the picture.
TEXTS = {
    "md": "comparison.md",
    "latex": "comparison.tex",
    "csv": "scores.csv",
    "json": "scores.json",
}

# Those of what each client gains.
CLIENT_TEXTS = {
    "md": "clients.md",
    "latex": "clients.tex",
    "csv": "clients.csv",
    "json": "clients.json",
}


def text_of(
    runs: Runs,
    format: str,
    *,
    by: str | None = None,
    against: str | None = None,
    columns: Sequence[str] = (),
    names: Mapping[str, str] | None = None,
) -> str:
    """The table of finished runs as text.

    Args:
      runs: of `load_finished`.
      format: "md" or "latex", for the tables of `tables.sections.sections`; "csv" or "json", for
        the records of `tables.tidy.score_records`.
      by: as in `tables.sections.sections`; an option that differs is in every record anyway.
      against: as in `tables.sections.sections`.
      columns: as in `tables.sections.sections`; of "latex" the first ones if none are named.
      names: as in `tables.sections.sections`; records keep the names of the runs.

    Raises:
      InputError: as `tables.sections.sections`.
    """
    tables = sections(runs, by=by, against=against, columns=columns, names=names)
    if format == "md":
        return markdown(tables)
    if format == "latex":
        return latex(tables if columns else first_columns(tables))
    records = score_records(runs, against)
    return {"csv": comma_separated, "json": as_json}[format](records)


def write_comparison(
    runs: Runs,
    out: Path,
    formats: Sequence[str] = ("png",),
    highlight: Collection[str] = (),
    *,
    by: str | None = None,
    against: str | None = None,
    columns: Sequence[str] = (),
    names: Mapping[str, str] | None = None,
    title: bool = True,
    panels: bool = False,
) -> dict[str, Summary]:
    """Writes the comparison of finished runs, of `load_finished`, into `out`.

    Args:
      runs: of one measure.
      out: the directory to write.
      formats: of the picture, as `--format`; and of `TEXTS`, for the table in other files.
      highlight: runs or methods that are in colour among many.
      by: as in `tables.sections.sections`.
      against: as in `tables.sections.sections`.
      columns: as in `text_of`.
      names: as in `tables.sections.sections`, for the picture too.
      title: whether the setting stands above the picture.
      panels: write each panel of the picture as a file of its own, too.

    Returns:
      The summary of each run.

    Raises:
      InputError: as `tables.sections.sections`, before anything is written.
    """
    from jaxfl.experiment.pictures.curves import draw_comparison
    from jaxfl.experiment.pictures.drawing import write_panels, write_picture

    texts = {"md", *formats} & set(TEXTS)
    options: dict[str, Any] = {"by": by, "against": against, "columns": columns, "names": names}
    contents = {name: text_of(runs, name, **options) for name in sorted(texts)}
    for name, text in contents.items():
        files.write_file(out / TEXTS[name], text)
    draw = partial(draw_comparison, runs, highlight, names=names)
    write_picture(out, "comparison", draw(title=title), formats)
    if panels:
        write_panels(out, "comparison", partial(draw, title=False), formats)
    # Last, as it says that the others are there.
    files.write_json(out / "comparison.json", comparison_entries(runs))
    return {label: run.summary for label, run in runs.items()}


def text_of_clients(answers: Sequence[Answers], format: str) -> str:
    """What each client gains, as text.

    Args:
      answers: of `reading.by_client.client_answers`.
      format: "md" or "latex", for the tables of `reading.client_tables.client_sections`; "csv" or
        "json", for the records of `reading.client_tables.client_records`.
    """
    if format in ("md", "latex"):
        tables = [table for one in answers for table in client_sections(one)]
        return {"md": markdown, "latex": latex}[format](tables)
    records = [record for one in answers for record in client_records(one)]
    return {"csv": comma_separated, "json": as_json}[format](records)


def write_clients(answers: Sequence[Answers], out: Path, formats: Sequence[str] = ()) -> None:
    """Writes what each client gains into `out`, as `CLIENT_TEXTS` names the files.

    Args:
      answers: of `reading.by_client.client_answers`.
      out: the directory to write.
      formats: as `--format`; "md" is written in any case.
    """
    for name in sorted({"md", *formats} & set(CLIENT_TEXTS)):
        files.write_file(out / CLIENT_TEXTS[name], text_of_clients(answers, name))
