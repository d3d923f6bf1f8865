"""The commands about finished runs."""

import functools
import math
import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from jaxfl import experiment
from jaxfl.cli.command_options import Predict, Report
from jaxfl.core import tree
from jaxfl.core.errors import check, warn
from jaxfl.data.arrays import read_npz
from jaxfl.data.table.prepare import weights_of_rows
from jaxfl.data.table.read import Sheet, formats, read_sheet, without
from jaxfl.data.table.windows import examples
from jaxfl.experiment.reading.by_client import client_answers
from jaxfl.experiment.reading.client_ids import id_or_name
from jaxfl.experiment.reading.client_tables import client_sections
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
from jaxfl.experiment.tables.formats import csv_text, print_sections
from jaxfl.experiment.tables.sections import sections
from jaxfl.experiment.tables.wording import keys_of_names, parse_names
from jaxfl.simulation import processes
from jaxfl.simulation.metrics import METRICS, Metric, default_metric, metric_of


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


def predict(command: Predict, console: Console) -> None:
    """`jaxfl predict`."""
    run = experiment.load(command.directory)
    check(
        command.out is None or command.overwrite or not os.path.exists(command.out),
        f"{command.out} exists: choose another --out, or add --overwrite",
    )
    warn_of_first(run, command)
    whom = 0 if command.client is None else id_or_name(command.client, run.names)
    client = run.client_id(whom)
    whose = {"which": command.which, "seed": command.seed, "fold": command.fold}
    ask = functools.partial(run.predict, client, **whose)
    if is_npz(command.input):
        new = examples_of_npz(command.input)
    else:
        (how,) = formats(
            [command.input],
            encoding=command.encoding,
            decimal=command.decimal,
            thousands=command.thousands,
        )
        new = examples_of_csv(run, read_sheet(command.input, command.columns, *how))
    check(command.proba or not command.calibrate, "--calibrate is given without --proba: give both")
    processes.check_backend()
    predictions = ask(new.x)
    check_targets(new, predictions, run, command.input)
    numbers = {"prediction": predictions}
    if predictions.ndim > 1:
        flat = predictions.reshape(len(predictions), -1)
        numbers = {f"prediction_{place}": column for place, column in enumerate(flat.T)}
    names = [new.name, *numbers]
    columns = [new.rows, *map(new.words, numbers.values())]
    if command.proba:
        chances = ask(new.x, proba=True, calibrate=command.calibrate)
        labels = new.classes or range(chances.shape[-1])
        places = [f"{place}_" for place in range(len(numbers))] if chances.ndim > 2 else [""]
        names += [f"p_{place}{name}" for place in places for name in labels]
        flat = chances.reshape(len(chances), -1)
        columns += [[f"{chance:.6g}" for chance in column] for column in flat.T.tolist()]
    if command.out is None:
        is_list = new.name == EXAMPLE and not command.proba and len(numbers) == 1
        text = "\n".join(map(str, columns[1])) if is_list else csv_text(names, columns).rstrip()
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    else:
        files.write_file(command.out, csv_text(names, columns))
        console.print(f"written to {command.out}", markup=False, highlight=False)
    if command.calibrate:
        console.print(f"temperature of the probabilities: {run.temperature(client, **whose):.4g}")
    if new.y is not None:
        outputs = run.scores(client, new.x, **whose)
        if command.calibrate:
            outputs = outputs / run.temperature(client, **whose)
        inputs = run.summary.get("inputs")
        default = default_metric(inputs["classes"] if inputs else 0)
        for name in run.config.metric or (default,):
            metric = metric_of(name, run.class_names)
            score = score_of(metric, outputs, predictions, new)
            console.print(f"{metric.title}: {score:.4f}", markup=False, highlight=False)


def warn_of_first(run: experiment.FinishedRun, command: Predict) -> None:
    """Says whose model predicts where the command line leaves it open."""
    first = []
    if command.client is None and run.config.clients != 1:
        name = f"{run.names[0]}, the first client" if run.names else "client 0"
        first.append(f"{name} (--client names another)")
    if command.fold is None and run.config.folds > 1:
        part = (1 - 1 / run.config.folds) * (1 - run.config.val)
        first.append(f"fold 0, trained on {part:.0%} of the examples (--fold)")
    if command.seed is None and run.config.seeds > 1:
        first.append(f"seed {run.config.seed} (--seed)")
    if first:
        warn(f"the model that predicts is that of {' and of '.join(first)}")


