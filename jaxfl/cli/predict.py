"""`jaxfl predict`: new examples in the form of the run's data, their predictions and scores."""

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
from jaxfl.cli.command_options import Predict
from jaxfl.core import tree
from jaxfl.core.errors import check, warn
from jaxfl.core.text import composed
from jaxfl.data.arrays import read_npz
from jaxfl.data.image_files import SUFFIXES, image_files, read_images
from jaxfl.data.table.read import Sheet, formats, read_sheet, without
from jaxfl.data.table.schema import weights_of_rows
from jaxfl.data.table.windows import examples
from jaxfl.data.targets import check_pairs
from jaxfl.experiment.reading.client_ids import id_or_name
from jaxfl.experiment.reading.conformal import calibrate, is_survival
from jaxfl.experiment.store import files
from jaxfl.experiment.tables.formats import csv_text
from jaxfl.simulation import processes
from jaxfl.simulation.metrics import METRICS, Metric, default_metric, metric_of


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
    if command.input.is_dir() or command.input.suffix.lower() in SUFFIXES:
        new = examples_of_images(run, command.input)
    elif is_npz(command.input):
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
    survival = bool((run.summary.get("inputs") or {}).get("survival"))
    check(
        survival or not command.times,
        f"--times asks for curves, and the targets of {command.directory} are no times to an "
        "event: leave it out",
    )
    numbers = {"risk" if survival else "prediction": predictions}
    if predictions.ndim > 1:
        flat = predictions.reshape(len(predictions), -1)
        numbers = {f"prediction_{place}": column for place, column in enumerate(flat.T)}
    names = [new.name, *numbers]
    columns = [new.rows, *map(new.words, numbers.values())]
    if command.conformal is not None:
        add_sets(names, columns, command, run, client, new)
    if command.times:
        curves = run.survival(client, new.x, command.times, **whose)
        names += [f"free_{time:g}" for time in command.times]
        columns += [[f"{chance:.6g}" for chance in column] for column in curves.T.tolist()]
    if command.proba:
        chances = ask(new.x, proba=True, calibrate=command.calibrate)
        labels = new.classes or range(chances.shape[-1])
        places = [f"{place}_" for place in range(len(numbers))] if chances.ndim > 2 else [""]
        names += [f"p_{place}{name}" for place in places for name in labels]
        flat = chances.reshape(len(chances), -1)
        columns += [[f"{chance:.6g}" for chance in column] for column in flat.T.tolist()]
    if command.out is None:
        is_list = new.name == EXAMPLE and len(columns) == 2
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
        default = default_metric(inputs["classes"] if inputs else 0, survival)
        for name in run.config.metric or (default,):
            metric = metric_of(name, run.class_names, run.ends)
            text = score_text(metric, outputs, predictions, new)
            console.print(text, markup=False, highlight=False, soft_wrap=True)


def add_sets(
    names: list,
    columns: list,
    command: Predict,
    run: experiment.FinishedRun,
    client: int,
    new: "Examples",
) -> None:
    """Adds the set of each example: its labels, or the two ends of the interval.

    Raises:
      InputError: the model is not the last one of the first seed, whose validation examples
        calibrate, or see `conformal.calibrate`.
    """
    check(
        command.which == "last" and not command.seed and not command.fold,
        "--conformal is calibrated by the last models of the first seed and fold: leave out "
        "--which, --seed and --fold",
    )
    alpha = command.conformal or 0.0
    found = calibrate(run)
    limit, count = found.threshold(client, command.calibration, alpha)
    if math.isinf(limit):
        warn(
            f"{count} validation examples are too few for sets that hold the truth for "
            f"{1 - alpha:.0%}, so that they hold everything: give --calibration all or graph, or a "
            "larger --conformal"
        )
    sets = found.sets(client, new.x, command.calibration, alpha)
    if found.classes:
        labels = new.classes or tuple(map(str, range(found.classes)))
        names.append("set")
        columns.append([" ".join(labels[k] for k in np.flatnonzero(one)) for one in sets])
        return
    ends = {"low": sets[:, 0], "high": sets[:, 1]}
    if is_survival(run):
        ends = {"free_until": sets[:, 0]}
    names += ends
    columns += map(new.words, ends.values())


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
    inputs = run.summary.get("inputs")
    if inputs and inputs.get("survival"):
        return check_pairs("test", new.y, str(file))
    check(
        new.y.shape == predictions.shape and new.y.dtype.kind in "buif",
        f"y in {file} is not numbers of shape {predictions.shape}: give a target for each "
        "input, or leave it out",
    )
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


def score_text(
    metric: Metric, outputs: np.ndarray, predictions: np.ndarray, new: "Examples"
) -> str:
    """The value of a metric on new examples, in the unit of their targets and as tables have it.

    Arguments are those of `score_of`.
    """
    own = score_of(metric, outputs, predictions, new, new.unit)
    scaled = score_of(metric, outputs, predictions, new, 1.0)
    text = f"{metric.title}: {own:.4f}"
    if f"{own:.4g}" == f"{scaled:.4g}":
        return text
    return f"{text} in the unit of {new.target} ({scaled:.4f} as tables have it, scaled)"


def score_of(
    metric: Metric, outputs: np.ndarray, predictions: np.ndarray, new: "Examples", unit: float
) -> float:
    """The value of a metric on new examples.

    Args:
      metric: of the run.
      outputs: of the model [B, ...].
      predictions: made of them [B, ...].
      new: the examples, with targets.
      unit: of the value, as a part of a number that models see.
    """
    y = np.asarray(new.y)
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
    target: str = ""  # the name of what is predicted, if it has one

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
    words = (target.classes, target.mean, target.deviation)
    return Examples(x, y, column, names, *words, weights, target.name)


def examples_of_images(run: experiment.FinishedRun, path: Path) -> Examples:
    """The images of a folder, or one, as `jaxfl prepare images` made the data set of the run.

    Images in folders that are all called as classes are of these.

    Raises:
      InputError: the data of the run are others, or a file is no image of this kind.
    """
    inputs = run.summary.get("inputs")
    shape = inputs["shape"] if inputs else []
    check(
        inputs is not None
        and inputs["dtype"] == "uint8"
        and len(shape) == 3
        and shape[0] == shape[1]
        and shape[2] in (1, 3),
        f"the data of {run.directory} are no square images of bytes, so that the run does not know "
        f"what the images of {path} become: give an npz file with x",
    )
    found = image_files(path) if path.is_dir() else [path]
    size, _, channels = shape
    images = read_images(found, size)
    check(
        images.shape[-1] <= channels,
        f"images of {path} have colours, and those of the run are grey: save them in grey",
    )
    images = np.broadcast_to(images, (*images.shape[:-1], channels))
    names = [file.relative_to(path).as_posix() if path.is_dir() else file.name for file in found]
    labels = {word: label for label, word in enumerate(run.class_names)}
    shown = [composed(file.parent.name) for file in found]
    y = None
    if path.is_dir() and all(word in labels for word in shown):
        y = np.array([labels[word] for word in shown], np.int32)
    return Examples(images, y, "file", names, tuple(run.class_names))
