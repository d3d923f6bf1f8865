"""Gossip on a ring of random quadratics, step by step beside the published runs of RelaySum.

`python -m experiments.gossip_quadratics [--out DIR]` counts the steps that gossip takes until it
stands still, with each learning rate that Vogels et al. found (RelaySum for Decentralized Deep
Learning on Heterogeneous Data, NeurIPS 2021, https://arxiv.org/abs/2110.04175, figure 2).

Worker i has |A_i x - b_i|^2 in ten unknowns. The singular values of A_i go from .5 to 1, and zeta2
is the mean of the squared gradients at the common optimum, which is ten away from the start. Their
program draws A and b by PyTorch; `normal` makes the same numbers.
"""

import tomllib
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Float
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import jaxfl
from experiments.command import command
from jaxfl.core.types import Dataset, Federation
from jaxfl.experiment.pictures import drawing
from jaxfl.experiment.store import files

PUBLISHED = Path(__file__).with_suffix(".toml")
DIM = 10
DISTANCE = 10.0  # of the optimum from the start
STEPS = 20_000
LOOKS = 1000  # at the error, at steps that are evenly spaced on a logarithmic axis
TOLERANCE = 1e-8  # gossip stands still if three errors are as near to their mean
SMOKE = {"workers": (4,), "seeds": 1}


class Quadratics(NamedTuple):
    """A_i and b_i of n workers, and their common optimum."""

    a: Float[np.ndarray, "n d d"]
    b: Float[np.ndarray, "n d"]
    optimum: Float[np.ndarray, "d"]


def normal(generator: np.random.MT19937, size: int) -> Float[np.ndarray, "s"]:
    """Normal numbers as PyTorch draws them on a CPU in float64, by Box and Muller.

    Args:
      generator: with the state of `torch.manual_seed`.
      size: how many, 16 or more, or an even number.
    """

    def uniform(count: int) -> np.ndarray:
        high, low = generator.random_raw(2 * count).reshape(-1, 2).astype(np.uint64).T
        return (((high << 32) | low) & np.uint64(2**53 - 1)) * 2.0**-53

    if size < 16:
        angle, radius = uniform(size).reshape(-1, 2).T
        lengths = np.sqrt(-2 * np.log1p(-radius))
        pairs = lengths * np.cos(2 * np.pi * angle), lengths * np.sin(2 * np.pi * angle)
        return np.stack(pairs, axis=1).ravel()

    def transformed(numbers: np.ndarray) -> np.ndarray:
        radius, angle = numbers.reshape(-1, 2, 8).swapaxes(0, 1)
        lengths = np.sqrt(-2 * np.log(1 - radius))
        pairs = lengths * np.cos(2 * np.pi * angle), lengths * np.sin(2 * np.pi * angle)
        return np.concatenate(pairs, axis=1).ravel()

    numbers = uniform(size)
    whole = size - size % 16
    result = np.concatenate([transformed(numbers[:whole]), numbers[whole:]])
    if whole < size:
        # The last sixteen are drawn anew.
        result[-16:] = transformed(uniform(16))
    return result


def draw(workers: int, zeta2: float, seed: int) -> Quadratics:
    """The problem of a seed.

    Args:
      workers: n.
      zeta2: the mean of the squared gradients at the optimum.
      seed: of the draws.
    """
    generator = np.random.MT19937()
    # The state that `torch.manual_seed` makes of the seed, which is NumPy's old one.
    generator.state = cast(Any, np.random.RandomState(seed).get_state(legacy=False))
    left, _, right = np.linalg.svd(normal(generator, workers * DIM**2).reshape(-1, DIM, DIM))
    # The first singular vectors get the smallest value.
    a = left @ (np.linspace(0.5, 1, DIM)[:, None] * right)
    all_a = a.reshape(-1, DIM)
    directions = a @ normal(generator, workers * DIM).reshape(workers, DIM, 1)

    def optimum_of(b: np.ndarray) -> np.ndarray:
        return np.linalg.solve(all_a.T @ all_a, all_a.T @ b)

    def centred(scale: float) -> np.ndarray:
        b = scale * directions.reshape(-1)
        return b - all_a @ optimum_of(b)

    def difference(b: np.ndarray) -> float:
        gradients = np.einsum("nij,ni->nj", a, -b.reshape(workers, DIM))
        return float(np.mean(np.sum(gradients**2, axis=1)))

    low, high, scale, b = 0.0, np.inf, 1.0, np.zeros(workers * DIM)
    while abs(difference(b) - zeta2) > 1e-5:
        b = centred(scale)
        if difference(b) < zeta2:
            low = max(low, scale)
        else:
            high = min(high, scale)
        scale = 2 * scale if np.isinf(high) else (low + high) / 2
    optimum = normal(generator, DIM)
    optimum *= DISTANCE / np.linalg.norm(optimum)
    b = b + all_a @ optimum
    return Quadratics(a, b.reshape(workers, DIM), optimum_of(b))


