"""Poisoned models (pFedGraph, Table 3 and Figure 3): who survives each attack, and whom the clients then listen to.

`python -m experiments.pfedgraph_attacks [--out DIR]`: digits, ten clients with like data, four of
them malicious.
"""

import dataclasses
import json
from pathlib import Path

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from jaxfl.experiment import Config, compare
from jaxfl.experiment.show import drawing

ALGORITHMS = ("local", "fedavg", "pfedgraph")
ATTACKS = ("none", "shuffle", "same_value", "sign_flip", "gauss")
SETTING = Config(partition="iid", rounds=12, local_steps=60, eval_every=12, attack_ratio=0.4)


def accuracies(out: Path) -> dict[str, dict[str, float]]:
    """Attack -> algorithm -> mean accuracy of the benign clients; local, whom no attack reaches, only without."""
    found = {}
    for attack in ATTACKS:
        setting = dataclasses.replace(SETTING, attack=None if attack == "none" else attack)
        names = ALGORITHMS if attack == "none" else ALGORITHMS[1:]
        configs = [dataclasses.replace(setting, algorithm=name) for name in names]
        summaries = compare(configs, out / attack, overwrite=True)
        found[attack] = {name: s["final"]["before"]["mean"] for name, s in summaries.items()}
    return found


def picture(found: dict[str, dict[str, float]]) -> bytes:
    """Accuracy under each attack."""
    figure, (bars,) = drawing.canvas(1, width=7.0, height=3.8)
    places = np.arange(len(found))
    for i, name in enumerate(ALGORITHMS[1:]):
        heights = [100 * row[name] for row in found.values()]
        drawn = bars.bar(
            places + 0.3 * (i - 0.5), heights, 0.28, label=name, color=drawing.COLOURS[i]
        )
        bars.bar_label(drawn, fmt="%.0f", fontsize=9)
    for height, what in ((100 * found["none"]["local"], "training alone"), (10, "chance")):
        bars.axhline(height, color="0.4", linewidth=1, linestyle=":", zorder=0)
        bars.text(len(found) - 0.5, height + 1, what, ha="left", fontsize=9, color="0.4")
    bars.set_xticks(places, [name.replace("_", " ") for name in found])
    bars.set(
        ylabel="accuracy of the benign clients, %",
        title="four of ten clients attack",
        ylim=(0, 118),
    )
    bars.set_xlim(-0.6, len(found) + 0.3)
    bars.legend(frameon=False, ncols=2, loc="upper center")
    return drawing.png(figure)


def main(out: Path = Path("runs/pfedgraph_attacks")) -> None:
    """Runs every attack, prints the table, and writes it with its picture; `ATTACK/pfedgraph/graph.png` is the graph.

    Args:
      out: directory to write.
    """
    found = accuracies(out)
    table = Table("attack", *ALGORITHMS)
    for attack, row in found.items():
        table.add_row(
            attack, *(f"{100 * row[name]:.1f}" if name in row else "" for name in ALGORITHMS)
        )
    Console().print(table)
    (out / "accuracy.json").write_text(json.dumps(found, indent=2) + "\n")
    (out / "attacks.png").write_bytes(picture(found))


if __name__ == "__main__":
    tyro.cli(main)
