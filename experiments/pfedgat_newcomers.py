"""Clients that join late (pFedGAT, section 5.3 and figure 4).

Eight of ten clients train for 40 rounds, then all for three. The data are divided by a Dirichlet
distribution with beta 0.1; several partitions run side by side. The result is the accuracy of the
two newcomers.

`python -m experiments.pfedgat_newcomers [--dataset cifar10 --data-dir DIR] [--out DIR]`

The paper's protocol is `--preset pfedgat-dirichlet`, with `--methods local pfedme heurfedamp
per_fedavg "pfedgat, as published"`; its other picture has `--dataset cifar100`.
"""

from functools import partial
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import jaxfl
from experiments import partial_results
from experiments.command import command
from jaxfl.core.types import Algorithm, Federation, Task
from jaxfl.experiment import Setting, gather, resolve
from jaxfl.experiment.config.presets import preset as preset_named
from jaxfl.experiment.pictures import drawing
from jaxfl.experiment.session.make_task import make_task
from jaxfl.experiment.session.seeds import Seeds
from jaxfl.experiment.store import files
from jaxfl.simulation.evaluation import Scores

CLIENTS = 10
DIGITS = {  # options without a preset
    "dataset": "digits",
    "model": "mlp",
    "partition": "dirichlet",
    "beta": 0.1,
    "test": "reweighted",
    "local_steps": 50,
    "batch_size": 32,
}
RESULTS = "results.json"
EARLY = 8  # the clients that take part from the start
# The hyper-parameters of the paper's other methods.
PUBLISHED = preset_named("pfedgat-dirichlet").hyper
METHODS = {
    "local": (jaxfl.algorithms.local, {}),
    "fedavg": (jaxfl.algorithms.fedavg, {}),
    "pfedgraph": (jaxfl.algorithms.pfedgraph, {}),
    "pfedgat, as published": (jaxfl.algorithms.pfedgat, {}),
    "pfedgat, GATv2, round": (jaxfl.algorithms.pfedgat, {"attention": "gatv2", "feature": "round"}),
    "pfedgat, dot, round": (
        jaxfl.algorithms.pfedgat,
        {"attention": "dot", "feature": "round", "eta": 0.001},
    ),
}
OTHERS = {  # of the paper's figure; its FedAMP is HeurFedAMP, as in its tables
    "pfedme": (jaxfl.algorithms.pfedme, PUBLISHED["pfedme"]),
    "heurfedamp": (jaxfl.algorithms.heurfedamp, PUBLISHED["heurfedamp"]),
    "per_fedavg": (jaxfl.algorithms.per_fedavg, PUBLISHED["per_fedavg"]),
}
SMOKE = {"alone": 1, "together": 1, "seeds": 2, "local_steps": 1, "methods": ("fedavg",)}


def run(
    algorithm: Algorithm,
    task: Task,
    alone: int,
    together: int,
    seed: jax.Array,
    federation: Federation,
) -> tuple[jax.Array, ...]:
    """Rounds without the newcomers, then rounds with them, which are evaluated one by one.

    Returns:
      Accuracy of the deployed and the fine-tuned models, when the newcomers join and after each
      round with them [1 + together, 10]; the last mixing weights [10, 10].
    """
    key = jax.random.key(seed)
    early = jaxfl.participation.schedule(np.arange(EARLY)[None])
    first, then = (
        jaxfl.make_rounds(algorithm, who) for who in (early, jaxfl.participation.full(CLIENTS))
    )
    evaluate = jaxfl.make_evaluate(algorithm, task)

    def scores(state):
        evaluation = evaluate(key, federation, state, jnp.arange(CLIENTS))
        fine_tuned = cast(Scores, evaluation.fine_tuned)  # which `make_evaluate` scores by default
        return evaluation.deployed.test, fine_tuned.test

    def step(state, number):
        state, (info, _) = then(key, federation, state, start=number, length=1)
        return state, (scores(state), info.weights[0])

    state = algorithm.init(key, federation.train)
    state, _ = first(key, federation, state, start=0, length=alone)
    start_scores = scores(state)
    _, (later, weights) = jax.lax.scan(step, state, alone + jnp.arange(together))
    deployed, fine_tuned = jax.tree.map(
        lambda a, b: jnp.concatenate([a[None], b]), start_scores, later
    )
    return deployed, fine_tuned, weights[-1]