def check_targets(
    new: "Examples", predictions: np.ndarray, run: experiment.FinishedRun, file: Path
) -> None:
    """Raises an `InputError` unless the targets of new examples can be those of the run."""
    if new.y is None:
        return
    check(
        new.y.shape == predictions.shape and new.y.dtype.kind in "buif",
        f"y in {file} is not numbers of shape {predictions.shape}: give a target for each "
        "input, or leave it out",
    )
    inputs = run.summary.get("inputs")
    if classes := inputs["classes"] if inputs else 0:
        # A position without a label has -1.
        least = -1 if predictions.ndim > 1 else 0
        known = (new.y >= least) & (new.y < classes) & (new.y == np.floor(new.y))
        expected = f"labels from {least} to {classes - 1}"
    else:
        known, expected = np.isfinite(new.y), "finite numbers"
    check(
        bool(known.all()),
        f"y in {file} has {new.y[~known].ravel()[0] if not known.all() else ''}: expected "
        f"{expected}, or no y",
    )


def score_of(
    metric: Metric, outputs: np.ndarray, predictions: np.ndarray, new: "Examples"
) -> float:
    """The value of a metric on new examples, in the unit of their targets.

    Args:
      metric: of the run.
      outputs: of the model [B, ...].
      predictions: made of them [B, ...].
      new: the examples, with targets.
    """
    y, unit = np.asarray(new.y), new.unit
    weights = np.ones(len(y), np.float32) if new.weights is None else np.float32(new.weights)
    if metric is METRICS["accuracy"]:
        # Positions without a label, which are -1, do not count.
        labelled = y >= 0 if predictions.ndim > 1 else np.ones(y.shape, bool)
        each = weights.reshape(-1, *[1] * (y.ndim - 1)) * labelled
        return float(np.average(predictions == y, weights=each)) if each.any() else math.nan
    targets = y if unit == 1.0 else unit * y
    return float(metric.score(*map(jnp.asarray, (unit * outputs, targets, weights))))


EXAMPLE = "example"  # of an npz file, by its place
TABLES = (".csv", ".xlsx", ".xlsm", ".ods")  # never npz files, however they begin


class Examples(NamedTuple):
    """What is to be predicted."""

    x: Any  # an array, or a dict of arrays
    y: np.ndarray | None
    name: str  # of what names an example
    rows: list  # the names of the examples
    classes: tuple[str, ...] = ()  # names of the labels
    mean: float = 0.0  # of numbers as targets, in their own unit
    unit: float = 1.0
    weights: np.ndarray | None = None  # of the examples in scores [N]; None: all alike

    def words(self, predictions: np.ndarray) -> list:
        """Predictions as a reader knows them: names of labels, or numbers in their own unit."""
        if self.classes:
            return [self.classes[label] for label in predictions.tolist()]
        if (self.mean, self.unit) == (0.0, 1.0):
            return predictions.tolist()
        return [float(f"{value:.7g}") for value in self.mean + self.unit * predictions]


def is_npz(file: Path) -> bool:
    """Whether a file is an npz file, by its name or by how it begins: a workbook does so too."""
    try:
        with file.open("rb") as stream:
            is_zip = stream.read(4) == b"PK\x03\x04"
            return file.suffix == ".npz" or (is_zip and file.suffix not in TABLES)
    except OSError:
        return file.suffix == ".npz"


def examples_of_npz(file: Path) -> Examples:
    """The examples of an npz file, as the data set of a run has them."""
    arrays = read_npz(file, ("x",), ("y",), ("x",))
    x = arrays["x"]
    check(
        all(np.ndim(array) > 0 for array in jax.tree.leaves(x)),
        f"x in {file} is a single number: expected an input for each example, such as x[None]",
    )
    return Examples(x, arrays.get("y"), EXAMPLE, list(range(tree.rows(x))))


def examples_of_csv(run: experiment.FinishedRun, sheet: Sheet) -> Examples:
    """The rows of a CSV file, as `jaxfl prepare csv` made the data set of the run of such files.

    Raises:
      InputError: the data of the run are others, or the columns do not fit.
    """
    schema = run.schema
    x, y, rows = examples(schema, sheet)
    weights = None
    if y is not None and schema.weight in sheet.columns:
        weights = weights_of_rows(schema.weight, without(sheet, schema.missing))
    elif y is not None and schema.weight:
        warn(f"{sheet.file} lacks {schema.weight}, which weighs the rows: all rows count alike")
    target = schema.target
    words = sheet.columns.get(schema.id, [str(line) for line in sheet.lines])
    names = [words[row] for row in rows]
    column = schema.id if schema.id in sheet.columns else "line"
    return Examples(x, y, column, names, target.classes, target.mean, target.deviation, weights)


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
