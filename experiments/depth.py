"""Which personalized methods survive depth? Four models from LeNet to ResNet-18 on CIFAR-100.

Ten clients with few examples each, whose labels are skewed by a Dirichlet distribution. Methods and
models are compared at the same number of steps, from random weights.

`python -m experiments.depth [--data-dir DIR] [--out DIR]`
"""

from pathlib import Path
from typing import Any

import numpy as np
import optax
from flax import linen as nn
from rich.console import Console
from rich.table import Table

import jaxfl
from experiments import partial_results
from experiments.adapters import RESULTS, Case, runner
from experiments.command import command
from experiments.seeds import mean_text
from jaxfl.algorithms import ALGORITHMS
from jaxfl.core.types import Federation
from jaxfl.experiment.pictures import drawing
from jaxfl.experiment.store import files
from jaxfl.models.convolution.conv import conv
from jaxfl.models.norm import GroupNorm
from jaxfl.models.vit import ViT

METHODS = ("local", "fedavg", "fedavg_ft", "fedper", "ditto", "fedala", "pfedgraph")
MARKERS = "osD^vP"
SMOKE = {
    "dataset": "digits",
    "models": ("resnet8",),
    "methods": ("local", "fedavg"),
    "rounds": 1,
    "seeds": 1,
    "examples": 20,
}
CLIENTS = 10
GROUPS = 8


def convolution(width: int, side: int, stride: int) -> nn.Module:
    """A convolution without bias that is fast with a kernel for each client."""
    return nn.Conv(
        width,
        (side, side),
        (stride, stride),
        use_bias=False,
        conv_general_dilated=conv,
    )


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut, each with group normalisation."""

    width: int
    stride: int

    @nn.compact
    def __call__(self, x):
        """[B, h, w, c] -> [B, h / stride, w / stride, width], rounded up."""

        def layer(x, side, stride):
            x = convolution(self.width, side, stride)(x)
            return GroupNorm(GROUPS)(x)

        y = layer(nn.relu(layer(x, 3, self.stride)), 3, 1)
        return nn.relu(y + (x if x.shape == y.shape else layer(x, 1, self.stride)))


class ResNet18(nn.Module):
    """ResNet-18 (He et al., 2016, table 1) with group normalisation, 11.2 million parameters.

    Images of 32 pixels are of 8 before the first block, as its first layers divide by four.
    """

    outputs: int

    head = "head"

    @nn.compact
    def __call__(self, x):
        """[B, h, w, c] -> [B, outputs]."""
        x = convolution(64, 7, 2)(x)
        x = nn.max_pool(nn.relu(GroupNorm(GROUPS)(x)), (3, 3), (2, 2), "SAME")
        for stage, width in enumerate((64, 128, 256, 512)):
            for number in range(2):
                x = Block(width, 2 if stage and number == 0 else 1)(x)
        return nn.Dense(self.outputs, name=self.head)(x.mean(axis=(1, 2)))


MODELS = {
    "lenet": jaxfl.models.lenet,
    "resnet8": jaxfl.models.resnet8,
    "vit": lambda outputs: ViT(outputs, width=64, depth=6, heads=4),
    "resnet18": ResNet18,
}


def make_case(model: str, source: jaxfl.data.Source, beta: float, examples: int) -> Case:
    """A model, and clients of at most so many examples, half of which they are tested on."""
    task = jaxfl.classification(
        MODELS[model](source.classes),
        source.x_train[0],
        scale=source.scale,
        shift=source.shift,
        steps=10,
        batch_size=16,
        optimizer=optax.adam(1e-3),
    )

    def federation(seed: int) -> Federation:
        parts = jaxfl.data.dirichlet(source.y_train, CLIENTS, seed, beta)
        rng = np.random.default_rng(seed)
        few = [rng.permutation(rows)[:examples] for rows in parts]
        return jaxfl.data.federate(source, few, test="own", test_fraction=0.5, val=0.0)

    return Case(task, federation, None, CLIENTS)


def picture(results: dict[str, dict[str, list[float]]]) -> bytes:
    """A line a method over the models, less the score of local training."""
    figure, (panel,) = drawing.canvas(1, width=6.0)
    models = list(results)
    # Told apart in grey by their markers.
    looks = zip(METHODS[1:], drawing.COLOURS, MARKERS, strict=False)
    for name, colour, marker in looks:
        if name in results[models[0]]:
            line = [np.mean(each[name]) - np.mean(each["local"]) for each in results.values()]
            panel.plot(line, color=colour, marker=marker, markersize=5, label=name)
    panel.axhline(0, color="0.5", linewidth=0.8)
    panel.set(title="accuracy above local training, points")
    panel.set_xticks(range(len(models)), models)
    panel.grid(alpha=0.25)
    panel.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return drawing.render(figure)


def rows_of(results: dict[str, dict[str, list[float]]]) -> list[tuple[str, ...]]:
    """A row a method, with the mean in % and the deviation over seeds in a column a model."""
    methods = list(next(iter(results.values())))
    return [(name, *(mean_text(each[name]) for each in results.values())) for name in methods]


def main(
    dataset: str = "cifar100",
    data_dir: str | None = None,
    out: Path = Path("runs/depth"),
    models: tuple[str, ...] = tuple(MODELS),
    methods: tuple[str, ...] = METHODS,
    rounds: int = 40,
    seeds: int = 3,
    beta: float = 0.1,
    examples: int = 600,
) -> None:
    """Runs what has no result yet, seed by seed, prints the table and writes it with its picture.

    Args:
      dataset: a name of `jaxfl list datasets`.
      data_dir: folder of the data; that of JAXFL_DATA_DIR if not given.
      out: directory to write. It keeps each result: a run that was stopped goes on with those that
        are missing.
      models: names of `MODELS`.
      methods: names of methods; the picture needs local.
      rounds: communication rounds.
      seeds: divisions of the data and initial models.
      beta: of the Dirichlet distribution of labels.
      examples: the most that a client has; half of them are its test set.
    """
    source = jaxfl.data.load(dataset, data_dir)
    settings: dict[str, Any] = {"dataset": dataset, "rounds": rounds, "beta": beta}
    settings["examples"] = examples
    kept = partial_results.load(out / RESULTS, settings)
    cases = {model: make_case(model, source, beta, examples) for model in models}
    for seed in range(seeds):
        for model in models:
            for name in methods:
                cell = f"{model}: {name}: {seed}"
                if cell in kept:
                    continue
                run = runner(cases[model], ALGORITHMS[name](cases[model].task), rounds)
                kept[cell] = {"score": run(seed)["score"]}
                partial_results.save(out / RESULTS, settings, kept)
                print(f"{cell}: {100 * kept[cell]['score'].mean():.1f}", flush=True)

    def scores(model: str, name: str) -> list[float]:
        return [100 * kept[f"{model}: {name}: {seed}"]["score"].mean() for seed in range(seeds)]

    results = {model: {name: scores(model, name) for name in methods} for model in models}
    header = ("accuracy, %", *models)
    table = Table(*header)
    lines = rows_of(results)
    for line in lines:
        table.add_row(*line)
    Console().print(table)
    markdown = [header, ("---", *["---:"] * len(models)), *lines]
    files.write_file(out / "table.md", "".join(f"| {' | '.join(line)} |\n" for line in markdown))
    files.write_file(out / "depth.png", picture(results))


if __name__ == "__main__":
    command(main)
