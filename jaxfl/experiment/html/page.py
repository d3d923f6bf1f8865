"""The report of finished runs, or of a search, as one HTML page: `jaxfl report --html`."""

import importlib.util
import shlex
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from matplotlib.colors import to_hex

from jaxfl.core.errors import InputError, check
from jaxfl.experiment.config import Config, load_config, to_json
from jaxfl.experiment.config.changes import changed_options
from jaxfl.experiment.html import document
from jaxfl.experiment.html.answers import answer_parts
from jaxfl.experiment.html.client_parts import client_parts
from jaxfl.experiment.pictures.drawing import line_styles
from jaxfl.experiment.reading.by_client import Answers
from jaxfl.experiment.store import files
from jaxfl.experiment.store.finished_runs import is_search, load_finished
from jaxfl.experiment.store.read_records import read_search
from jaxfl.experiment.store.records import Runs, TrialEntry
from jaxfl.experiment.tables.grouping import Group, comparable_groups, heading
from jaxfl.experiment.tables.heading import setting_line
from jaxfl.experiment.tables.pooling import pool_seeds
from jaxfl.experiment.tables.scores import alone_name, alone_text, measure_of, ranked
from jaxfl.experiment.tables.sections import Section, sections
from jaxfl.experiment.tables.tables import caption
from jaxfl.experiment.tables.wording import called, called_runs, titles_called
from jaxfl.simulation.metrics import metric_of


def check_page(file: Path, overwrite: bool) -> None:
    """Checks that a page may be written, before anything is read; creates nothing.

    Raises:
      InputError: the file exists, cannot be written, or plotly is not installed.
    """
    check(
        importlib.util.find_spec("plotly") is not None,
        "--html needs plotly, which is not installed: pip install 'jaxfl[report]'",
    )
    files.check_writable(file.parent, "--html")
    try:
        exists = file.exists()
    except OSError as error:
        raise InputError(
            f"{file} cannot be a file ({error.strerror}): give another one with --html"
        ) from error
    check(
        overwrite or not exists,
        f"{file} exists: choose another file with --html, or add --overwrite",
    )
    check(not file.is_dir(), f"{file} is a directory: give a file with --html")


def write_page(
    directories: Sequence[Path],
    file: Path,
    *,
    overwrite: bool = False,
    highlight: Collection[str] = (),
    by: str | None = None,
    against: str | None = None,
    columns: Sequence[str] = (),
    names: Mapping[str, str] | None = None,
    answers: Sequence[Answers] = (),
    client: str | None = None,
) -> None:
    """Writes the page of finished runs, or of one search.

    Args:
      directories: of runs or comparisons, or that of one search.
      file: to write.
      overwrite: replace the file.
      highlight: runs or methods that are in colour among many.
      by: as in `tables.sections.sections`.
      against: as in `tables.sections.sections`.
      columns: as in `tables.sections.sections`.
      names: as in `tables.sections.sections`.
      answers: of `reading.by_client.client_answers`, if the page shall have them.
      client: the only one in the answers, as the command line has it.

    Raises:
      InputError: see `check_page`, `load_finished` and `tables.sections.sections`; or several
        searches are given.
    """
    check_page(file, overwrite)
    from plotly.offline import get_plotlyjs

    if any(is_search(directory) for directory in directories):
        check(
            len(directories) == 1 and by is None and against is None and not (columns or names),
            "a search has a page of its own: give its directory alone, without --by, --against, "
            "--columns and --names",
        )
        title, setting, parts = _search(directories[0])
    else:
        runs = load_finished(list(directories), clients=against is not None)
        again = ["jaxfl", "report", *map(str, directories), "--html", str(file), "--overwrite"]
        for name, value in (("--by", by), ("--against", against), ("--client", client)):
            again += [] if value is None else [name, value]
        again += ["--clients"] if answers and client is None else []
        names = names or {}
        pairs = [f"{key}={text}" for key, text in names.items()]
        for name, words in (("--columns", columns), ("--names", pairs), ("--highlight", highlight)):
            again += [name, *words] if words else []
        tables = sections(runs, by=by, against=against, columns=columns, names=names)
        title, setting, parts = _runs(runs, tables, highlight, names)
        parts[1:1] = answer_parts(answers)
        parts.append(_repeat(runs, again))
    content = document.make_page(title, setting, parts, get_plotlyjs())
    files.make_directory(file.parent, "--html")
    files.write_file(file, content, "--html")


