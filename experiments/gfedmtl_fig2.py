"""Figure 2 of GFedMtl: ridge regressions of 150 clients in 3 clusters over a graph of 10 servers.

`python -m experiments.gfedmtl_fig2 [--out DIR] [--trials 10]` draws

- fig2.png: Test MSE by iteration (a), with 9 of a server's 15 clients in each iteration (b), and
  against tau (c);
- learned.png: learned tau beside the sweep, for clusters that are close and clusters that are far
  apart;
- sigma.png: the sweep beside one model for all clusters, which is not always the worst choice: it
  depends on the distance between clusters.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.axes import Axes
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import jaxfl
from experiments.command import command
from jaxfl.algorithms import gfed, gfedmtl
from jaxfl.core import tree
from jaxfl.core.types import Algorithm, Cohort, Participation
from jaxfl.data import Ridge, mse_db, ridge
from jaxfl.experiment.pictures import drawing
from jaxfl.experiment.store import files
from jaxfl.simulation import participation

SERVERS = 10
CLIENTS = 15  # of each server
SCHEDULED = 9  # of them in an iteration of panel (b)
CLUSTERS = 3
DIM = 60
RHO = 3.0  # not in the paper
LAM = 0.1  # not in the paper
SIGMAS = (0.1, 0.5)  # the paper's clusters, and clusters five times as far apart
SMOKE = {"trials": 1, "iterations": 2, "points": 2}
TASK = jaxfl.regression(
    jaxfl.models.linear(bias=False),
    jnp.zeros(DIM),
    batch_size=9,
    steps=5,
    optimizer=optax.sgd(0.005),
)
EVERYBODY = participation.full(SERVERS * CLIENTS)
SOME = participation.stratified(np.repeat(np.arange(SERVERS), CLIENTS), SCHEDULED)
VARIANTS = {  # tau, and whether servers have edges
    "tau 0": (0.0, 1.0),
    "tau .1": (0.1, 1.0),
    "tau .5": (0.5, 1.0),
    "tau .5, no edges": (0.5, 0.0),
    "tau 0, no edges": (0.0, 0.0),
}
COLOURS = dict(zip(("GFed", *VARIANTS), drawing.COLOURS, strict=False)) | {
    "GFed, gradient form": "0.6",
    "one learned tau": "deeppink",
    "learned tau of each pair": "darkcyan",
}


class Measurement(NamedTuple):
    """Test MSE in dB by iteration, mean over the trials."""

    full: dict[str, np.ndarray]  # label -> [T], all clients in every iteration
    scheduled: dict[str, np.ndarray]  # label -> [T], 9 of a server's 15 clients
    swept: np.ndarray  # [V] fixed tau
    sweep: np.ndarray  # [V, T]
    taus: dict[str, np.ndarray]  # label -> [T], tau where it is learned


def ours(data: Ridge, tau, edges=1.0, *, rho: float = RHO) -> Algorithm:
    """GFedMtl with the servers and clusters of the data."""
    places = {
        "servers": SERVERS,
        "clusters": CLUSTERS,
        "server_of": data.server,
        "cluster_of": data.cluster,
    }
    return gfedmtl(
        TASK, tau=tau, rho=rho, lam=LAM, graph=edges * data.adjacency, primal="exact", **places
    )


LEARNERS = {
    "one learned tau": partial(ours, tau="learned"),
    "learned tau of each pair": partial(ours, tau="learned_pairs"),
}


def one_model(data: Ridge, *, rho: float = RHO) -> Algorithm:
    """GFed as GFedMtl with one cluster."""
    places = {"servers": SERVERS, "server_of": data.server, "graph": data.adjacency}
    return gfed(TASK, form="admm", rho=rho, lam=LAM, primal="exact", **places)


def one_model_by_gradients(data: Ridge) -> Algorithm:
    """GFed as published."""
    return gfed(TASK, servers=SERVERS, server_of=data.server, graph=data.adjacency)


@partial(jax.jit, static_argnames=("factory", "who", "iterations"))
def run(
    factory: Callable, who: Participation, iterations: int, data: Ridge, *variants: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Test MSE in dB and tau (NaN if it is not learned) by iteration, mean over trials.

    It is one program, with trials and variants side by side and a scan over iterations.

    Args:
      factory: (data of a trial, one value of each of the variants) -> algorithm.
      who: which clients take part.
      iterations: T.
      data: trials, stacked.
      variants: arrays [V].

    Returns:
      Two arrays [T], or [V, T] with variants.
    """

    def trial(key: jax.Array, data: Ridge, *variant: jax.Array):
        algorithm = factory(data, *variant)
        rounds = jaxfl.make_rounds(algorithm, who)
        ids = jnp.arange(SERVERS * CLIENTS)
        everybody = Cohort(ids, data.federation.train, data.federation.val)

        def step(state, number):
            state, (info, _) = rounds(key, data.federation, state, number, 1)
            models = tree.ravel(algorithm.models(state, everybody))
            return state, (mse_db(models, data), info.metrics.get("tau", jnp.array([jnp.nan]))[0])

        return jax.lax.scan(
            step, algorithm.init(key, data.federation.train), jnp.arange(iterations)
        )[1]

    keys = jax.vmap(jax.random.key)(jnp.arange(data.server.shape[0]))
    many = jax.vmap(trial, (0, 0, *[None] * len(variants)))
    if variants:
        many = jax.vmap(many, (None, None, *[0] * len(variants)))
    return jax.tree.map(lambda x: x.mean(axis=-2), many(keys, data, *variants))


