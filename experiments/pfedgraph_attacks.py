"""Poisoned models (pFedGraph, Table 3 and Figure 3): who survives each attack, and whom the benign clients listen to.

`python -m experiments.pfedgraph_attacks [--out DIR]`: digits, ten clients with like data, four of them malicious.
"""

import dataclasses
import json
from pathlib import Path

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from jaxfl.experiment import Config, compare, plots
from jaxfl.uplink import ATTACKS, malicious_clients

ALGORITHMS = ("local", "fedavg", "pfedgraph")
SETTING = Config(partition="iid", rounds=12, local_steps=60, eval_every=12, attack_ratio=0.4)


def accuracies(out: Path) -> dict[str, dict[str, float]]:
    """Attack ("none" first) -> algorithm -> mean accuracy of the benign clients."""
    found = {}
    for attack in (None, *ATTACKS):
        configs = [dataclasses.replace(SETTING, attack=attack, algorithm=name) for name in ALGORITHMS]
        summaries = compare(configs, out / (attack or "none"), overwrite=True)
        found[attack or "none"] = {name: s["final"]["before"]["mean"] for name, s in summaries.items()}
    return found


def trust(out: Path, attack: str) -> np.ndarray:
    """Weight that a benign client of pFedGraph gives the malicious ones, by round, mean over the benign [T]."""
    malicious = malicious_clients(SETTING.clients, SETTING.attack_ratio)
    with np.load(out / attack / "pfedgraph" / "graph.npz", allow_pickle=False) as arrays:
        return arrays["weights"][:, ~malicious][:, :, malicious].sum(axis=2).mean(axis=1)


def picture(found: dict[str, dict[str, float]], out: Path) -> bytes:
    """Accuracy under each attack, and the trust in the malicious clients by round."""
    figure, (bars, curves) = plots.canvas(2, width=5.6)
    places = np.arange(len(found))
    for i, name in enumerate(ALGORITHMS):
        heights = [100 * row[name] for row in found.values()]
        bars.bar(places + 0.27 * (i - 1), heights, 0.25, label=name, color=plots.COLOURS[i])
    bars.axhline(10, color="0.5", linewidth=1, linestyle=":")
    bars.text(len(found) - 0.55, 11, "chance", ha="right", fontsize=8, color="0.4")
    bars.set_xticks(places, [name.replace("_", "\n") for name in found])
    bars.set(ylabel="accuracy of the benign clients, %", title="four of ten clients attack", ylim=(0, 118))
    bars.legend(frameon=False, ncols=3, loc="upper center")
    for i, attack in enumerate(ATTACKS):
        curves.plot(1 + np.arange(SETTING.rounds), trust(out, attack), color=plots.COLOURS[3 + i], label=attack)
    curves.axhline(0.4, color="0.5", linewidth=1, linestyle=":")
    curves.text(1, 0.41, "FedAvg gives them .4", fontsize=8, color="0.4")
    curves.set(xlabel="round", title="pFedGraph: weight of the malicious at a benign client", ylim=(-0.02, 0.5))
    curves.legend(frameon=False)
    return plots.png(figure)


def main(out: Path = Path("runs/pfedgraph_attacks")) -> None:
    """Runs every attack, prints the table, and writes it with its picture.

    Args:
      out: directory to write.
    """
    found = accuracies(out)
    table = Table("attack", *ALGORITHMS)
    for attack, row in found.items():
        table.add_row(attack, *(f"{100 * row[name]:.1f}" for name in ALGORITHMS))
    Console().print(table)
    (out / "accuracy.json").write_text(json.dumps(found, indent=2) + "\n")
    (out / "attacks.png").write_bytes(picture(found, out))


if __name__ == "__main__":
    tyro.cli(main)