def picture(results: dict[str, dict[str, np.ndarray]]) -> bytes:
    """Accuracy of the newcomers by round, and the weights of the last method."""
    rounds = range(len(next(iter(results.values()))["deployed"][0]))
    figure, (deployed, tuned, heat) = drawing.canvas(3, width=4.6)
    for colour, (name, result) in zip(drawing.COLOURS, results.items(), strict=False):
        for panel, stage in ((deployed, "deployed"), (tuned, "fine_tuned")):
            newcomers = 100 * result[stage][:, :, EARLY:].mean(axis=(0, 2))
            panel.plot(rounds, newcomers, color=colour, marker="o", markersize=4, label=name)
    for panel, title in (
        (deployed, "newcomers: deployed models"),
        (tuned, "newcomers: fine-tuned models"),
    ):
        panel.set(
            xlabel="rounds since they joined",
            title=title,
            ylim=(0, 102),
            xticks=rounds,
        )
        panel.grid(alpha=0.25)
    deployed.set_ylabel("accuracy, %")
    tuned.legend(frameon=False, fontsize=8, loc="lower right")
    name = list(results)[-1]
    image = heat.imshow(results[name]["weights"][0], cmap="Blues", vmin=0)
    heat.axhline(EARLY - 0.5, color="tab:red", linewidth=1)
    heat.axvline(EARLY - 0.5, color="tab:red", linewidth=1)
    heat.spines[:].set_visible(False)
    heat.set(
        xlabel="sender",
        ylabel="receiver",
        title=f"{name}: last weights\n(newcomers beyond the lines)",
    )
    figure.colorbar(image, ax=heat, shrink=0.8)
    return drawing.render(figure)


def main(
    preset: str | None = None,
    dataset: str | None = None,
    data_dir: str | None = None,
    model: str | None = None,
    out: Path = Path("runs/pfedgat_newcomers"),
    alone: int = 40,
    together: int = 3,
    seeds: int = 5,
    local_steps: int | None = None,
    local_epochs: int | None = None,
    batch_size: int | None = None,
    methods: tuple[str, ...] = tuple(METHODS),
) -> None:
    """Runs every method that has no result yet, prints the table and writes it with its picture.

    Args:
      preset: name of a protocol, which the other options change; `DIGITS` if not given.
      dataset: name of the data set; digits without a preset.
      data_dir: folder of the data; that of JAXFL_DATA_DIR if not given.
      model: name of the model; mlp without a preset.
      out: directory to write. It keeps the results of each method: a run that was stopped, or that
        has more methods, goes on with those that are missing.
      alone: rounds without the newcomers.
      together: rounds with them.
      seeds: partitions and initial models.
      local_steps: local steps per round; 50 without a preset.
      local_epochs: local epochs per round, in place of steps.
      batch_size: examples in a local step; 32 without a preset.
      methods: names of `METHODS` or `OTHERS`.
    """
    arguments = {
        "dataset": dataset,
        "data_dir": data_dir,
        "model": model,
        "batch_size": batch_size,
    }
    options: dict[str, Any] = dict(preset_named(preset).options if preset else DIGITS)
    options |= {name: value for name, value in arguments.items() if value is not None}
    if local_steps or local_epochs:
        amount = None if local_epochs else local_steps
        options |= {"local_steps": amount, "local_epochs": local_epochs}
    values = dict(options)
    values.update(clients=CLIENTS, seeds=seeds)
    setting = Setting(**values)
    resolved = resolve(setting)
    federation = gather(resolved).federation
    task = make_task(resolved.options, resolved.source)
    several = Seeds(setting.seed, setting.seeds)
    settings = {name: value for name, value in options.items() if name != "data_dir"}
    settings |= {"seeds": seeds, "alone": alone, "together": together}
    by_name = partial_results.load(out / RESULTS, settings)
    for name in methods:
        if name in by_name:
            continue
        factory, hyper = (METHODS | OTHERS)[name]
        of_one_seed = partial(run, factory(task, **hyper), task, alone, together)
        of_each = jax.jit(several.each(of_one_seed, (0, 0)))
        scores = map(np.asarray, several.with_axis(of_each(several.argument(), federation)))
        by_name[name] = dict(zip(("deployed", "fine_tuned", "weights"), scores, strict=True))
        partial_results.save(out / RESULTS, settings, by_name)
    results = {name: by_name[name] for name in methods}
    table = Table("", "newcomers: deployed", "fine-tuned", "the others: deployed", "fine-tuned")
    for name, result in results.items():
        last = [100 * result[stage][:, -1] for stage in ("deployed", "fine_tuned")]  # [S, C]
        numbers = [x[:, who].mean() for who in (slice(EARLY, None), slice(EARLY)) for x in last]
        table.add_row(name, *(f"{x:.1f}" for x in numbers))
    Console().print(table)
    files.write_file(out / "newcomers.png", picture(results))


if __name__ == "__main__":
    command(main)
