"""FedCedar's case study (section 4.4, figure 3): does k-means find the nodes of a known graph?

`python -m experiments.fedcedar_case_study [--out DIR]`: digits in 3, 4 and 5 nodes with common
labels. In rounds 5, 10, ... the same number of clients of each node takes part, and their clusters
are compared with their nodes by the Rand index. In the other rounds clients are drawn regardless of
their node. With 20 clients per node, as in the paper, each client has 12 to 14 training examples;
the right panel shows clients with fewer.
"""

import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from matplotlib.axes import Axes
from rich.console import Console
from rich.table import Table
from sklearn.metrics import rand_score

import jaxfl
from jaxfl import participation
from jaxfl.algorithms import fedcedar
from jaxfl.data import node_of
from jaxfl.experiment import Setting, gather, resolve
from jaxfl.experiment.show import drawing
from jaxfl.types import Federation

EXAMPLES = (1, 2, 4, 8, None)  # training examples that a client keeps; None: all
FEW = 1  # index of the number that the left panel shows besides all
PERIOD = 5
FRACTION = 0.3
SMOKE = {"rounds": 2, "per_node": 2, "topologies": (3,), "seeds": 1, "epochs": 1}


def keep(federation: Federation, examples: int | None) -> Federation:
    """The federation with at most `examples` training examples per client, in the same shapes."""
    mask = federation.train.mask
    kept = mask & (jnp.arange(mask.shape[-1]) < (examples or mask.shape[-1]))[None, None]
    return federation._replace(train=federation.train._replace(mask=kept))


def study(
    topology: int, rounds: int, per_node: int, seeds: int, epochs: int
) -> dict[str, np.ndarray]:
    """Runs one topology, with all seeds and numbers of examples side by side.

    Returns:
      rand: [examples, seeds, rounds / 5]; contraction: of the same shape; examples: mean number of
        training examples of a client [examples].
    """
    clients = topology * per_node
    node = node_of(clients, topology)
    setting = Setting(partition="nodes", topology=topology, clients=clients, seeds=seeds)
    data = gather(resolve(setting))
    federation = data.federation
    if seeds == 1:  # the axis of seeds is added
        federation = jax.tree.map(lambda x: x[None], federation)
    task = jaxfl.classification(
        jaxfl.models.mlp(data.source.classes),
        data.source.x_train[0],
        scale=data.source.scale,
        optimizer=jaxfl.sgd(0.01, momentum=0.5, weight_decay=0.0),
        batch_size=16,
        epochs=epochs,
    )
    algorithm = fedcedar(task, clusters=topology)
    drawn = max(1, round(FRACTION * per_node))
    sample = participation.every(
        PERIOD,
        participation.stratified(node, drawn),
        participation.uniform(clients, drawn / per_node),
    )
    # Side by side: [examples * seeds, ...].
    federations = jax.tree.map(
        lambda *x: jnp.concatenate(x), *(keep(federation, n) for n in EXAMPLES)
    )
    keys = jax.vmap(jax.random.key)(jnp.tile(jnp.arange(seeds), len(EXAMPLES)))
    state = jax.vmap(lambda key, federation: algorithm.init(key, federation.train))(
        keys, federations
    )
    advance = partial(jaxfl.make_rounds(algorithm, sample), length=PERIOD)
    advance = jax.jit(jax.vmap(advance, in_axes=(0, 0, 0, None)))

    rand = []
    contraction = []
    for start in range(1, rounds, PERIOD):  # the last of these PERIOD rounds is stratified
        state, (info, ids) = advance(keys, federations, state, start)
        last = np.asarray(ids)[:, -1]
        found = np.take_along_axis(np.asarray(state.clients.cluster), last, axis=1)
        rand.append([rand_score(node[i], c) for i, c in zip(last, found, strict=True)])
        contraction.append(info.metrics["contraction"][:, -1])
    shape = (len(rand), len(EXAMPLES), seeds)
    examples = np.asarray(federations.train.mask.sum(axis=(1, 2))) / clients
    return {
        "rand": np.reshape(rand, shape).transpose(1, 2, 0),
        "contraction": np.reshape(contraction, shape).transpose(1, 2, 0),
        "examples": examples.reshape(shape[1:]).mean(axis=1),
    }


