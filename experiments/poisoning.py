"""Poisoned models (pFedGraph, table 3 and figure 3): accuracy as more and more clients attack.

`python -m experiments.poisoning [--dataset fashion_mnist --data-dir DIR] [--out DIR]`: ten clients
with IID data. Every method is one program, whose arguments are the attack and the malicious
clients.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from rich.console import Console
from rich.table import Table

from experiments.command import command
from jaxfl import make_rounds
from jaxfl.algorithms import ALGORITHMS
from jaxfl.experiment import Config, build, gather, resolve
from jaxfl.experiment.pictures import drawing
from jaxfl.experiment.session.gather import Data
from jaxfl.experiment.store import files
from jaxfl.simulation.evaluate import make_evaluate
from jaxfl.training.channel import Channel
from jaxfl.uplink import attack, malicious_clients

METHODS = ("local", "fedavg", "fedavg_ft", "ditto", "cfl", "median", "krum", "pfedgraph")
ATTACKS = ("shuffle", "same_value", "sign_flip", "gauss")
RATIOS = (0.2, 0.4, 0.6, 0.8)
SMOKE = {"rounds": 1, "local_steps": 1, "methods": ("local", "pfedgraph")}


def accuracies(config: Config, data: Data) -> dict[str, list[float]]:
    """The benign clients' mean accuracy with one method: by attack [RATIOS], and "none" [1]."""
    built = build(resolve(config, data.source), data)
    clients = data.federation.train.mask.shape[-2]

    def final(which, malicious):
        def uplink(key, before, after, ids):
            attacks = [attack(name, malicious) for name in ATTACKS]
            return lax.switch(which, attacks, key, before, after, ids)

        task = built.task._replace(upload=Channel(uplink))
        algorithm = ALGORITHMS[config.algorithm](task)
        key = jax.random.key(config.seed)
        ids = jnp.arange(clients)
        state = algorithm.init(jax.random.fold_in(key, 0), data.federation.train)
        rounds = make_rounds(algorithm, built.participation)
        state, _ = rounds(jax.random.fold_in(key, 1), data.federation, state, 0, config.rounds)
        scores = make_evaluate(algorithm, built.task)(
            jax.random.fold_in(key, 2), data.federation, state, ids
        )
        return jnp.mean(scores.deployed.test, where=~malicious)

    run = jax.jit(final)
    results = {"none": [float(run(0, np.zeros(clients, bool)))]}
    for which, name in enumerate(ATTACKS):
        masks = [malicious_clients(clients, ratio) for ratio in RATIOS]
        results[name] = [float(run(which, mask)) for mask in masks]
    return results


def table(results: dict[str, dict[str, list[float]]]) -> Table:
    """Methods in columns, attacks and ratios in rows, accuracies in %."""
    grid = Table("attack", "ratio", *results, padding=0)
    for name in ("none", *ATTACKS):
        for i, ratio in enumerate(RATIOS if name in ATTACKS else ("",)):
            grid.add_row(
                "" if i else name,
                str(ratio),
                *(f"{100 * row[name][i]:.1f}" for row in results.values()),
            )
        grid.add_section()
    return grid


def picture(results: dict[str, dict[str, list[float]]], title: str) -> bytes:
    """A panel for each attack: accuracy by the fraction of malicious clients."""
    figure, panels = drawing.canvas(len(ATTACKS), width=3.2, height=3.8)
    for name, panel in zip(ATTACKS, panels, strict=True):
        for i, (method, row) in enumerate(results.items()):
            values = [100 * value for value in (*row["none"], *row[name])]
            style: dict[str, Any] = {
                "color": drawing.COLOURS[i - 1],
                "marker": "o",
                "markersize": 4,
            }
            if method == "local":  # not affected by any attack
                style = {"color": "0.5", "linestyle": ":"}
            if method == "pfedgraph":
                style |= {"linewidth": 2.6, "zorder": 3}
            panel.plot((0, *RATIOS), values, label=method, **style)
        panel.set(
            title=name.replace("_", " "),
            xlabel="fraction of malicious clients",
            ylim=(0, 100),
            xticks=(0, *RATIOS),
        )
    panels[0].set(ylabel="accuracy of the benign clients, %")
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=len(results),
        frameon=False,
    )
    figure.suptitle(title)
    return drawing.render(figure)


def main(
    dataset: str = "digits",
    data_dir: str | None = None,
    model: str = "mlp",
    rounds: int = 20,
    local_steps: int = 50,
    methods: tuple[str, ...] = METHODS,
    out: Path = Path("runs/poisoning"),
) -> None:
    """Runs every method under every attack, prints the table, and writes it with its picture.

    Args:
      dataset: name of the data set.
      data_dir: folder of NAME.npz files.
      model: name of the model.
      rounds: communication rounds.
      local_steps: local steps per round.
      methods: names of algorithms.
      out: directory to write.
    """
    files.make_directory(out)
    setting = Config(
        dataset=dataset,
        data_dir=data_dir,
        model=model,
        partition="iid",
        rounds=rounds,
        local_steps=local_steps,
    )
    data = gather(resolve(setting))
    results = {}
    for method in methods:
        results[method] = accuracies(
            dataclasses.replace(setting, algorithm=method, clients=10), data
        )
    Console().print(table(results))
    files.write_json(out / "accuracy.json", {"ratios": RATIOS, "methods": results})
    files.write_file(
        out / "poisoning.png", picture(results, f"{dataset}, ten clients with IID data")
    )


if __name__ == "__main__":
    command(main)
