"""`jaxfl report`."""

from pathlib import Path
from typing import Any

from rich.console import Console

from jaxfl.cli.command_options import Report
from jaxfl.core.errors import InputError, check
from jaxfl.experiment.reading.by_client import client_answers
from jaxfl.experiment.reading.client_tables import client_sections
from jaxfl.experiment.reading.conformal import calibrate
from jaxfl.experiment.reading.conformal_tables import coverage_section
from jaxfl.experiment.reading.load import FinishedRun
from jaxfl.experiment.session.run_pictures import Style
from jaxfl.experiment.store import files
from jaxfl.experiment.store.finished_runs import is_search, load_finished
from jaxfl.experiment.store.records import Runs
from jaxfl.experiment.studies.comparison import (
    TEXTS,
    text_of,
    text_of_clients,
    write_clients,
    write_comparison,
)
from jaxfl.experiment.studies.redraw import build_finished, redraw, redraw_search
from jaxfl.experiment.tables.formats import print_sections
from jaxfl.experiment.tables.sections import Section, sections
from jaxfl.experiment.tables.wording import keys_of_names, parse_names
from jaxfl.simulation import processes


def report(command: Report, console: Console) -> None:
    """`jaxfl report`."""
    by_client = command.clients or command.client is not None
    check(
        not by_client or not (command.by or command.columns or command.names),
        "--clients has a table for each setting, with columns of its own: leave out --by, "
        "--columns and --names",
    )
    pictures = tuple(name for name in command.format if name not in TEXTS)
    style = Style(pictures, command.title, command.panels)
    if command.out and pictures and any(map(is_search, command.directories)):
        draw_searches(command, command.out, style, console)
        if not command.html:
            return None
    if command.html and is_of_search(command, command.html):
        check(not by_client, "a search has no clients to show: leave out --clients and --client")
        options = {"by": command.by, "against": command.against, "columns": command.columns}
        # They name runs, of which a search has none.
        options["names"] = dict.fromkeys(command.names, "")
        return write_html(command, command.html, console, options)
    texts = [name for name in command.format if name in TEXTS]
    check(
        command.out is not None or not pictures,
        f"--format {' '.join(pictures[:1])} is a picture: give --out DIR to write it",
    )
    runs = load_finished(list(command.directories), clients=command.against is not None)
    options = options_of_tables(command, runs)
    answers = []
    if by_client:
        processes.check_backend()
        answers = client_answers(runs, against=command.against, client=command.client)
    tables = [table for one in answers for table in client_sections(one)]
    tables = tables or sections(runs, **options)
    if command.conformal is not None:
        tables += coverage_tables(runs, command)
    ready = {}
    if command.out and pictures:
        processes.check_backend()
        ready = build_finished(runs)
    if command.out:
        files.create(command.out, files.COMPARISON_FILES, command.overwrite)
    if texts and not command.out:
        for name in texts:
            text = text_of_clients(answers, name) if answers else text_of(runs, name, **options)
            console.out(text, highlight=False, end="")
    else:
        print_sections(tables, console)
    if command.out:
        if answers:
            write_clients(answers, command.out, command.format)
        picture: dict[str, Any] = {"title": command.title, "panels": command.panels}
        words = (command.out, command.format, command.highlight)
        if ready:
            redraw(runs, ready, command.out, style, overwrite=command.overwrite)
        write_comparison(runs, *words, **options, **picture)
        console.print(f"written to {command.out}", markup=False, highlight=False)
    if command.html:
        shown = {"answers": answers, "client": command.client}
        write_html(command, command.html, console, options | shown)


def coverage_tables(runs: Runs, command: Report) -> list[Section]:
    """How often the sets of each client hold the truth, for each run."""
    processes.check_backend()
    alpha = command.conformal or 0.0
    tables = []
    for label, run in runs.items():
        if run.directory is None or run.config is None:
            raise InputError(f"{label} has no config.json that this version can read: leave it out")
        found = calibrate(FinishedRun(run.directory, run.config))
        tables.append(coverage_section(label, found, alpha))
    return tables


def options_of_tables(command: Report, runs: Runs) -> dict[str, Any]:
    """The options of `tables.sections.sections`.

    Raises:
      InputError: `--names` names what is not there.
    """
    return {
        "by": command.by,
        "against": command.against,
        "columns": command.columns,
        "names": parse_names(command.names, keys_of_names(runs)) if command.names else {},
    }


def draw_searches(command: Report, out: Path, style: Style, console: Console) -> None:
    """Draws the picture of a search again."""
    check(
        len(command.directories) == 1,
        "a search has a picture of its own: give its directory alone",
    )
    files.create(out, files.SWEEP_FILES, command.overwrite)
    redraw_search(command.directories[0], out, style)
    console.print(f"written to {out}", markup=False, highlight=False)


def is_of_search(command: Report, file: Path) -> bool:
    """Whether the page is of a search, which has no table of runs; the options are checked first.

    Raises:
      InputError: the page cannot be written, see `check_page`.
    """
    from jaxfl.experiment.html.page import check_page  # it loads matplotlib

    check_page(file, command.overwrite)
    processes.check_backend()
    return any(map(is_search, command.directories))


def write_html(command: Report, file: Path, console: Console, options: dict[str, Any]) -> None:
    """Writes the page and says where it is.

    Args:
      command: the command.
      file: to write.
      console: for what the command shows.
      options: of the tables, and the answers for clients.
    """
    from jaxfl.experiment.html.page import write_page

    replace = {"overwrite": command.overwrite, "highlight": command.highlight}
    write_page(command.directories, file, **replace, **options)
    console.print(f"written to {file}", markup=False, highlight=False)
