"""The commands about finished runs."""

import os
from pathlib import Path

import numpy as np
from rich.console import Console

from jaxfl import experiment
from jaxfl.cli.options import Predict, Report
from jaxfl.core.errors import check
from jaxfl.data.arrays import read_npz
from jaxfl.experiment.store import files
from jaxfl.experiment.store.finished import load_finished
from jaxfl.experiment.studies.comparison import TEXTS, text_of, write_comparison
from jaxfl.experiment.tables.formats import print_sections
from jaxfl.experiment.tables.sections import sections
from jaxfl.simulation import mesh


def report(command: Report, console: Console) -> None:
    """`jaxfl report`."""
    if command.html and is_of_search(command, command.html):
        return write_html(command, command.html, console)
    texts = [name for name in command.format if name in TEXTS]
    pictures = [name for name in command.format if name not in TEXTS]
    check(
        command.out is not None or not pictures,
        f"--format {' '.join(pictures[:1])} is a picture: give --out DIR to write it",
    )
    runs = load_finished(list(command.directories), clients=command.against is not None)
    options = {"by": command.by, "against": command.against}
    tables = sections(runs, **options)
    if command.out:
        files.create(command.out, files.COMPARISON_FILES, command.overwrite)
    if texts and not command.out:
        for name in texts:
            console.out(text_of(runs, name, **options), highlight=False, end="")
    else:
        print_sections(tables, console)
    if command.out:
        write_comparison(runs, command.out, command.format, command.highlight, **options)
        console.print(f"written to {command.out}", markup=False, highlight=False)
    if command.html:
        write_html(command, command.html, console)


def predict(command: Predict, console: Console) -> None:
    """`jaxfl predict`."""
    run = experiment.load(command.directory)
    check(
        command.out is None or command.overwrite or not os.path.exists(command.out),
        f"{command.out} exists: choose another --out, or add --overwrite",
    )
    arrays = read_npz(command.input, ("x",), ("y",))
    mesh.check_backend()
    predictions = run.predict(command.client, arrays["x"], which=command.which, seed=command.seed)
    check(
        "y" not in arrays
        or (arrays["y"].shape == predictions.shape and arrays["y"].dtype.kind in "buif"),
        f"y in {command.input} is not numbers of shape {predictions.shape}: give a target for each "
        "input, or leave it out",
    )
    if command.out is None:
        for value in predictions.tolist():
            console.print(value, highlight=False)
    else:
        rows = [f"{i},{value}\n" for i, value in enumerate(predictions.tolist())]
        files.write_file(command.out, "".join(["example,prediction\n", *rows]))
        console.print(f"written to {command.out}", markup=False, highlight=False)
    if "y" in arrays:
        inputs = run.summary.get("inputs")
        if inputs is not None and inputs["classes"]:
            console.print(f"accuracy: {np.mean(predictions == arrays['y']):.4f}")
        else:
            error = np.sqrt(np.mean(np.square(predictions - arrays["y"])))
            console.print(f"root mean squared error: {error:.4f}")


def is_of_search(command: Report, file: Path) -> bool:
    """Whether the page is of a search, which has no table of runs; the options are checked first.

    Raises:
      InputError: the page cannot be written, see `check_page`.
    """
    from jaxfl.experiment.html.page import check_page, is_search  # it loads matplotlib

    check_page(file, command.overwrite)
    mesh.check_backend()
    return any(map(is_search, command.directories))


def write_html(command: Report, file: Path, console: Console) -> None:
    """Writes the page and says where it is."""
    from jaxfl.experiment.html.page import write_page

    options = {"highlight": command.highlight, "by": command.by, "against": command.against}
    write_page(command.directories, file, overwrite=command.overwrite, **options)
    console.print(f"written to {file}", markup=False, highlight=False)
