"""Attackers who know the rule, and a ladder of defences: the accuracy of benign clients.

`python -m experiments.adaptive [--partitions iid pathological] [--seeds 3] [--out DIR]`: every
attack of `jaxfl.uplink` against methods without and with defences, ten clients, one or four of them
malicious. A method with its defences is one program, whose arguments are the attack and the
malicious clients. Each result is written as soon as it is there; a second call goes on.
"""

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int
from rich.console import Console
from rich.table import Table

from experiments import partial_results
from experiments.command import command
from jaxfl import make_rounds
from jaxfl.algorithms import ALGORITHMS
from jaxfl.core import tree
from jaxfl.core.ragged import padded
from jaxfl.core.types import Federation, Params, PRNGKey, Uplink
from jaxfl.data import Source
from jaxfl.experiment import Config, Setting, gather, resolve
from jaxfl.experiment.config import by_subject
from jaxfl.experiment.pictures import drawing
from jaxfl.experiment.session.gather import flip_labels
from jaxfl.experiment.session.make_task import make_task
from jaxfl.experiment.store import files
from jaxfl.simulation import participation
from jaxfl.simulation.evaluate import make_evaluate
from jaxfl.training.channel import Channel, faithful
from jaxfl.uplink import FLIPPED, attack, chain, defence_links, malicious_clients


class Threat(NamedTuple):
    """A row of the table."""

    attack: str  # "" for none
    malicious: int  # clients of ten
    scale: float | None = None

    @property
    def name(self) -> str:
        """Such as "mimic x 10 (1)": the attack, its strength, and the malicious clients."""
        if not self.attack:
            return "none"
        factor = "" if self.scale is None else f" x {self.scale:g}"
        return f"{self.attack}{factor} ({self.malicious})"


class Method(NamedTuple):
    """A column of the table."""

    algorithm: str
    defend: tuple[str, ...] = ()
    hyper: dict[str, Any] = {}  # noqa: RUF012 - never written


ALL = ("clip", "deduplicate", "accept")
DICE = {"measure": "dice"}
METHODS = {
    "local": Method("local"),
    "fedavg": Method("fedavg"),
    "median": Method("median"),
    "krum": Method("krum"),
    "ditto": Method("ditto"),
    "pfedgraph": Method("pfedgraph"),
    "pfedgraph clip": Method("pfedgraph", ("clip",)),
    "pfedgraph deduplicate": Method("pfedgraph", ("deduplicate",)),
    "pfedgraph dice": Method("pfedgraph", (), DICE),
    "pfedgraph cap": Method("general_graph", (), {"cap": 0.2}),
    "pfedgraph accept": Method("pfedgraph", ("accept",)),
    "pfedgraph all": Method("pfedgraph", ALL),
    "pfedgraph all dice": Method("pfedgraph", ALL, DICE),
    "pfedgat": Method("pfedgat"),
    "pfedgat all": Method("pfedgat", ALL),
    "fedamp": Method("fedamp"),
    "fedamp all": Method("fedamp", ALL),
}
THREATS = (
    Threat("", 4),
    Threat("shuffle", 4),
    Threat("same_value", 4),
    Threat("sign_flip", 4),
    Threat("gauss", 4),
    Threat("reverse", 4),
    Threat("label_flip", 4),
    Threat("little", 4),
    Threat("replacement", 4),
    Threat("collude", 4),
    Threat("collude", 4, 3.0),
    Threat("boost", 1, 10.0),
    Threat("boost", 4, 10.0),
    Threat("mimic", 4),
    Threat("mimic", 1, 10.0),
    Threat("mimic", 1, 100.0),
    Threat("mimic", 4, 10.0),
    Threat("ipm", 4),
    Threat("ipm", 4, 10.0),
    Threat("min_max", 4),
    Threat("min_sum", 4),
)
NAMES = ("", *dict.fromkeys(threat.attack for threat in THREATS[1:]))
# The strength of an attack for which several are tried, where a threat leaves it open
STRENGTHS = {"collude": 1.0, "boost": 10.0, "mimic": 1.0, "ipm": 1.0}
SMOKE = {
    "rounds": 1,
    "local_steps": 1,
    "seeds": 2,
    "partitions": ("iid",),
    "methods": ("local", "pfedgraph all"),
}
# The accuracies of a partition: method -> threat -> mean over the benign clients of each seed
Accuracies = dict[str, dict[str, list[float]]]