def draw(trials: int, sigma: float) -> Ridge:
    """The federations of all trials, stacked."""
    return jax.tree.map(
        lambda *leaves: jnp.stack(leaves), *[ridge(seed, sigma=sigma) for seed in range(trials)]
    )


def measure(data: Ridge, iterations: int, grid: np.ndarray) -> Measurement:
    """All curves of stacked trials."""
    tau, edges = (
        jnp.array(column)
        for column in zip(*VARIANTS.values(), *((t, 1.0) for t in grid), strict=True)
    )
    few = len(VARIANTS)
    every, _ = run(ours, EVERYBODY, iterations, data, tau, edges)
    full = {"GFed": run(one_model, EVERYBODY, iterations, data)[0]}
    full |= dict(zip(VARIANTS, every[:few], strict=True))
    full["GFed, gradient form"] = run(one_model_by_gradients, EVERYBODY, iterations, data)[0]
    some, _ = run(ours, SOME, iterations, data, tau[:few], edges[:few])
    scheduled = {"GFed": run(one_model, SOME, iterations, data)[0]}
    scheduled |= dict(zip(VARIANTS, some, strict=True))
    taus = {}
    for label, factory in LEARNERS.items():
        full[label], taus[label] = run(factory, EVERYBODY, iterations, data)
    full, scheduled, taus = jax.tree.map(np.asarray, (full, scheduled, taus))
    return Measurement(full, scheduled, grid, np.asarray(every[few:]), taus)


def other_penalty(data: Ridge, iterations: int, rho: float) -> dict[str, dict[str, float]]:
    """Test MSE at the end for another rho, all clients and scheduled."""
    tau, edges = (jnp.array(column) for column in zip(*VARIANTS.values(), strict=True))
    curves = {}
    for name, who in (("full", EVERYBODY), ("scheduled", SOME)):
        mse = [
            run(partial(one_model, rho=rho), who, iterations, data)[0],
            *run(partial(ours, rho=rho), who, iterations, data, tau, edges)[0],
        ]
        curves[name] = {
            label: float(curve[-1]) for label, curve in zip(("GFed", *VARIANTS), mse, strict=True)
        }
    return curves


