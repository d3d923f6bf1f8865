"""GFedMtl's servers with an integral term, beside the published mean with neighbours.

`python -m experiments.gfedmtl_integral [--out DIR] [--trials 10]` runs the ridge regressions of
figure 2 (`experiments.gfedmtl_fig2`) with `agreement="mean"` and `agreement="integral"`, and draws
the Test MSE by iteration (integral.png).
"""

import itertools
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from experiments import gfedmtl_fig2 as figure_2
from experiments.command import command
from jaxfl.algorithms import gfedmtl
from jaxfl.core.types import Algorithm, Participation
from jaxfl.data import Ridge
from jaxfl.experiment.pictures import drawing
from jaxfl.experiment.store import files

KAPPAS = (0.05, 0.2, 0.4)
TAUS = (0.0, 0.1, 0.5)
WHO = {"all clients": figure_2.EVERYBODY, "9 of 15 clients": figure_2.SOME}
SMOKE = {"trials": 1, "iterations": 2}


def ours(data: Ridge, tau: Array, kappa: Array | None = None) -> Algorithm:
    """GFedMtl; without kappa as published."""
    return gfedmtl(
        figure_2.TASK,
        tau=tau,
        rho=figure_2.RHO,
        lam=figure_2.LAM,
        servers=figure_2.SERVERS,
        clusters=figure_2.CLUSTERS,
        server_of=data.server,
        cluster_of=data.cluster,
        graph=data.adjacency,
        primal="exact",
        agreement="mean" if kappa is None else "integral",
        kappa=0.0 if kappa is None else kappa,
    )


def measure(data: Ridge, who: Participation, iterations: int) -> dict[float, dict[str, np.ndarray]]:
    """The curves [T] of each tau, by the name of the variant."""
    mean, _ = figure_2.run(ours, who, iterations, data, jnp.array(TAUS))
    pairs = list(itertools.product(TAUS, KAPPAS))
    tau, kappa = (jnp.array(column) for column in zip(*pairs, strict=True))
    integral, _ = figure_2.run(ours, who, iterations, data, tau, kappa)
    curves = {tau: {"mean": np.asarray(curve)} for tau, curve in zip(TAUS, mean, strict=True)}
    for (tau, kappa), curve in zip(pairs, integral, strict=True):
        curves[tau][f"kappa {kappa:g}"] = np.asarray(curve)
    return curves


def main(
    out: Path = Path("runs/gfedmtl_integral"), trials: int = 10, iterations: int = 100
) -> None:
    """Writes the pictures and numbers, and prints the table.

    Args:
      out: the directory to write.
      trials: draws of the data.
      iterations: rounds of each run.
    """
    files.make_directory(out)
    curves: dict[tuple[float, str, float], dict[str, np.ndarray]] = {}
    for sigma in figure_2.SIGMAS:
        data = figure_2.draw(trials, sigma)
        for who, participation in WHO.items():
            for tau, result in measure(data, participation, iterations).items():
                curves[sigma, who, tau] = result
    table = Table(
        title=f"Test MSE (dB) after {iterations} iterations, mean of {trials} trials",
        box=SIMPLE_HEAD,
    )
    names = list(next(iter(curves.values())))
    for name in ("sigma", "who", "tau", *names):
        table.add_column(name, justify="left" if name == "who" else "right")
    for (sigma, who, tau), result in curves.items():
        last = [f"{result[name][-1]:.1f}" for name in names]
        table.add_row(f"{sigma:g}", who, f"{tau:g}", *last)
    Console().print(table)
    records = [
        {"sigma": sigma, "clients": who, "tau": tau}
        | {name: float(curve[-1]) for name, curve in result.items()}
        for (sigma, who, tau), result in curves.items()
    ]
    files.write_json(
        out / "numbers.json", {"trials": trials, "iterations": iterations, "test_mse_db": records}
    )
    files.write_file(out / "integral.png", figure(curves))


def figure(curves: dict[tuple[float, str, float], dict[str, np.ndarray]]) -> bytes:
    """Test MSE by iteration for the first distance of the clusters and all clients."""
    sigma = figure_2.SIGMAS[0]
    who = next(iter(WHO))
    picture, panels = drawing.canvas(len(TAUS), width=4.4)
    for panel, tau in zip(panels, TAUS, strict=True):
        for label, curve in curves[sigma, who, tau].items():
            colour = "0.2" if label == "mean" else None
            line = "--" if label == "mean" else "-"
            panel.plot(range(1, len(curve) + 1), curve, label=label, color=colour, linestyle=line)
        panel.set(xlabel="iteration", title=f"tau {tau:g}", ylim=(-23, -9))
        panel.grid(alpha=0.25)
    panels[0].set_ylabel("Test MSE [dB]")
    panels[0].legend(frameon=False, fontsize=8)
    return drawing.render(picture)


if __name__ == "__main__":
    command(main)