# (federations, threat, names of defences) -> accuracy of each seed
class Run(Protocol):
    """(federations [S, C, ...], threat, names of the server's defences) -> accuracies [S]."""

    def __call__(
        self, federations: Federation, threat: Threat, defend: tuple[str, ...]
    ) -> list[float]:
        """See `program`."""
        ...


def link_if(used: Bool[Array, ""], link: Uplink) -> Uplink:
    """The link where it is used, and otherwise one that changes nothing; `used` may be traced."""

    def uplink(key: PRNGKey, before: Params, after: Params, ids: Int[Array, "m"]) -> Params:
        return tree.where(used, link(key, before, after, ids), after)

    return uplink


def program(setting: Setting, algorithm: str, hyper: dict[str, Any], source: Source) -> Run:
    """The accuracies of a method (federations, threat, defences) -> [S], one program for all."""
    task = make_task(by_subject(dataclasses.replace(setting, defend=("accept",))), source)

    def final(seed, federation, which, scale, malicious, defended):
        def poison(key, before, after, ids):
            attacks = [faithful]
            attacks += [attack(n, malicious, scale if n in STRENGTHS else None) for n in NAMES[1:]]
            return lax.switch(which, attacks, key, before, after, ids)

        def accept(own, offered, cohort):
            verdicts = task.accept(own, offered, cohort)[1] | ~defended[2]
            return tree.choose(verdicts, offered, own), verdicts

        flips = jnp.array([name in FLIPPED for name in NAMES])[which]
        training_data = flip_labels(federation, malicious & flips, source.classes)
        links = map(link_if, defended, defence_links(ALL))
        upload = Channel(chain(poison, *links))
        method = ALGORITHMS[algorithm](task._replace(upload=upload, accept=accept), **hyper)
        clients = federation.train.mask.shape[0]
        key = jax.random.key(seed)
        state = method.init(jax.random.fold_in(key, 0), training_data.train)
        rounds = make_rounds(method, participation.full(clients))
        state, _ = rounds(jax.random.fold_in(key, 1), training_data, state, 0, setting.rounds)
        evaluate = make_evaluate(method, task)
        scores = evaluate(jax.random.fold_in(key, 2), training_data, state, jnp.arange(clients))
        return jnp.mean(scores.deployed.test, where=~malicious)

    each = jax.jit(jax.vmap(final, (0, 0, None, None, None, None)))
    seeds = jnp.arange(setting.seed, setting.seed + setting.seeds)

    def run(federations: Federation, threat: Threat, defend: tuple[str, ...]) -> list[float]:
        clients = federations.train.mask.shape[1]
        malicious = malicious_clients(clients, threat.malicious / clients)
        scale = STRENGTHS.get(threat.attack, 1.0) if threat.scale is None else threat.scale
        which = NAMES.index(threat.attack)
        defended = np.array([name in defend for name in ALL])
        results = each(seeds, federations, which, scale, malicious, defended)
        return np.asarray(results, float).tolist()

    return run


def same_shapes(federations: list[Federation]) -> list[Federation]:
    """The federations with as much padding as the largest needs, so that one program fits all."""
    shapes = [[x.shape for x in jax.tree.leaves(f)] for f in federations]
    largest = [np.max(each, axis=0) for each in zip(*shapes, strict=True)]

    def pad(federation: Federation) -> Federation:
        leaves, structure = jax.tree.flatten(federation)
        gaps = [
            [(0, int(s - d)) for s, d in zip(shape, x.shape, strict=True)]
            for x, shape in zip(leaves, largest, strict=True)
        ]
        return structure.unflatten([jnp.pad(x, gap) for x, gap in zip(leaves, gaps, strict=True)])

    return [pad(federation) for federation in federations]


def fill(scores: dict[str, list[float]], run: Callable, save: Callable, alone: bool) -> None:
    """Computes what is missing in the accuracies of a method; no attack reaches it if `alone`."""
    for threat in THREATS:
        if threat.name in scores:
            continue
        same = [t.name for t in THREATS if t.malicious == threat.malicious and t.name in scores]
        scores[threat.name] = scores[same[0]] if alone and same else run(threat)
        save()


def cells(results: Accuracies) -> list[list[str]]:
    """Threats in rows, methods in columns: the name of the threat, and means over seeds in %."""
    return [
        [threat.name, *(f"{100 * np.mean(row[threat.name]):.1f}" for row in results.values())]
        for threat in THREATS
    ]