def _runs(
    runs: Runs, tables: Sequence[Section], highlight: Collection[str], names: Mapping[str, str]
) -> tuple[str, str, list[document.Part]]:
    """The title, the setting and the parts of a page of runs."""
    from jaxfl.experiment.html.curve_views import curve_views

    score = called(metric_of(measure_of(runs)).title, titles_called(names, runs))
    highlight = {*highlight, *(called(name, names) for name in highlight)}
    groups, pools = (  # the second ones as the tables have them
        [Group(one.setting, called_runs(one.runs, names)) for one in comparable_groups(each)]
        for each in (runs, pool_seeds(runs))
    )
    curves = [
        view | {"name": ", ".join(text for text in (view["name"], group.setting) if text)}
        for group in pools
        for view in curve_views(group.runs, highlight)
    ]
    each = ranked(called_runs(runs, names))
    title = next(iter(each)) if len(each) == 1 else f"Comparison of {len(each)} runs"
    setting = heading(groups[0]) if len(groups) == 1 else ""
    parts = [
        _tables(tables, pools, setting, score),
        document.Part("curves", "By round", document.panel("scores by round", curves, "curves of")),
        *client_parts(groups, highlight),
        _configuration({label: run.config for label, run in each.items()}),
        document.Part("made", "How it was made", document.facts(_provenance(each))),
    ]
    return title, setting, parts


def _tables(
    tables: Sequence[Section], groups: Sequence[Group], setting: str, score_title: str
) -> document.Part:
    """The tables of runs, each with what stands around it.

    Args:
      tables: of `tables.sections.sections`.
      groups: the runs, for the colours.
      setting: what stands at the top of the page, and is not repeated.
      score_title: of the column of the score by which runs are ranked.
    """
    colours = {}
    for group in groups:
        algorithms = {label: run.summary["algorithm"] for label, run in group.runs.items()}
        styles = line_styles(algorithms)
        colours |= {label: to_hex(style["color"]) for label, style in styles.items()}
    measure = measure_of(groups[0].runs)
    metric = metric_of(measure)
    direction = "descending" if metric.better == "higher" else "ascending"
    body = []
    for table in tables:
        titles, rows, best, _ = table.cells
        score = titles.index(score_title) + 1 if score_title in titles else None
        order = None if score is None or len(rows) == 1 else (score, direction)
        sentence = caption(table.meaning, titles)
        if table.heading not in ("", setting):
            body.append(document.paragraph(table.heading, "above"))
        cells = [[name, *row] for name, row in rows]
        body.append(document.table(["method", *titles], cells, colours, order, best))
        body.append(document.paragraph(f"{sentence[0].upper()}{sentence[1:]}.", "caption"))
        body += [
            document.paragraph(f"{line} (docs/tuning.md).", "warning") for line in table.warnings
        ]
    return document.Part("table", f"Test {metric.name}", "\n".join(body))


def _configuration(configs: dict[str, Config | None]) -> document.Part:
    """What differs from the defaults, and the whole configs."""
    by_label = {label: config for label, config in configs.items() if config is not None}
    changes = {label: changed_options(config) for label, config in by_label.items()}
    if all(label == config.algorithm for label, config in by_label.items()):
        for options in changes.values():
            del options["algorithm"]  # the labels say it
    sentence = "Options that are not the defaults of the program, or that the data set has chosen:"
    parts = [document.paragraph(sentence, "caption"), document.facts(changes)]
    for label in (label for label in configs if label not in by_label):
        parts.append(document.paragraph(f"{label}: no config.json that this version can read."))
    for label, config in by_label.items():
        title = "All options (config.json)" if len(by_label) == 1 else f"All options of {label}"
        parts.append(document.details(title, document.commands([to_json(config).rstrip()])))
    return document.Part("configuration", "Configuration", "\n".join(parts))