def draw_curves(panel: Axes, curves: dict[str, np.ndarray], title: str) -> None:
    """Test MSE by iteration."""
    for label, curve in curves.items():
        colour = COLOURS.get(label, "0.2")
        style = "-" if label in COLOURS else "--"
        panel.plot(range(1, len(curve) + 1), curve, label=label, color=colour, linestyle=style)
    panel.set(xlabel="iteration", ylabel="Test MSE [dB]", title=title)
    panel.grid(alpha=0.25)


def draw_sweep(panel: Axes, result: Measurement, title: str, levels: tuple[str, ...] = ()) -> None:
    """Test MSE at the end against tau, with learned tau at its last value."""
    grid = result.swept
    last = result.sweep[:, -1]
    panel.plot(grid, last, color="0.2", marker=".", markersize=4, label="fixed tau")
    best = last.argmin()
    panel.plot(grid[best], last[best], "o", color="0.2", fillstyle="none", markersize=10)
    panel.annotate(
        f"tau {grid[best]:.2g}",
        (grid[best], last[best]),
        (0, -16),
        textcoords="offset points",
        ha="center",
    )
    for label, taus in result.taus.items():
        panel.plot(
            taus[-1], result.full[label][-1], "*", color=COLOURS[label], markersize=13, label=label
        )
    for label in levels:
        panel.axhline(result.full[label][-1], color=COLOURS[label], linestyle="--", label=label)
    panel.set_xscale("symlog", linthresh=1e-3, linscale=0.5)
    panel.set_xlim(-2e-4, 6)
    iterations = result.sweep.shape[1]
    panel.set(xlabel="tau", ylabel=f"Test MSE after {iterations} iterations [dB]", title=title)
    panel.set_ylim(
        min(last.min(), *(result.full[label][-1] for label in (*result.taus, *levels))) - 1.5,
        last[0] + 4,
    )
    panel.grid(alpha=0.25)


def figure_2(result: Measurement) -> bytes:
    """The paper's three panels."""
    figure, (left, middle, right) = drawing.canvas(3, height=4.6)
    draw_curves(
        left, {k: v for k, v in result.full.items() if k not in result.taus}, "(a) all clients"
    )
    figure.legend(
        *left.get_legend_handles_labels(), loc="outside lower center", ncols=7, frameon=False
    )
    draw_curves(middle, result.scheduled, f"(b) {SCHEDULED} of a server's {CLIENTS} clients")
    middle.set_ylim(left.get_ylim())
    draw_sweep(right, result, "(c) strength of learning between clusters")
    right.legend(frameon=False, fontsize=8)
    return drawing.render(figure)


def figure_learned(results: dict[float, Measurement]) -> bytes:
    """Learned tau by iteration, and its MSE beside fixed tau, for each distance of the clusters."""
    figure, panels = drawing.canvas(2 * len(results), width=4.4)
    for (sigma, one), value, error in zip(results.items(), panels[::2], panels[1::2], strict=True):
        best = one.sweep[:, -1].argmin()
        for label, taus in one.taus.items():
            value.plot(range(1, len(taus) + 1), taus, color=COLOURS[label], label=label)
        value.axhline(one.swept[best], color="0.2", linestyle="--", label="best fixed tau")
        value.set(xlabel="iteration", ylabel="tau (mean over pairs)", yscale="log", ylim=(2e-3, 2))
        value.set_title(f"clusters (1 + U(-{sigma}, {sigma})) w")
        value.grid(alpha=0.25)
        curves = {label: one.full[label] for label in ("tau 0", "tau .5", *one.taus)}
        draw_curves(error, curves | {"best fixed tau": one.sweep[best]}, "")
        error.set_ylim(min(curve.min() for curve in curves.values()) - 0.5, curves["tau 0"][-1] + 6)
        value.legend(
            frameon=False,
            fontsize=8,
            loc="lower left" if best > len(one.swept) / 2 else "upper right",
        )
        error.legend(frameon=False, fontsize=8)
    return drawing.render(figure)