def table(results: Accuracies, title: str) -> Table:
    """The cells for the terminal."""
    grid = Table("attack", *results, padding=0, title=title)
    for row in cells(results):
        grid.add_row(*row)
    return grid


def markdown(results: dict[str, Accuracies]) -> str:
    """A table for each partition."""
    lines = []
    for partition, accuracies in results.items():
        header = ["attack", *accuracies]
        rows = [header, ["---"] + ["---:"] * len(accuracies), *cells(accuracies)]
        lines += [f"{partition}:", "", *(f"| {' | '.join(row)} |" for row in rows), ""]
    return "\n".join(lines)


def picture(results: dict[str, Accuracies]) -> bytes:
    """A panel for each partition: accuracy less that of local training, in colours."""
    figure, panels = drawing.canvas(len(results), width=7.0, height=7.5)
    for panel, (partition, row) in zip(panels, results.items(), strict=True):
        names = [threat.name for threat in THREATS]
        values = np.array([[100 * np.mean(scores[n]) for scores in row.values()] for n in names])
        gaps = values - values[:, [0]]
        image = panel.imshow(gaps, cmap="RdBu", vmin=-20, vmax=20, aspect="auto")
        panel.set_xticks(range(len(row)), list(row), rotation=90)
        panel.set_yticks(range(len(names)), names)
        panel.set_title(partition)
        for i, j in np.ndindex(*values.shape):
            dark = abs(gaps[i, j]) > 12
            panel.text(
                *(j, i, f"{values[i, j]:.0f}"),
                **{"ha": "center", "va": "center", "fontsize": 7},
                color="white" if dark else "black",
            )
    figure.colorbar(image, ax=panels, label="accuracy less that of local training, points")
    return drawing.render(figure)


def main(
    dataset: str = "digits",
    data_dir: str | None = None,
    model: str = "mlp",
    rounds: int = 10,
    local_steps: int = 50,
    batch_size: int = 16,
    seeds: int = 3,
    max_examples: int | None = None,
    partitions: tuple[str, ...] = ("iid", "pathological"),
    methods: tuple[str, ...] = tuple(METHODS),
    out: Path = Path("runs/adaptive"),
) -> None:
    """Runs every method under every attack, prints the tables, and writes them with a picture.

    Args:
      dataset: name of the data set.
      data_dir: folder of NAME.npz files.
      model: name of the model.
      rounds: communication rounds.
      local_steps: local steps per round.
      batch_size: examples in a local step.
      seeds: how many seeds to run side by side.
      max_examples: most examples that a client holds.
      partitions: names of partitions.
      methods: columns of the table, "local" first.
      out: directory to write; accuracies that it holds already are not computed again.
    """
    file = out / "accuracy.json"
    setting = Config(
        dataset=dataset,
        data_dir=data_dir,
        model=model,
        rounds=rounds,
        local_steps=local_steps,
        batch_size=batch_size,
        seeds=seeds,
        clients=10,
        max_examples=max_examples,
    )
    settings = {
        name: value for name, value in dataclasses.asdict(setting).items() if name != "data_dir"
    }
    results: dict[str, Accuracies] = partial_results.load(file, settings)
    save = partial(partial_results.save, file, settings, results)
    every = [resolve(dataclasses.replace(setting, partition=name)) for name in partitions]
    federations = [padded(gather(one).federation) for one in every]
    if seeds == 1:
        federations = [jax.tree.map(lambda x: x[None], f) for f in federations]
    federations = same_shapes(federations)
    console = Console()
    programs: dict[str, Run] = {}
    for name in methods:
        began = time.perf_counter()
        algorithm, defend, hyper = METHODS[name]
        label = f"{algorithm} {hyper}"
        if label not in programs:
            programs[label] = program(every[0].config, algorithm, hyper, every[0].source)
        for partition, federation in zip(partitions, federations, strict=True):
            scores = results.setdefault(partition, {}).setdefault(name, {})
            one = partial(programs[label], federation, defend=defend)
            fill(scores, one, save, alone=name == "local")
        console.print(f"{name}: {time.perf_counter() - began:.0f} s", highlight=False)
    for partition in partitions:
        scores = results[partition]
        results[partition] = {name: scores[name] for name in METHODS if name in scores}
        console.print(table(results[partition], f"{dataset}, {partition}"))
    # The file may hold other partitions, in part.
    tables = {partition: results[partition] for partition in partitions}
    files.write_file(out / "table.md", markdown(tables))
    files.write_file(out / "adaptive.png", picture(tables))


if __name__ == "__main__":
    command(main)
