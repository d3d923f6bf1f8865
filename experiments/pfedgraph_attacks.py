"""Poisoned models (pFedGraph, table 3 and figure 3): accuracy and mixing weights under each attack.

`python -m experiments.pfedgraph_attacks [--out DIR]`: digits, ten clients with IID data, four of
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
SMOKE = {"rounds": 1, "local_steps": 1, "attacks": ("none", "sign_flip")}


def accuracies(
    out: Path, rounds: int, local_steps: int, attacks: tuple[str, ...]
) -> dict[str, dict[str, float]]:
    """Attack -> algorithm -> mean accuracy of the benign clients.

    No attack can affect local training, so it runs without attack only.
    """
    setting = Config(
        partition="iid",
        rounds=rounds,
        local_steps=local_steps,
        eval_every=rounds,
        attack_ratio=0.4,
    )
    found = {}
    for attack in attacks:
        setting = dataclasses.replace(setting, attack=None if attack == "none" else attack)
        names = ALGORITHMS if attack == "none" else ALGORITHMS[1:]
        configs = [dataclasses.replace(setting, algorithm=name) for name in names]
        summaries = compare(configs, out / attack, overwrite=True)
        found[attack] = {name: s["final"]["before"]["mean"] for name, s in summaries.items()}
    return found


def picture(found: dict[str, dict[str, float]]) -> bytes:
    """Accuracy under each attack."""
    figure, (bars,) = drawing.canvas(1, width=7.0, height=3.8)
    positions = np.arange(len(found))
    for i, name in enumerate(ALGORITHMS[1:]):
        heights = [100 * row[name] for row in found.values()]
        drawn = bars.bar(
            positions + 0.3 * (i - 0.5), heights, 0.28, label=name, color=drawing.COLOURS[i]
        )
        bars.bar_label(drawn, fmt="%.0f", fontsize=9)
    for height, label in ((100 * found["none"]["local"], "training alone"), (10, "chance")):
        bars.axhline(height, color="0.4", linewidth=1, linestyle=":", zorder=0)
        bars.text(len(found) - 0.5, height + 1, label, ha="left", fontsize=9, color="0.4")
    bars.set_xticks(positions, [name.replace("_", " ") for name in found])
    bars.set(
        ylabel="accuracy of the benign clients, %",
        title="four of ten clients are malicious",
        ylim=(0, 118),
    )
    bars.set_xlim(-0.6, len(found) + 0.3)
    bars.legend(frameon=False, ncols=2, loc="upper center")
    return drawing.png(figure)


def main(
    out: Path = Path("runs/pfedgraph_attacks"),
    rounds: int = 12,
    local_steps: int = 60,
    attacks: tuple[str, ...] = ATTACKS,
) -> None:
    """Runs every attack, prints the table, and writes it with its picture.

    `ATTACK/pfedgraph/graph.png` shows the mixing weights.

    Args:
      out: directory to write.
      rounds: communication rounds.
      local_steps: local steps per round.
      attacks: names of attacks, with "none" among them.
    """
    found = accuracies(out, rounds, local_steps, attacks)
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