def figure_sigma(results: dict[float, Measurement]) -> bytes:
    """The sweep beside one model for all clusters, for each distance of the clusters."""
    figure, panels = drawing.canvas(len(results))
    for panel, (sigma, one) in zip(panels, results.items(), strict=True):
        draw_sweep(panel, one, f"clusters (1 + U(-{sigma}, {sigma})) w", ("GFed",))
        panel.legend(frameon=False, fontsize=8)
    return drawing.render(figure)


def reached(curve: np.ndarray, level: float = -10.0) -> int | None:
    """The first iteration at or below a Test MSE in dB."""
    return int(np.argmax(curve <= level)) + 1 if (curve <= level).any() else None


def numbers(result: Measurement) -> dict:
    """The numbers for one distance of the clusters, for `numbers.json`."""
    last = result.sweep[:, -1]
    return {
        "test_mse_db": {label: float(curve[-1]) for label, curve in result.full.items()},
        "test_mse_db_scheduled": {
            label: float(curve[-1]) for label, curve in result.scheduled.items()
        },
        "iterations_to_minus_10_db": {
            label: reached(curve) for label, curve in result.full.items()
        },
        "sweep": {"tau": result.swept.tolist(), "test_mse_db": last.tolist()},
        "best_tau": {"tau": float(result.swept[last.argmin()]), "test_mse_db": float(last.min())},
        "learned_tau": {label: float(taus[-1]) for label, taus in result.taus.items()},
    }


def table(results: dict) -> Table:
    """The numbers for the terminal."""
    first, second = (results[f"sigma {sigma}"] for sigma in SIGMAS)
    title = (
        f"Test MSE (dB) after {results['iterations']} iterations, "
        f"mean of {results['trials']} trials"
    )
    grid = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in (
        "",
        *(f"sigma {sigma}" for sigma in SIGMAS),
        "iterations to -10",
        "9 of 15",
        "rho 1",
        "rho 1, 9 of 15",
    ):
        grid.add_column(name, justify="right" if name else "left", no_wrap=not name)
    columns = [first["test_mse_db"], second["test_mse_db"], first["iterations_to_minus_10_db"]]
    columns += [first["test_mse_db_scheduled"], *results["sigma 0.1, rho 1"].values()]
    for label in columns[0]:
        cells = [column.get(label) for column in columns]
        grid.add_row(
            label,
            *("" if c is None else f"{c:.1f}" if isinstance(c, float) else str(c) for c in cells),
        )
    best = [one["best_tau"] for one in (first, second)]
    grid.add_row(
        "best fixed (tau)", *(f"{one['test_mse_db']:.1f} ({one['tau']:.2g})" for one in best)
    )
    return grid


def main(
    out: Path = Path("runs/gfedmtl_fig2"), trials: int = 10, iterations: int = 100, points: int = 50
) -> None:
    """Runs all methods, draws the pictures, prints the table.

    Args:
      out: directory to write.
      trials: independent federations, run side by side.
      iterations: of each run.
      points: values of tau in the sweep, from 0 to 4.
    """
    began = time.perf_counter()
    console = Console()
    files.make_directory(out)
    grid = np.concatenate([[0.0], np.geomspace(1e-3, 4.0, points - 1)])
    data = {sigma: draw(trials, sigma) for sigma in SIGMAS}
    measurements = {sigma: measure(batch, iterations, grid) for sigma, batch in data.items()}
    files.write_file(out / "fig2.png", figure_2(measurements[SIGMAS[0]]))
    files.write_file(out / "learned.png", figure_learned(measurements))
    files.write_file(out / "sigma.png", figure_sigma(measurements))
    results = {"trials": trials, "iterations": iterations, "rho": RHO}
    results |= {f"sigma {sigma}": numbers(one) for sigma, one in measurements.items()}
    results["sigma 0.1, rho 1"] = other_penalty(data[SIGMAS[0]], iterations, 1.0)
    files.write_json(out / "numbers.json", results)
    console.print(table(results))
    console.print(f"written to {out} in {time.perf_counter() - began:.0f} s", highlight=False)


if __name__ == "__main__":
    command(main)
