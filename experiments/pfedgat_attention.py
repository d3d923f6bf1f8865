"""Does pFedGAT find the clients with the same digits? The mixing weights of its variants.

Ten clients hold two of the ten digits each, in five pairs with the same two digits (pathological),
or a tenth of everything (IID). Of a data set with more labels, each client holds a fifth of them.
For each variant, both federations of all seeds train side by side in one program.

`python -m experiments.pfedgat_attention [--dataset cifar10 --data-dir DIR] [--out DIR]`

pFedGAT's own protocol is `--dataset cifar10 --model lenet --local-epochs 5`.
"""

from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from experiments.command import command
from jaxfl.data import iid, load, pathological
from jaxfl.experiment import Config, Setting, build, resolve
from jaxfl.experiment.pictures import drawing
from jaxfl.experiment.session.gather import Data, make_federation
from jaxfl.experiment.session.make_program import compile_run
from jaxfl.experiment.session.run_program import records
from jaxfl.experiment.store import files
from jaxfl.simulation.evaluation import by_stage

CLIENTS = 10
GROUPS = 5
GROUP = np.arange(CLIENTS) % GROUPS  # pathological clients of a group hold the same labels
ORDER = np.argsort(GROUP, kind="stable")
SAME = GROUP[:, None] == GROUP
VARIANTS = {  # the first is the published method; eta is 0.01 unless it is given
    "GAT, models": {},
    "GATv2, models": {"attention": "gatv2"},
    "GAT, updates": {"feature": "update"},
    "GATv2, updates": {"attention": "gatv2", "feature": "update"},
    "GAT, round": {"feature": "round"},
    "GATv2, round": {"attention": "gatv2", "feature": "round"},
    "dot, round": {"attention": "dot", "feature": "round", "eta": 0.001},
    "free": {"attention": "free", "eta": 0.1},
}
SMOKE = {"rounds": 1, "local_steps": 1, "variants": ("GAT, models",)}


def main(
    dataset: str = "digits",
    data_dir: str | None = None,
    model: str = "mlp",
    out: Path = Path("runs/pfedgat_attention"),
    rounds: int = 40,
    seeds: int = 1,
    local_steps: int = 50,
    local_epochs: int | None = None,
    batch_size: int = 64,
    variants: tuple[str, ...] = tuple(VARIANTS),
) -> None:
    """Runs every variant, writes pictures and numbers, prints the table.

    Args:
      dataset: name of the data set, with 10 labels or a multiple of 5.
      data_dir: folder of the data; that of JAXFL_DATA_DIR if not given.
      model: name of the model.
      out: directory to write.
      rounds: communication rounds.
      seeds: partitions and initial models.
      local_steps: local steps per round.
      local_epochs: local epochs per round, in place of steps.
      batch_size: examples in a local step.
      variants: names of `VARIANTS`.
    """
    files.make_directory(out)
    source = load(dataset, data_dir)
    labels = source.y_train
    count = source.classes // GROUPS
    parts = [pathological(labels, CLIENTS, seed, count) for seed in range(seeds)]
    parts += [iid(labels, CLIENTS, seed) for seed in range(seeds)]
    data = Data(source, parts, make_federation(source, parts, Setting(test="reweighted")))
    console = Console()
    results = {}
    for name in variants:
        config = Config(
            dataset=dataset,
            data_dir=data_dir,
            model=model,
            algorithm="pfedgat",
            hyper=VARIANTS[name],
            rounds=rounds,
            eval_every=rounds,
            local_steps=None if local_epochs else local_steps,
            local_epochs=local_epochs,
            batch_size=batch_size,
            seeds=len(parts),
            devices=1,
        )
        (record,) = records(compile_run(build(resolve(config, source), data)))
        results[name] = measure(record, seeds)
        console.print(f"{name}: weight {results[name]['own'][-1]:.2f} on the own pair")
    files.write_file(out / "weights.png", heat_maps(results))
    files.write_file(out / "rounds.png", curves(results))
    rows = [row(name, result) for name, result in results.items()]
    table = Table(*rows[0])
    for each in rows:
        table.add_row(*each.values())
    console.print(table)
    files.write_file(out / "table.md", markdown(rows))
    files.write_json(
        out / "results.json", {n: {k: v.tolist() for k, v in r.items()} for n, r in results.items()}
    )


