"""Whether a stored result is still what the code gives: a fingerprint of a few steps is compared.

To run every cell again would take days. The fingerprint is the program of the cell on small random
data, for three rounds of three steps with a tenfold learning rate: the losses, and the scores by
validation and test, before and after training. It shows a change that moves these by more than the
tolerances; a smaller one, such as of a regulariser of strength .01, it does not show.
"""

import dataclasses
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from experiments.tables import standins
from jaxfl.experiment import Config, execute
from jaxfl.experiment.store.read_records import read_lines

# Rounding differs between machines and versions of the compiler.
TOLERANCE = 1e-3  # of losses, relative
# Of scores: a wrong prediction more, of the few that a stand-in has, is rounding.
SCORES = 0.02
Fingerprint = dict[str, list[float]]


def fingerprint(config: Config) -> Fingerprint:
    """Losses and mean scores of three short rounds of a cell on a stand-in of its data."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        standins.write(config.dataset, folder)
        short = standins.small(config, folder)
        if short.local_steps is not None:
            short = dataclasses.replace(short, local_steps=3)
        execute(dataclasses.replace(short, rounds=3, lr=10 * short.lr), folder / "run")
        lines = read_lines(folder / "run" / "metrics.jsonl")
        with np.load(folder / "run" / "clients.npz", allow_pickle=False) as arrays:
            scores = {k: arrays[k] for k in arrays if k.endswith(("_val", "_test"))}
    numbers = {"loss": [_short(line["loss"]) for line in lines]}
    for part, values in sorted(scores.items()):
        mask = ~np.isnan(values)
        sums = np.where(mask, values, 0.0).sum(axis=1)
        numbers[part] = [_short(x) for x in sums / np.maximum(mask.sum(axis=1), 1)]
    return numbers


def stale(config: Config, before: Fingerprint | None) -> bool:
    """Whether the code gives other numbers than when the fingerprint was taken, or none was."""
    if before is None:
        return True
    now = fingerprint(config)
    return now.keys() != before.keys() or not all(
        np.allclose(
            now[name],
            before[name],
            rtol=TOLERANCE if name == "loss" else 0.0,
            atol=0.0 if name == "loss" else SCORES,
        )
        for name in now
    )


def _short(value: float | None) -> float:
    """Five digits, ready for JSON; 1e30 for a loss that is not finite."""
    return 1e30 if value is None else float(f"{value:.5g}")