def chance(nodes: int) -> float:
    """The Rand index of random clusters."""
    return 1 - 2 * (nodes - 1) / nodes**2


def picture(found: dict[int, dict[str, np.ndarray]]) -> bytes:
    """Rand index by round and by a client's number of examples, mean and range of the seeds."""
    figure, (by_round, by_examples) = drawing.canvas(2, width=5.6)
    for i, (topology, result) in enumerate(found.items()):
        colour = drawing.COLOURS[i]
        rand = result["rand"]
        rounds = PERIOD * np.arange(1, rand.shape[2] + 1)
        # The widths differ so that lines at 1 do not hide each other.
        thick = {"color": colour, "linewidth": 6 - 2 * i}
        band(by_round, rounds, rand[-1], label=f"{topology} nodes", **thick)
        band(by_round, rounds, rand[FEW], color=colour, linestyle="--", linewidth=1.2)
        band(
            by_examples,
            result["examples"],
            rand.mean(axis=2).T,
            label=f"{topology} nodes",
            marker="o",
            **thick,
        )
        for panel in (by_round, by_examples):
            panel.axhline(chance(topology), color=colour, linewidth=1, linestyle=":")
    by_round.plot(
        [],
        [],
        color="0.4",
        linestyle="--",
        linewidth=1.2,
        label=f"{EXAMPLES[FEW]} examples a client",
    )
    by_round.plot([], [], color="0.4", linestyle=":", linewidth=1, label="chance")
    by_round.set(
        xlabel="round", ylabel="Rand index, clusters and nodes", title="all examples, and few"
    )
    by_round.legend(frameon=False, ncols=2, loc="lower right", fontsize=8)
    by_examples.set(
        xlabel="training examples of a client", title="mean over the rounds", xscale="log"
    )
    by_examples.set_xticks([1, 2, 4, 8, 16], ["1", "2", "4", "8", "16"], minor=False)
    by_examples.set_xticks([], minor=True)
    for panel in (by_round, by_examples):
        panel.set_ylim(0.3, 1.03)
        panel.grid(alpha=0.25)
    figure.suptitle("FedCedar on digits: k-means of the uploaded models finds the clients' nodes")
    return drawing.png(figure)


def band(panel: Axes, x: np.ndarray, values: np.ndarray, **style) -> None:
    """The mean of the seeds as a line and their range as a band; values [seeds, x]."""
    panel.plot(x, values.mean(axis=0), **style)
    panel.fill_between(
        x, values.min(axis=0), values.max(axis=0), color=style["color"], alpha=0.15, linewidth=0
    )


def main(
    out: Path = Path("runs/fedcedar_case_study"),
    rounds: int = 50,
    per_node: int = 20,
    topologies: tuple[int, ...] = (3, 4, 5),
    seeds: int = 3,
    epochs: int = 5,
) -> None:
    """Runs the topologies, prints the table, and writes its numbers and the picture.

    Args:
      out: directory to write.
      rounds: communication rounds.
      per_node: clients of each node.
      topologies: numbers of nodes.
      seeds: partitions and initial models.
      epochs: local epochs per round.
    """
    found = {n: study(n, rounds, per_node, seeds, epochs) for n in topologies}
    table = Table("nodes", "examples of a client", "Rand index", "seeds", "chance", "contraction")
    for topology, result in found.items():
        for examples, rand, contraction in zip(
            *(result[k] for k in ("examples", "rand", "contraction")), strict=True
        ):
            by_seed = rand.mean(axis=1)
            spread = f"{by_seed.min():.3f} to {by_seed.max():.3f}"
            row = (
                f"{examples:.1f}",
                f"{by_seed.mean():.3f}",
                spread,
                f"{chance(topology):.3f}",
                f"{contraction.mean():.1e}",
            )
            table.add_row(str(topology), *row)
    Console().print(table)
    out.mkdir(parents=True, exist_ok=True)
    numbers = {
        t: {name: values.tolist() for name, values in result.items()} for t, result in found.items()
    }
    (out / "rand.json").write_text(json.dumps(numbers, indent=2) + "\n")
    (out / "rand.png").write_bytes(picture(found))


if __name__ == "__main__":
    tyro.cli(main)
