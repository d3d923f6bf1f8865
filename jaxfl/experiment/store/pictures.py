"""Writes pictures in the formats that a run asks for."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from jaxfl.experiment.config.fields import PICTURE_FORMATS
from jaxfl.experiment.show.drawing import render
from jaxfl.experiment.store import files


def write_picture(directory: Path, name: str, figure: Figure, formats: Sequence[str]) -> list[Path]:
    """Writes a figure as `directory/name.FORMAT`, as PNG if no format of still pictures is named.

    Returns:
      The files.
    """
    written = []
    for format in still_formats(formats):
        file = directory / f"{name}.{format}"
        files.write_file(file, render(figure, format))
        written.append(file)
    return written


def still_formats(formats: Sequence[str]) -> list[str]:
    """The formats of pictures that do not move; PNG if there are none."""
    return [format for format in PICTURE_FORMATS if format in formats] or ["png"]