def measure(record: Any, seeds: int) -> dict[str, np.ndarray]:
    """The results of a run: means over clients and seeds by round [T], and the last weights.

    The weights are those of the first seed.
    """
    weights = np.asarray(record.info.weights, np.float64).reshape(2, seeds, -1, CLIENTS, CLIENTS)
    entropy = -(weights * np.log(np.maximum(weights, 1e-30))).sum(axis=-1).mean(axis=(1, 3))
    stages = by_stage(record.evaluation)
    numbers = {
        # A client's weight on its own pair, itself included.
        "own": (weights[0] * SAME).sum(axis=-1).mean(axis=(0, 2)),
        "entropy": entropy[0],
        "iid_entropy": entropy[1],
        # The largest distance of a weight from 1 / N.
        "iid_distance": np.abs(weights[1] - 1 / CLIENTS).max(axis=(0, 2, 3)),
        "pathological_weights": weights[0, 0, -1],
        "iid_weights": weights[1, 0, -1],
    }
    for i, partition in enumerate(("pathological", "iid")):
        for stage, scores in stages.items():
            numbers[f"{partition}_{stage}"] = scores.test.reshape(2, -1)[i].mean()
    return numbers


def row(name: str, result: dict[str, np.ndarray]) -> dict[str, str]:
    """A line of the table."""
    return {
        "weights from": name,
        "eta": f"{VARIANTS[name].get('eta', 0.01):g}",
        "own pair": f"{result['own'][-1]:.2f}",
        "entropy": f"{result['entropy'][-1]:.2f}",
        "deployed": f"{100 * result['pathological_deployed']:.1f}",
        "fine-tuned": f"{100 * result['pathological_fine_tuned']:.1f}",
        "IID: largest distance from 1/N": f"{result['iid_distance'][-1]:.3f}",
        "IID: deployed": f"{100 * result['iid_deployed']:.1f}",
    }


def markdown(rows: list[dict[str, str]]) -> str:
    """The table for the documentation."""
    lines = [
        list(rows[0]),
        ["---", *["---:"] * (len(rows[0]) - 1)],
        *(list(r.values()) for r in rows),
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def heat_maps(results: dict[str, dict[str, np.ndarray]]) -> bytes:
    """The last weights of every variant, pathological in the upper row and IID in the lower one."""
    figure, panels = drawing.canvas(len(results), width=2.1, height=2.6)
    figure.clear()
    figure.set_size_inches(2.1 * len(results), 5.0)
    panels = figure.subplots(2, len(results), squeeze=False)
    for column, (name, result) in zip(panels.T, results.items(), strict=True):
        for panel, partition in zip(column, ("pathological", "iid"), strict=True):
            weights = result[f"{partition}_weights"]
            ids = ORDER if partition == "pathological" else np.arange(CLIENTS)
            image = panel.imshow(weights[np.ix_(ids, ids)], cmap="Blues", vmin=0, vmax=0.5)
            panel.set_xticks([])
            panel.set_yticks([])
            panel.spines[:].set_visible(False)
        column[0].set_title(f"{name}\nown pair {result['own'][-1]:.2f}", fontsize=10)
    panels[0, 0].set_ylabel("pathological\nreceiver, pairs side by side")
    panels[1, 0].set_ylabel("IID\nreceiver")
    panels[1, 0].set_xlabel("sender")
    figure.colorbar(image, ax=panels, shrink=0.7, label="weight (1/N = 0.1)", extend="max")
    return drawing.render(figure)


def curves(results: dict[str, dict[str, np.ndarray]]) -> bytes:
    """The weight of pathological clients on their own pair, and entropies, by round."""
    figure, (pairs, entropy) = drawing.canvas(2, width=5.6)
    for colour, (name, result) in zip(drawing.COLOURS, results.items(), strict=False):
        rounds = np.arange(1, len(result["own"]) + 1)
        pairs.plot(rounds, result["own"], color=colour, label=name)
        entropy.plot(rounds, result["entropy"], color=colour)
        entropy.plot(rounds, result["iid_entropy"], color=colour, linestyle=":")
    pairs.axhline(0.3, color="0.6", linewidth=1, linestyle="--")
    pairs.text(1, 0.31, "the most that 8 heads of GAT can give to pairs", color="0.4", fontsize=8)
    pairs.set(xlabel="round", title="weight on the own pair (1/N each: 0.2)", ylim=(0, 1.02))
    entropy.legend(
        *pairs.get_legend_handles_labels(), frameon=False, fontsize=8, ncols=2, loc="lower left"
    )
    entropy.set(
        xlabel="round", title="entropy of the rows (dotted: IID)", ylim=(0, np.log(CLIENTS) + 0.05)
    )
    for panel in (pairs, entropy):
        panel.grid(alpha=0.25)
    return drawing.render(figure)


if __name__ == "__main__":
    command(main)
