"""What the lines of a run say: lost uploads, clients that diverged, scores that are no numbers."""

import dataclasses
import json

import numpy as np
import pytest

from jaxfl.cli import main
from jaxfl.core.errors import Diverged
from jaxfl.experiment import Config, execute, resume

SMALL = Config(
    algorithm="fedavg",
    rounds=7,
    local_steps=2,
    model="linear",
    clients=6,
    partition="iid",
    participation=0.5,
    eval_every=3,
    devices=1,
)


@pytest.mark.slow
def test_what_all_seeds_have_lost_does_not_depend_on_how_often_it_is_counted(tmp_path):
    config = dataclasses.replace(SMALL, algorithm="fedavg", rounds=12, drop=0.1, seeds=2)
    counted = []
    for every in (1, 12):
        often = dataclasses.replace(config, eval_every=every, checkpoint_every=None)
        found = execute(often, tmp_path / str(every))
        counted.append({way: found[way] for way in ("reported", "lost", "batches")})
    assert counted[0] == counted[1]


@pytest.mark.slow
def test_divergence_is_named_or_stops_the_run(tmp_path, monkeypatch, capsys):
    options = [
        "--rounds",
        "3",
        "--local-steps",
        "3",
        "--model",
        "linear",
        "--clients",
        "5",
        "--lr",
        "1e38",
    ]
    assert main(["run", "fedavg_ft", *options, "--out", str(tmp_path / "x")]) == 0
    rows = [json.loads(row) for row in (tmp_path / "x/metrics.jsonl").read_text().splitlines()]
    assert [row["diverged"] for row in rows] == [[0, 1, 2, 3, 4]] * 3
    assert json.loads((tmp_path / "x/summary.json").read_text())["diverged"] == dict.fromkeys(
        "01234", 3
    )
    (line,) = [one for one in capsys.readouterr().err.splitlines() if "not finite" in one]
    assert line.startswith("jaxfl: 5 of 5 clients of the run in ")
    assert "(client 0, 1, 2, 3, 4; diverged in summary.json): lower --lr" in line
    assert (
        main(["run", "fedavg_ft", *options, "--out", str(tmp_path / "y"), "--fail-on-divergence"])
        == 1
    )
    assert (
        "an update of client 0, 1, 2, 3, 4 was not finite, by round 1: lower --lr"
        in capsys.readouterr().err
    )
    assert (tmp_path / "y/metrics.jsonl").read_text().count("\n") == 1


@pytest.mark.slow
def test_who_stops_at_divergence_does_not_resume_over_it(tmp_path):
    config = dataclasses.replace(
        SMALL, algorithm="fedavg", seeds=1, lr=1e38, fail_on_divergence=True
    )
    with pytest.raises(Diverged, match=r"was not finite, by round \d: lower --lr"):
        execute(config, tmp_path / "x")
    with pytest.raises(Diverged):
        resume(tmp_path / "x")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:4 of 4 clients .* not finite")
def test_errors_too_large_to_square_are_numbers_in_the_files(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3)).astype(np.float32)
    np.savez(tmp_path / "line.npz", x_train=x, y_train=x.sum(1), x_test=x, y_test=x.sum(1))
    options = {
        "dataset": "line",
        "data_dir": str(tmp_path),
        "algorithm": "fedavg",
        "lr": 1e3,
        "local_steps": 4,
    }
    summary = execute(Config(rounds=2, clients=4, **options), tmp_path / "x")
    assert all(np.isfinite(value) for value in summary["final"]["deployed"].values())
