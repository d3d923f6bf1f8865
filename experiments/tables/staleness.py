"""Whether a stored result is still what the code gives: a fingerprint of a few steps is compared.

A result whose code has since changed its numbers is stale. To run every cell again would take
days; the fingerprint is the same computation on small random data, for three rounds of three steps
with a tenfold learning rate: its losses depend on everything that decides about the cell's numbers
but the data.
"""

import dataclasses
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from experiments.tables import standins
from jaxfl.experiment import Config, execute
from jaxfl.experiment.store import files

# Rounding differs between machines and versions of the compiler.
TOLERANCE = 0.01


def fingerprint(config: Config) -> list[float]:
    """The losses of three short rounds of a cell's program on a stand-in of its data."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        standins.write(config.dataset, folder)
        short = standins.small(config, folder)
        if short.local_steps is not None:
            short = dataclasses.replace(short, local_steps=3)
        short = dataclasses.replace(short, rounds=3, lr=10 * short.lr, score_after="none")
        execute(short, folder / "run")
        lines = files.read_json_lines(folder / "run" / "metrics.jsonl")
    return [float(f"{line['loss']:.4g}") for line in lines if line["loss"] is not None]


def stale(config: Config, before: list[float]) -> bool:
    """Whether the code gives other numbers than when the fingerprint was taken."""
    now = fingerprint(config)
    return len(now) != len(before) or not np.allclose(now, before, rtol=TOLERANCE)
