"""Clients that take part in no round: who they are, and their scores apart from the others."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxfl.cli import main
from jaxfl.experiment import Setting
from jaxfl.experiment.session.gather import malicious, unseen
from jaxfl.experiment.store.records import RunRecord
from jaxfl.experiment.tables.formats import markdown
from jaxfl.experiment.tables.sections import sections
from jaxfl.simulation import participation
from jaxfl.simulation.statistics import select_on_val

SHORT = ["--rounds", "2", "--local-steps", "3", "--model", "linear", "--clients", "10"]


def load(file):
    return json.loads(Path(file).read_text())


def test_a_participation_among_some_clients_names_no_other():
    ids = np.array([1, 4, 7, 8])
    sample = participation.among(ids, participation.uniform(4, 0.5))
    drawn = [sample(jax.random.key(seed), 0).tolist() for seed in range(40)]
    assert {client for cohort in drawn for client in cohort} == set(ids.tolist())
    assert all(len(set(cohort)) == 2 for cohort in drawn)


def test_newcomers_are_benign():
    plain = Setting(clients=10, partition="iid", unseen=0.3)
    nobody = malicious(plain, 10)
    assert unseen(plain, nobody).sum() == 3
    attacked = Setting(clients=10, unseen=0.3, attack="gauss", malicious=(0, 1, 2, 5, 8, 9))
    attackers = malicious(attacked, 10)
    assert unseen(attacked, attackers).sum() == 3
    assert not (unseen(attacked, attackers) & attackers).any()
    assert unseen(Setting(unseen=0.01), nobody).sum() == 1
    assert not unseen(Setting(), nobody).any()


@pytest.mark.slow
def test_newcomers_have_scores_of_their_own_and_no_part_in_the_rounds(tmp_path, capsys):
    out = tmp_path / "x"
    options = ["--partition", "iid", "--unseen", "0.3", "--participation", "0.5"]
    options += ["--eval-on", "participants", "--seeds", "2", "--out", str(out)]
    assert main(["run", "fedavg", *SHORT, *options]) == 0
    with np.load(out / "clients.npz") as clients, np.load(out / "graph.npz") as graph:
        newcomers = clients["unseen"]
        assert newcomers.sum() == 3
        ids = graph["ids"]  # [S, T, M]
        assert ids.shape == (2, 2, 4)  # half of the seven others, rounded
        assert not newcomers[ids].any()
        scores = {
            stage: clients[f"{stage}_test"] for stage in ("deployed", "fine_tuned")
        }  # [S, E, C]
        val = clients["deployed_val"]
    summary = load(out / "summary.json")
    for stage, found in scores.items():
        assert not np.isnan(found[..., newcomers]).any()
        last = found[:, -1]
        means = [seed[stage]["mean"] for seed in summary["unseen"]["seeds"]]
        assert means == pytest.approx(last[:, newcomers].mean(axis=1).tolist(), abs=1e-6)
        assert summary["unseen"][stage]["mean"] == pytest.approx(np.mean(means))
        others = np.nanmean(last[:, ~newcomers], axis=1).mean()
        assert summary["final"][stage]["mean"] == pytest.approx(others, abs=1e-6)
    chosen = [select_on_val(*pair) for pair in zip(val, scores["deployed"], strict=True)]
    expected = np.nanmean(np.array(chosen)[:, ~newcomers], axis=1).mean()
    found = summary["selected_on_val"]["deployed"]["mean"]
    assert found == pytest.approx(float(expected), abs=1e-6)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["unseen"] == summary["unseen"]
    shown = capsys.readouterr().out.splitlines()
    assert any(line.strip().startswith("fedavg, ") for line in shown)  # "unseen" may be folded


def test_a_table_has_a_row_of_newcomers_where_a_run_has_some():
    def stages(mean):
        scores = {"mean": mean, "weighted": mean, "std": 0.0, "worst10": mean}
        return {"deployed": scores, "fine_tuned": scores}

    summary = dict.fromkeys(("up", "down", "up_bytes", "batches", "seconds"), 1)
    summary |= {"measure": "accuracy", "final": stages(0.5), "selected_on_val": stages(0.25)}
    summary |= {"algorithm": "fedavg"}
    with_newcomers = summary | {"final": stages(0.75), "unseen": stages(0.125)}
    runs = {"one": RunRecord(summary, []), "other": RunRecord(with_newcomers, [])}
    table = markdown(sections(runs)).replace("**", "").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[:5]]
    titles, _, *found = cells
    assert titles[:4] == ["method", "accuracy", "worst clients", "fine-tuned"]
    assert [row[:4] for row in found] == [
        ["other", "75.0", "75.0", "75.0"],
        ["other, unseen", "12.5", "12.5", "12.5"],
        ["one", "50.0", "50.0", "50.0"],
    ]
    assert {len(row) for row in found} == {len(titles)}
    assert "unseen: clients that took part in no round" in table[-1]
    assert "unseen" not in markdown(sections({"one": RunRecord(summary, [])}))