@jax.jit
def errors(problem: Quadratics, rate: Float[Array, ""]) -> Float[Array, "t"]:
    """f(mean of the models) - f(optimum) after each step of gossip.

    Args:
      problem: of n workers.
      rate: of the gradient A'(A x - b).
    """
    a, b = jnp.asarray(problem.a), jnp.asarray(problem.b)
    workers = len(a)
    data = Dataset(a, b, jnp.ones((workers, DIM), bool))
    federation = Federation(data, data, data)
    model = jaxfl.Model(lambda key: jnp.zeros(DIM), lambda x, rows: rows @ x)
    # The loss is a mean over the rows, whose gradient is 2 / DIM of the above.
    optimizer = optax.sgd(rate * DIM / 2)
    task = jaxfl.regression(model, np.zeros(DIM), batch_size=DIM, steps=1, optimizer=optimizer)
    algorithm = jaxfl.algorithms.gossip(task, graph="ring")
    rounds = jaxfl.make_rounds(algorithm, jaxfl.participation.full(workers))
    key = jax.random.key(0)

    def value(x: Float[Array, "d"]) -> Float[Array, ""]:
        return jnp.sum((a @ x - b) ** 2) / workers

    def step(state, number):
        state, _ = rounds(key, federation, state, number, 1)
        return state, value(state.clients.memory.mean(axis=0))

    _, values = lax.scan(step, algorithm.init(key, data), jnp.arange(STEPS))
    return values - value(jnp.asarray(problem.optimum))


def standstill(values: Float[np.ndarray, "t"]) -> int | None:
    """The first step, of those that are looked at, with three errors that are alike.

    Args:
      values: the errors after each step.
    """
    steps = np.unique(np.round(2 ** np.linspace(0, np.log2(STEPS), LOOKS)).astype(int))
    looked = values[steps - 1]
    last = np.stack([looked[:-2], looked[1:-1], looked[2:]])
    still = (np.abs(last - last.mean(axis=0)) < TOLERANCE).all(axis=0)
    return int(steps[2 + np.argmax(still)]) if still.any() else None


def main(
    out: Path = Path("runs/gossip_quadratics"),
    workers: tuple[int, ...] = (),
    seeds: int = 7,
) -> None:
    """Writes the steps of each run and the picture, prints a line for each number of workers.

    Args:
      out: directory to write.
      workers: which numbers of workers; all that are published if not given.
      seeds: the first so many.
    """
    files.make_directory(out)
    published = tomllib.loads(PUBLISHED.read_text())
    table = Table(
        "zeta2", "workers", "seeds", "mean steps", "published", "the same", box=SIMPLE_HEAD
    )
    rows = []
    for zeta2, by_workers in published.items():
        for name, cells in by_workers.items():
            if workers and int(name) not in workers:
                continue
            found = [
                measure(int(name), float(zeta2), seed, rate)
                for seed, (_, rate) in enumerate(cells[:seeds])
            ]
            expected = [steps for steps, _ in cells[:seeds]]
            means = np.mean(np.array(found, float)), np.mean(expected)
            same = sum(ours == theirs for ours, theirs in zip(found, expected, strict=True))
            table.add_row(zeta2, name, str(len(found)), *map("{:.1f}".format, means), str(same))
            rows.append(
                {"zeta2": float(zeta2), "workers": int(name), "steps": found, "published": expected}
            )
    files.write_json(out / "steps.json", rows)
    files.write_file(out / "steps.png", drawing.render(picture(rows)))
    Console().print(table)


def measure(workers: int, zeta2: float, seed: int, rate: float) -> int | None:
    """The steps of one run, in float64; None if it moves to the end."""
    with jax.enable_x64(True):
        problem = draw(workers, zeta2, seed)
        return standstill(np.asarray(errors(problem, jnp.asarray(rate))))


def picture(rows: list[dict[str, Any]]) -> Figure:
    """The mean steps by the number of workers, ours as lines and those published as crosses."""
    figure, (panel,) = drawing.canvas(1, width=4.5, height=3.2)
    for place, zeta2 in enumerate(sorted({row["zeta2"] for row in rows})):
        of_level = [row for row in rows if row["zeta2"] == zeta2]
        counts = [row["workers"] for row in of_level]
        means = {
            name: [np.mean(np.array(row[name], float)) for row in of_level]
            for name in ("steps", "published")
        }
        style = {"color": drawing.COLOURS[place], "linestyle": ("-", "--")[place % 2]}
        panel.plot(counts, means["steps"], **style, label=f"zeta2 {zeta2:g}")
        panel.plot(counts, means["published"], "kx", label="published" if place == 0 else None)
    panel.set(xlabel="workers", ylabel="steps until gossip stands still")
    panel.legend()
    return figure


if __name__ == "__main__":
    command(main)