def _provenance(runs: Runs) -> dict[str, dict[str, str]]:
    """When and with what each run was made, by label."""
    columns = {}
    for label, run in runs.items():
        summary = run.summary
        one = {}
        if run.directory is not None:
            time = datetime.fromtimestamp((run.directory / "summary.json").stat().st_mtime)
            one["finished (summary.json)"] = f"{time:%Y-%m-%d %H:%M}"
        one |= summary.get("versions", {})
        one["devices"] = str(summary.get("devices", "unknown"))
        one["seconds"] = f"{summary['seconds']:.1f}, and {summary['compile_seconds']} to compile"
        if "reported" in summary and "lost" in summary:
            one["uploads that arrived"] = str(summary["reported"])
            one["uploads lost"] = str(summary["lost"])
        if diverged := summary.get("diverged"):
            names = {str(place): name for place, name in enumerate(summary.get("clients", []))}
            one["rounds without a finite update"] = ", ".join(
                f"{names.get(client, f'client {client}')}: {rounds}"
                for client, rounds in diverged.items()
            )
        columns[label] = one
    return columns


def _repeat(runs: Runs, again: list[str]) -> document.Part:
    lines = [
        shlex.join(
            [
                *("jaxfl", "run", "--config", str(run.directory / "config.json")),
                *(word for file in run.config.plugin for word in ("--plugin", file)),
            ]
        )
        for run in runs.values()
        if run.directory is not None and run.config is not None
    ]
    body = document.commands([*lines, shlex.join(again)])
    note = "The commands start in the folder in which this page was made."
    return document.Part("repeat", "To repeat it", body + document.paragraph(note, "caption"))


def _search(directory: Path) -> tuple[str, str, list[document.Part]]:
    """The title, the setting and the parts of the page of a search."""
    from jaxfl.experiment.html.curve_views import search_views

    search = read_search(directory / "sweep.json")
    trials = search["trials"]
    names = list(trials[0]["point"])
    test = search["best"]["test"]
    best = load_config(directory / "best.json")
    metrics, name = best.metric, alone_name(best.metric)
    rows = [[str(number), *_trial_cells(trial, metrics)] for number, trial in enumerate(trials, 1)]
    tests = ["test (not for choosing)"] if "test_not_for_choosing" in trials[0] else []
    titles = [f"validation {name}" if metrics else "validation", *tests]
    value = alone_text(metrics, test)
    sentence = "no test score" if test is None else f"Test {name} of the best trial: {value}."
    table = document.table(["trial", *names, *titles], rows, None, (0, "ascending"))
    figure = document.panel(f"validation {name} by value", search_views(trials, metrics), "by")
    command = shlex.join(["jaxfl", "run", "--config", str(directory / "best.json")])
    note = "Runs the best trial, from the folder in which this page was made."
    parts = [
        document.Part("trials", "Trials", table + document.paragraph(sentence)),
        document.Part("values", f"Validation {name} by value", figure),
        _configuration({"best.json": best}),
        document.Part(
            "run", "To run the best", document.commands([command]) + document.paragraph(note)
        ),
    ]
    return f"Search for {best.algorithm}", setting_line([best]), parts


def _trial_cells(trial: TrialEntry, metrics: Sequence[str]) -> list[str]:
    """The cells of a trial's row, without its number."""
    scores = [trial["val"]]
    if "test_not_for_choosing" in trial:
        scores.append(trial["test_not_for_choosing"])
    texts = [alone_text(metrics, score) for score in scores]
    return [*map(str, trial["point"].values()), *texts]
