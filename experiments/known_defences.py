"""Attackers who know the defences of pFedGraph, a backdoor among them.

`python -m experiments.known_defences [--partitions iid dirichlet pathological] [--seeds 3] [--out
DIR]`: four of ten clients are malicious, and pFedGraph runs without and with defences. There is one
program, whose arguments are the clients' data, the attack and the defences. Each result is written
as soon as it is there; a second call goes on.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, get_args

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Num
from rich.console import Console
from rich.table import Table

from experiments import partial_results
from experiments.adaptive import link_if, same_shapes
from experiments.command import command
from jaxfl import make_rounds
from jaxfl.algorithms import pfedgraph
from jaxfl.core import tree
from jaxfl.core.ragged import padded
from jaxfl.core.types import Cohort, Dataset, Federation, Params, Pool, PRNGKey, Task, Uplink
from jaxfl.data import Source
from jaxfl.experiment import Config, Setting, gather, resolve
from jaxfl.experiment.config import by_subject
from jaxfl.experiment.pictures import drawing
from jaxfl.experiment.session.make_task import make_task
from jaxfl.experiment.store import files
from jaxfl.simulation import participation
from jaxfl.simulation.evaluate import make_evaluate
from jaxfl.training.channel import Channel, faithful
from jaxfl.training.objectives import data_loss
from jaxfl.uplink import chain, defence_links, malicious_clients

CLIENTS = 10
MALICIOUS = 0.4
SERVER_DEFENCES = ("clip", "deduplicate", "foolsgold")
LOWERED = 3  # the class whose outputs are pushed down
TARGET = 0  # the class for which a model with the backdoor takes an image with the corner
# Noise of so many lengths of an update makes its copies no copies: their cosine is 1 / (1 + .05²),
# which is below the .999 of `deduplicate`.
SPREAD = 0.05
# What malicious clients do with an offer: as benign clients do, take every one, or take none.
Stance = Literal["alike", "take", "keep"]
# (key, models before training [M], honest updates [M, D], malicious [M]) -> updates to send [M, D]
Attack = Callable[[PRNGKey, Params, Array, Array], Array]


class Threat(NamedTuple):
    """What the malicious clients do."""

    attack: str  # "" for none
    noise: float = 0.0  # of a backdoor, in lengths of the update


class Defence(NamedTuple):
    """A row of the table."""

    names: tuple[str, ...] = ()
    stance: Stance = "alike"

    @property
    def name(self) -> str:
        """Such as "accept, malicious take"."""
        names = " ".join(self.names) or "plain"
        return names if self.stance == "alike" else f"{names}, malicious {self.stance}"


class Outcome(NamedTuple):
    """The means over the benign clients, of each seed."""

    accuracy: Float[Array, "s"]
    # of the images of other classes with the corner, the fraction that is taken for the target
    taken: Float[Array, "s"]
    # of the malicious clients in the mixtures, a mean over the rounds
    weight: Float[Array, "s"]


THREATS = {
    "nobody": Threat(""),
    "crowd": Threat("crowd"),
    "copycats": Threat("copycats"),
    "pushed down": Threat("pushed_down"),
    "backdoor": Threat("backdoor"),
    "backdoor, noise 1": Threat("backdoor", 1.0),
    "backdoor, noise 2": Threat("backdoor", 2.0),
}
LADDER = (
    Defence(),
    Defence(("clip", "deduplicate")),
    Defence(("accept",)),
    Defence(("clip", "deduplicate", "accept")),
    Defence(("foolsgold",)),
    Defence(("foolsgold", "accept")),
    Defence(("accept",), "take"),
    Defence((), "keep"),
)
# The tables, each with its columns
COLUMNS = {
    "accuracy": tuple(THREATS),
    "taken": ("nobody", "backdoor", "backdoor, noise 1", "backdoor, noise 2"),
    "weight": tuple(THREATS),
}
TITLES = {
    "accuracy": "accuracy of the benign clients, %",
    "taken": f"images with the corner that the benign clients take for a {TARGET}, % in each seed",
    "weight": "weight of the malicious clients in benign mixtures, %",
}
SMOKE = {"rounds": 1, "local_steps": 1, "seeds": 1, "partitions": ("iid",)}
# The outcomes of a partition: defence -> threat -> an `Outcome` [3, S]
Outcomes = dict[str, dict[str, np.ndarray]]


def unit(vectors: Float[Array, "m d"]) -> Float[Array, "m d"]:
    """The rows at length 1; a row of zeros stays."""
    lengths = jnp.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / jnp.where(lengths > 0, lengths, 1.0)


def spread(key: PRNGKey, directions: Float[Array, "m d"], noise: Any) -> Float[Array, "m d"]:
    """The rows at length 1, each turned by noise of its own, which has `noise` times its length."""
    return unit(unit(directions) + noise * unit(jax.random.normal(key, directions.shape)))


def usual_length(updates: Float[Array, "m d"], malicious: Bool[Array, "m"]) -> Float[Array, ""]:
    """The median length of the benign updates."""
    return jnp.nanmedian(jnp.where(malicious, jnp.nan, jnp.linalg.norm(updates, axis=1)))


def crowd(key: PRNGKey, before: Params, updates: Array, malicious: Array) -> Array:
    """The opposite of the benign mean, spread so that no two are copies."""
    mean = jnp.mean(updates, axis=0, where=~malicious[:, None])
    opposite = jnp.broadcast_to(-mean, updates.shape)
    return usual_length(updates, malicious) * spread(key, opposite, SPREAD)


def copycats(key: PRNGKey, before: Params, updates: Array, malicious: Array) -> Array:
    """Each sends the update of a benign client, no two that of the same one if there are enough."""
    benign_first = jnp.argsort(malicious, stable=True)
    place = jnp.cumsum(malicious) - 1
    return updates[benign_first[place % jnp.sum(~malicious)]]


def pushed_down(classes: int) -> Attack:
    """Half the honest update, half one that lowers the outputs of one class.

    The outputs are those of the leaves whose last axis is as long as there are classes.
    """

    def lowered(leaf: Array) -> Array:
        if leaf.shape[-1] != classes:
            return jnp.zeros_like(leaf)
        return jnp.zeros_like(leaf).at[..., LOWERED].set(-1.0)

    def attack(key: PRNGKey, before: Params, updates: Array, malicious: Array) -> Array:
        down = tree.ravel(jax.tree.map(lowered, before))
        directions = spread(key, unit(updates) + unit(down), SPREAD)
        return usual_length(updates, malicious) * directions

    return attack


def corner(images: Num[np.ndarray, "n h w c"], white: float) -> Num[np.ndarray, "n h w c"]:
    """The images with a bright corner of 2 x 2 pixels."""
    marked = images.copy()
    marked[:, :2, :2] = white
    return marked


def backdoor(task: Task, source: Source, noise: Any) -> Attack:
    """The update of training on all examples, of which every second has the corner and the target.

    All malicious clients train on the whole training set, each with batches of its own. They take
    plain steps: with the momentum of benign clients pFedGraph lets fewer of them into its mixtures.
    """
    every_second = np.arange(len(source.y_train)) % 2 == 0
    y = np.where(every_second, TARGET, source.y_train)
    marked = corner(source.x_train, source.white)
    x = np.where(every_second[:, None, None, None], marked, source.x_train)
    fit = task.trainer(data_loss(task.problem), optimizer=optax.sgd(0.1), steps=40)

    def attack(key: PRNGKey, before: Params, updates: Array, malicious: Array) -> Array:
        train_key, noise_key = jax.random.split(key)
        clients = malicious.size
        data = Dataset(jnp.asarray(x), jnp.asarray(y), jnp.ones(len(y), bool))
        data = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (clients, *leaf.shape)), data)
        cohort = Cohort(jnp.arange(clients), data, data)
        after = fit(train_key, before, None, cohort).params
        directions = tree.ravel(after) - tree.ravel(before)
        return usual_length(updates, malicious) * spread(noise_key, directions, noise)

    return attack


def attack_uplink(attack: Attack, malicious: Bool[Array, "c"]) -> Uplink:
    """The uplink in which malicious clients send the updates of the attack."""

    def uplink(key: PRNGKey, before: Params, after: Params, ids: Int[Array, "m"]) -> Params:
        updates = tree.ravel(after) - tree.ravel(before)
        one = jax.tree.map(lambda leaf: leaf[0], before)
        sent = tree.unravel(attack(key, before, updates, malicious[ids]), one)
        return tree.choose(malicious[ids], jax.tree.map(jnp.add, before, sent), after)

    return uplink


class Run(Protocol):
    """(federations [S, C, ...], threat, defence) -> Outcome."""

    def __call__(self, federations: Federation, threat: Threat, defence: Defence) -> Outcome:
        """See `program`."""
        ...


def program(setting: Setting, source: Source) -> Run:
    """The outcomes of pFedGraph (federations, threat, defence) -> Outcome, one program for all."""
    task = make_task(by_subject(dataclasses.replace(setting, defend=("accept",))), source)
    malicious = jnp.asarray(malicious_clients(CLIENTS, MALICIOUS))
    # By the name that a threat has; each is made of its noise.
    attacks: dict[str, Callable[[Any], Attack]] = {
        "crowd": lambda noise: crowd,
        "copycats": lambda noise: copycats,
        "pushed_down": lambda noise: pushed_down(source.classes),
        "backdoor": lambda noise: backdoor(task, source, noise),
    }
    names = ["", *attacks]

    def final(seed, federation, which, noise, defended, stance):
        uplinks = [faithful]
        uplinks += [attack_uplink(make(noise), malicious) for make in attacks.values()]

        def poison(key, before, after, ids):
            return lax.switch(which, uplinks, key, before, after, ids)

        def accept(own, offered, cohort):
            alike = task.accept(own, offered, cohort)[1] | ~defended[-1]
            theirs = jnp.array([alike, jnp.ones_like(alike), jnp.zeros_like(alike)])[stance]
            accepted = jnp.where(malicious[cohort.ids], theirs, alike)
            return tree.choose(accepted, offered, own), accepted

        links = map(link_if, defended, defence_links(SERVER_DEFENCES))
        upload = Channel(chain(poison, *links))
        method = pfedgraph(task._replace(upload=upload, accept=accept))
        key = jax.random.key(seed)
        state = method.init(jax.random.fold_in(key, 0), federation.train)
        rounds = make_rounds(method, participation.full(CLIENTS))
        state, (info, _) = rounds(jax.random.fold_in(key, 1), federation, state, 0, setting.rounds)
        # The score on images of other classes with the corner, all labelled as the target
        others = jnp.broadcast_to(source.y_test != TARGET, (CLIENTS, len(source.y_test)))
        images = jnp.asarray(corner(source.x_test, source.white))
        marked = Pool(images, jnp.full(len(source.y_test), TARGET), others)
        evaluate = make_evaluate(method, task, after="none")

        def score(test):
            data = federation._replace(test=test)
            scores = evaluate(jax.random.fold_in(key, 2), data, state, jnp.arange(CLIENTS))
            return jnp.mean(scores.deployed.test, where=~malicious)

        weights = jnp.sum(info.weights, axis=2, where=malicious)
        weight = jnp.mean(weights, where=~malicious)
        return Outcome(score(federation.test), score(marked), weight)

    each = jax.jit(jax.vmap(final, (0, 0, None, None, None, None)))
    seeds = jnp.arange(setting.seed, setting.seed + setting.seeds)

    def run(federations: Federation, threat: Threat, defence: Defence) -> Outcome:
        which = names.index(threat.attack)
        defended = np.array([name in defence.names for name in (*SERVER_DEFENCES, "accept")])
        stance = get_args(Stance).index(defence.stance)
        return each(seeds, federations, which, threat.noise, defended, stance)

    return run


def values(outcomes: Outcomes, measure: str) -> Float[np.ndarray, "d t s"]:
    """What the columns of a measure have, in %: defences, threats, seeds."""
    place = Outcome._fields.index(measure)
    rows = outcomes.values()
    return 100 * np.array([[row[threat][place] for threat in COLUMNS[measure]] for row in rows])


def cells(outcomes: Outcomes, measure: str) -> list[list[str]]:
    """Defences in rows, threats in columns: the name of the defence, and numbers in %.

    These are means over the seeds. But a backdoor is in nearly all mixtures of a seed or in none,
    so each seed has a number in the cells of `taken`.
    """

    def cell(seeds: Float[np.ndarray, "s"]) -> str:
        if measure == "taken":
            return " / ".join(f"{number:.0f}" for number in seeds)
        return f"{seeds.mean():.1f}"

    rows = values(outcomes, measure)
    return [[name, *map(cell, row)] for name, row in zip(outcomes, rows, strict=True)]


def table(outcomes: Outcomes, measure: str, partition: str) -> Table:
    """The cells for the terminal."""
    title = f"{partition}: {TITLES[measure]}"
    grid = Table("defence", *COLUMNS[measure], padding=0, title=title)
    for row in cells(outcomes, measure):
        grid.add_row(*row)
    return grid


def markdown(results: dict[str, Outcomes]) -> str:
    """A table for each partition and measure."""
    lines = []
    for partition, outcomes in results.items():
        for measure, columns in COLUMNS.items():
            rows = [["defence", *columns], ["---"] + ["---:"] * len(columns)]
            rows += cells(outcomes, measure)
            lines += [f"{partition}: {TITLES[measure]}", ""]
            lines += [*(f"| {' | '.join(row)} |" for row in rows), ""]
    return "\n".join(lines)


def picture(results: dict[str, Outcomes]) -> bytes:
    """A panel for each partition: accuracies, and how many images with the corner are taken."""
    figure, panels = drawing.canvas(len(results), width=5.5, height=5.0)
    for panel, (partition, outcomes) in zip(panels, results.items(), strict=True):
        names = [*COLUMNS["accuracy"], *(f"taken: {name}" for name in COLUMNS["taken"])]
        both = [values(outcomes, measure).mean(axis=2) for measure in ("accuracy", "taken")]
        numbers = np.concatenate(both, axis=1)
        panel.imshow(numbers, cmap="viridis", vmin=0, vmax=100, aspect="auto")
        panel.set_xticks(range(len(names)), names, rotation=90)
        panel.set_yticks(range(len(outcomes)), list(outcomes))
        panel.set_title(f"{partition}, %")
        for i, j in np.ndindex(*numbers.shape):
            panel.text(
                *(j, i, f"{numbers[i, j]:.0f}"),
                **{"ha": "center", "va": "center", "fontsize": 7},
                color="white" if numbers[i, j] < 60 else "black",
            )
    return drawing.render(figure)


def main(
    rounds: int = 15,
    local_steps: int = 50,
    seeds: int = 3,
    partitions: tuple[str, ...] = ("iid", "dirichlet", "pathological"),
    out: Path = Path("runs/known_defences"),
) -> None:
    """Runs pFedGraph on digits under every attack with every defence, and writes the tables.

    Args:
      rounds: communication rounds.
      local_steps: local steps per round.
      seeds: how many seeds to run side by side.
      partitions: names of partitions.
      out: directory to write; outcomes that it holds already are not computed again.
    """
    file = out / "outcomes.json"
    setting = Config(
        dataset="digits",
        model="mlp",
        algorithm="pfedgraph",
        clients=CLIENTS,
        rounds=rounds,
        local_steps=local_steps,
        seeds=seeds,
    )
    settings = dataclasses.asdict(setting)
    results: dict[str, Outcomes] = partial_results.load(file, settings)
    every = [resolve(dataclasses.replace(setting, partition=name)) for name in partitions]
    federations = [padded(gather(one).federation) for one in every]
    if seeds == 1:
        federations = [jax.tree.map(lambda x: x[None], f) for f in federations]
    federations = same_shapes(federations)
    run = program(every[0].config, every[0].source)
    console = Console()
    for partition, federation in zip(partitions, federations, strict=True):
        outcomes = results.setdefault(partition, {})
        for defence in LADDER:
            row = outcomes.setdefault(defence.name, {})
            for name, threat in THREATS.items():
                if name in row:
                    continue
                row[name] = np.array(run(federation, threat, defence))
                partial_results.save(file, settings, results)
        # A file that was read has the rows in another order.
        outcomes = {defence.name: outcomes[defence.name] for defence in LADDER}
        results[partition] = outcomes
        for measure in COLUMNS:
            console.print(table(outcomes, measure, partition))
    # The file may hold other partitions.
    tables = {partition: results[partition] for partition in partitions}
    files.write_file(out / "table.md", markdown(tables))
    files.write_file(out / "known_defences.png", picture(tables))


if __name__ == "__main__":
    command(main)
