"""FedCedar's case study (section 4.4, figure 3): does k-means find the nodes of a known graph?

`python -m experiments.fedcedar_case_study [--dataset mnist --data-dir DIR] [--out DIR]`: 3, 4 and 5
nodes with common labels. In rounds 5, 10, ... the same number of clients of each node takes part,
and their clusters are compared with their nodes by the Rand index. In the other rounds clients are
drawn regardless of their node. With 20 clients per node, as in the paper, each client has 12 to 14
training examples of digits; the right panel shows clients with fewer.

The paper's protocol is `--preset fedcedar-case-study --examples all`.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.typing import ColorType
from rich.console import Console
from rich.table import Table
from sklearn.metrics import rand_score

import jaxfl
from experiments import partial_results
from experiments.command import command
from jaxfl.algorithms import fedcedar
from jaxfl.core.ragged import padded
from jaxfl.core.types import Federation
from jaxfl.data import node_of
from jaxfl.experiment import Setting, gather, resolve
from jaxfl.experiment.config.presets import preset as preset_named
from jaxfl.experiment.pictures import drawing
from jaxfl.experiment.session.make_task import make_task
from jaxfl.experiment.store import files
from jaxfl.simulation import participation

Examples = int | Literal["all"]  # training examples that a client keeps
FEW = 2  # examples of the dashed lines
PERIOD = 5
DIGITS = {  # options without a preset
    "dataset": "digits",
    "model": "mlp",
    "augment": "none",
    "local_epochs": 5,
    "batch_size": 16,
    "momentum": 0.5,
    "weight_decay": 0.0,
    "rounds": 50,
}
RESULTS = "rand.json"
FRACTION = 0.3
SMOKE = {"rounds": 2, "per_node": 2, "topologies": (3,), "seeds": 2, "local_epochs": 1}


def keep(federation: Federation, examples: Examples) -> Federation:
    """The federation with at most `examples` training examples per client, in the same shapes."""
    mask = federation.train.mask
    limit = mask.shape[-1] if examples == "all" else examples
    first = mask & (jnp.arange(mask.shape[-1]) < limit)[None, None]
    return federation._replace(train=federation.train._replace(mask=first))


def study(setting: Setting, examples: tuple[Examples, ...]) -> dict[str, np.ndarray]:
    """Runs one topology, with all seeds and numbers of examples side by side.

    Args:
      setting: the data in nodes, how clients train, and how many rounds and seeds.
      examples: numbers of training examples that a client keeps.

    Returns:
      rand: [examples, seeds, rounds / 5]; contraction: of the same shape; examples: mean number of
        training examples of a client [examples].
    """
    resolved = resolve(setting)
    topology = setting.topology
    data = gather(resolved)
    clients = data.federation.train.mask.shape[-2]
    node = node_of(clients, topology)
    per_node = clients // topology
    federation = padded(data.federation)
    if setting.seeds == 1:  # the axis of seeds is added
        federation = jax.tree.map(lambda x: x[None], federation)
    task = make_task(resolved.options, data.source)
    algorithm = fedcedar(task, clusters=topology)
    count = max(1, round(FRACTION * per_node))
    sample = participation.every(
        PERIOD,
        participation.stratified(node, count),
        participation.uniform(clients, count / per_node),
    )
    # Side by side: [examples * seeds, ...].
    federations = jax.tree.map(
        lambda *x: jnp.concatenate(x), *(keep(federation, n) for n in examples)
    )
    keys = jax.vmap(jax.random.key)(jnp.tile(jnp.arange(setting.seeds), len(examples)))
    state = jax.vmap(lambda key, federation: algorithm.init(key, federation.train))(
        keys, federations
    )
    advance = partial(jaxfl.make_rounds(algorithm, sample), length=PERIOD)
    advance = jax.jit(jax.vmap(advance, in_axes=(0, 0, 0, None)))

    rand = []
    contraction = []
    for start in range(1, setting.rounds, PERIOD):  # the last of these PERIOD rounds is stratified
        state, (info, ids) = advance(keys, federations, state, start)
        last = np.asarray(ids)[:, -1]
        labels = np.take_along_axis(np.asarray(state.clients.record.cluster), last, axis=1)
        rand.append([rand_score(node[i], c) for i, c in zip(last, labels, strict=True)])
        contraction.append(info.metrics["contraction"][:, -1])
    shape = (len(rand), len(examples), setting.seeds)
    sizes = np.asarray(federations.train.mask.sum(axis=(1, 2))) / clients
    return {
        "rand": np.reshape(rand, shape).transpose(1, 2, 0),
        "contraction": np.reshape(contraction, shape).transpose(1, 2, 0),
        "examples": sizes.reshape(shape[1:]).mean(axis=1),
    }


def chance(nodes: int) -> float:
    """The Rand index of random clusters."""
    return 1 - 2 * (nodes - 1) / nodes**2


def picture(
    results: dict[int, dict[str, np.ndarray]], dataset: str, examples: tuple[Examples, ...]
) -> bytes:
    """Rand index by round and by a client's number of examples, mean and range of the seeds.

    With one number of examples each topology has a panel. With several the solid lines of the left
    panel have the last of them, and the dashed lines have `FEW`.
    """
    if len(examples) == 1:
        figure, panels = drawing.canvas(len(results), width=4.0, height=3.4)
        for i, (topology, result) in enumerate(results.items()):
            style = {"color": drawing.COLOURS[i], "marker": "o", "markersize": 3}
            by_round(panels[i], result["rand"][0], **style)
            draw_chance(panels[i], topology, drawing.COLOURS[i])
            panels[i].set(title=f"{topology} nodes", xlabel="round")
        panels[0].set_ylabel("Rand index")
        panels[-1].legend(frameon=False, loc="lower left")
    else:
        figure, panels = drawing.canvas(2, width=5.6)
        by_number(panels, results, examples)
    for panel in panels:
        panel.set_ylim(0.3, 1.03)
        panel.grid(alpha=0.25)
    figure.suptitle(f"FedCedar on {dataset}: clusters of uploaded models and true nodes")
    return drawing.render(figure)


def by_number(
    panels: Sequence[Axes],
    results: dict[int, dict[str, np.ndarray]],
    examples: tuple[Examples, ...],
) -> None:
    """All topologies by round in the left panel, and by number of examples in the right one."""
    left, right = panels
    for i, (topology, result) in enumerate(results.items()):
        colour = drawing.COLOURS[i]
        # The widths differ so that lines at 1 do not hide each other.
        style = {"color": colour, "linewidth": 6 - 2 * i, "label": f"{topology} nodes"}
        by_round(left, result["rand"][-1], **style)
        if FEW in examples:
            few = result["rand"][examples.index(FEW)]
            by_round(left, few, color=colour, linestyle="--", linewidth=1.2)
        band(right, result["examples"], result["rand"].mean(axis=2).T, marker="o", **style)
        for panel in panels:
            draw_chance(panel, topology, colour)
    if FEW in examples:
        label = f"{FEW} examples a client"
        left.plot([], [], color="0.4", linestyle="--", linewidth=1.2, label=label)
    left.plot([], [], color="0.4", linestyle=":", linewidth=1, label="chance")
    left.set(
        xlabel="round",
        ylabel="Rand index",
        title=f"{examples[-1]} examples" + (", and few" if FEW in examples[:-1] else ""),
    )
    left.legend(frameon=False, ncols=2, loc="lower right", fontsize=8)
    right.set(xlabel="training examples of a client", title="mean over the rounds", xscale="log")
    most = max(result["examples"].max() for result in results.values())
    ticks = 2 ** np.arange(np.ceil(np.log2(most)).astype(int) + 1)  # 1, 2, 4, ...
    right.set_xticks(ticks, ticks.astype(str).tolist(), minor=False)
    right.set_xticks([], minor=True)


def by_round(panel: Axes, rand: np.ndarray, **style) -> None:
    """The Rand index of the seeds by round; rand [seeds, rounds / 5]."""
    band(panel, PERIOD * np.arange(1, rand.shape[1] + 1), rand, **style)


def draw_chance(panel: Axes, topology: int, colour: ColorType) -> None:
    """A line at the Rand index of random clusters."""
    panel.axhline(chance(topology), color=colour, linewidth=1, linestyle=":", label="chance")


def band(panel: Axes, x: np.ndarray, values: np.ndarray, **style) -> None:
    """The mean of the seeds as a line and their range as a band; values [seeds, x]."""
    panel.plot(x, values.mean(axis=0), **style)
    panel.fill_between(
        x, values.min(axis=0), values.max(axis=0), color=style["color"], alpha=0.15, linewidth=0
    )


def main(
    preset: str | None = None,
    dataset: str | None = None,
    data_dir: str | None = None,
    model: str | None = None,
    out: Path = Path("runs/fedcedar_case_study"),
    rounds: int | None = None,
    per_node: int = 20,
    topologies: tuple[int, ...] = (3, 4, 5),
    seeds: int = 3,
    local_epochs: int | None = None,
    batch_size: int | None = None,
    optimizer: str | None = None,
    momentum: float | None = None,
    weight_decay: float | None = None,
    examples: tuple[Examples, ...] = (1, 2, 4, 8, "all"),
) -> None:
    """Runs every topology that has no result yet, prints the table and writes it with its picture.

    Args:
      preset: name of a protocol, which the other options change; `DIGITS` if not given.
      dataset: name of the data set, with ten labels; digits without a preset.
      data_dir: folder of the data; that of JAXFL_DATA_DIR if not given.
      model: name of the model; mlp without a preset.
      out: directory to write. It keeps the results of each topology: a run that was stopped, or
        that has more topologies, goes on with those that are missing.
      rounds: communication rounds; 50 without a preset.
      per_node: clients of each node.
      topologies: numbers of nodes.
      seeds: partitions and initial models.
      local_epochs: local epochs per round; 5 without a preset.
      batch_size: examples in a local step; 16 without a preset.
      optimizer: of local training; sgd without a preset.
      momentum: of sgd; 0.5 without a preset.
      weight_decay: of local training; 0 without a preset.
      examples: numbers of training examples that a client keeps; each of them is a study of its
        own.
    """
    arguments = {
        "dataset": dataset,
        "data_dir": data_dir,
        "model": model,
        "local_epochs": local_epochs,
        "batch_size": batch_size,
        "optimizer": optimizer,
        "momentum": momentum,
        "weight_decay": weight_decay,
        "rounds": rounds,
        "seeds": seeds,
    }
    options = preset_named(preset).options if preset else DIGITS
    options = options | {name: value for name, value in arguments.items() if value is not None}
    settings = {name: value for name, value in options.items() if name != "data_dir"}
    settings |= {"per_node": per_node, "examples": examples}
    results = partial_results.load(out / RESULTS, settings)
    for topology in topologies:
        if str(topology) in results:
            continue
        nodes = {"partition": "nodes", "topology": topology, "clients": topology * per_node}
        results[str(topology)] = study(Setting(**(options | nodes)), examples)
        partial_results.save(out / RESULTS, settings, results)
    by_topology = {topology: results[str(topology)] for topology in topologies}
    table = Table("nodes", "examples of a client", "Rand index", "seeds", "chance", "contraction")
    for topology, result in by_topology.items():
        for size, rand, contraction in zip(
            *(result[k] for k in ("examples", "rand", "contraction")), strict=True
        ):
            by_seed = rand.mean(axis=1)
            spread = f"{by_seed.min():.3f} to {by_seed.max():.3f}"
            row = (
                f"{size:.1f}",
                f"{by_seed.mean():.3f}",
                spread,
                f"{chance(topology):.3f}",
                f"{contraction.mean():.1e}",
            )
            table.add_row(str(topology), *row)
    Console().print(table)
    image = picture(by_topology, options["dataset"], examples)
    files.write_file(out / "rand.png", image)


if __name__ == "__main__":
    command(main)
