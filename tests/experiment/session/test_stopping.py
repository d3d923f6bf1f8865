"""Runs that `--stop-after` ends: where they end, that they are the beginning of the whole run."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from kill import content, same

from jaxfl.cli import main
from jaxfl.core.errors import InputError
from jaxfl.experiment import Config, compare, execute, plan, resume, work
from jaxfl.experiment.session.stopping import find_stop
from jaxfl.experiment.store import files
from jaxfl.experiment.store.finished_runs import load_finished
from jaxfl.experiment.store.read_records import read_summary
from jaxfl.experiment.studies.sweep import search
from jaxfl.experiment.tables.tables import table_cells

NOISY = Config(
    algorithm="fedper",
    dataset="mine",
    partition="iid",
    model="linear",
    clients=3,
    rounds=30,
    local_steps=2,
    batch_size=4,
    lr=0.5,
    val=0.4,
    test="own",
    score_after="none",
    checkpoint_every=4,
    devices=1,
)
K = 3


def write_data(folder):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 4)).astype(np.float32)
    y = (x @ rng.normal(size=(4, 3)) + rng.normal(size=(90, 3))).argmax(axis=1)
    np.savez(folder / "mine.npz", x_train=x, y_train=y)


def stop_by_hand(val, rounds, k):
    """The last round and the best one: a loop that keeps a count, as a person would."""
    best, best_round, waiting = -np.inf, None, 0
    for row, number in zip(val, rounds, strict=True):
        mean = np.nanmean(row)
        if mean > best:
            best, best_round, waiting = mean, number, 0
        else:
            waiting += 1
        if waiting == k:
            return int(number), int(best_round)
    return None


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A whole run, and the same run under `--stop-after`."""
    folder = tmp_path_factory.mktemp("runs")
    write_data(folder)
    config = dataclasses.replace(NOISY, data_dir=str(folder))
    execute(config, folder / "whole")
    execute(dataclasses.replace(config, stop_after=K), folder / "stopped")
    return folder


def arrays(file):
    with np.load(file) as content:
        return dict(content)


@pytest.mark.slow
def test_a_run_ends_after_so_many_evaluations_without_a_gain(runs):
    whole = arrays(runs / "whole/clients.npz")
    last, best = stop_by_hand(whole["deployed_val"], whole["round"], K)
    assert 1 < best < last < 30
    summary = read_summary(runs / "stopped/summary.json")
    assert summary["stopped"] == {"round": last, "best_round": best}
    assert summary["rounds"] == last
    assert "stopped" not in read_summary(runs / "whole/summary.json")


@pytest.mark.slow
def test_it_is_the_beginning_of_the_whole_run(runs):
    whole, stopped = arrays(runs / "whole/clients.npz"), arrays(runs / "stopped/clients.npz")
    count = len(stopped["round"])
    for name in ("round", "deployed_val", "deployed_test"):
        np.testing.assert_array_equal(stopped[name], whole[name][:count])
    graph, long = arrays(runs / "stopped/graph.npz"), arrays(runs / "whole/graph.npz")
    assert "rounds" not in graph
    for name in graph:
        np.testing.assert_array_equal(graph[name], long[name][:count])
    lines = (runs / "stopped/metrics.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])["deployed"]
    assert read_summary(runs / "stopped/summary.json")["final"]["deployed"] == last


def test_the_mean_over_the_seeds_decides():
    # The first seed rises all the time, the second falls faster until the last evaluation.
    scores = np.array([[[1.0, 3.0], [9.0, np.nan]], [[2.0, 4.0], [5.0, 5.0]], [[3, 5], [1, 1]]])
    assert find_stop(scores, [2, 4, 6], 2) == {"round": 6, "best_round": 2}
    assert find_stop(scores[:, :1], [2, 4, 6], 2) is None
    assert find_stop(scores, [2, 4, 6], None) is None
    assert find_stop(np.full((9, 2, 2), np.nan), range(9), 2) is None


def test_an_equal_score_is_no_gain():
    scores = np.array([0.5, 0.5, 0.5])[:, None, None]
    assert find_stop(scores, [1, 2, 3], 2) == {"round": 3, "best_round": 1}


@pytest.mark.slow(seconds=9)
@pytest.mark.parametrize("after", [1, 5])
def test_a_stopped_process_goes_on_to_the_same_end(after, runs, tmp_path):
    config = dataclasses.replace(NOISY, data_dir=str(runs), stop_after=K)
    lines = []

    def follow(config, line):
        lines.extend([] if line is None else [line])
        if len(lines) == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(config, tmp_path / "x", follow=follow)
    resume(tmp_path / "x")
    assert same(content(tmp_path / "x"), content(runs / "stopped"))


@pytest.mark.slow
def test_a_checkpoint_of_the_end_is_the_end(runs, tmp_path):
    shutil.copytree(runs / "stopped", tmp_path / "x")
    last = read_summary(tmp_path / "x/summary.json")["rounds"]
    assert files.checkpoints(tmp_path / "x")[-1].name == f"{last:06}"
    (tmp_path / "x/summary.json").unlink()
    (tmp_path / "x/models.npz").unlink()
    resume(tmp_path / "x")
    assert same(content(tmp_path / "x"), content(runs / "stopped"))


@pytest.mark.slow
def test_more_rounds_do_not_change_it(runs, capsys):
    last = read_summary(runs / "stopped/summary.json")["rounds"]
    for options in ([], ["--rounds", "60"]):
        assert main(["resume", str(runs / "stopped"), *options]) == 2
        (error,) = capsys.readouterr().err.splitlines()
        assert f"is finished: --stop-after 3 ended it after round {last}" in error


@pytest.mark.slow
def test_without_validation_data_it_is_refused(runs, tmp_path):
    config = dataclasses.replace(NOISY, data_dir=str(runs), stop_after=K, val=0.0)
    with pytest.raises(InputError, match="no client whose scores count has validation data"):
        execute(config, tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_a_search_refuses_it(runs, tmp_path):
    config = dataclasses.replace(NOISY, data_dir=str(runs))
    with pytest.raises(InputError, match="--stop-after is given, and all trials"):
        search(config, [{"stop_after": 2}], tmp_path / "x")


def of_three(runs):
    """Methods that are stopped at different rounds, and one that is not."""
    config = dataclasses.replace(NOISY, data_dir=str(runs), stop_after=K)
    slow = {"algorithm": "local", "lr": 1e-4, "stop_after": None, "rounds": 12}
    return [
        config,
        dataclasses.replace(config, algorithm="fedavg", rounds=12, keep_weights="last"),
        dataclasses.replace(config, **slow),
    ]


@pytest.mark.slow(seconds=11)
def test_a_comparison_of_runs_of_different_lengths(runs, tmp_path):
    configs = of_three(runs)
    compare(configs, tmp_path / "x")
    finished = load_finished([tmp_path / "x"])
    rounds = {name: run.summary["rounds"] for name, run in finished.items()}
    assert len({*rounds.values()}) > 1
    cells = table_cells(finished)
    column = cells.titles.index("last round")
    assert {name: int(row[column]) for name, row in cells.rows if name in rounds} == rounds
    assert rounds["local"] == 12
    graph = arrays(tmp_path / "x/fedavg/graph.npz")
    assert graph["rounds"].tolist() == [rounds["fedavg"]]
    assert rounds["fedavg"] < 12
    assert main(["report", str(tmp_path / "x"), "--html", str(tmp_path / "page.html")]) == 0
    plan(configs, tmp_path / "shared")
    assert work(tmp_path / "shared") == {}
    for name in rounds:
        assert same(content(tmp_path / "shared" / name), content(tmp_path / "x" / name))


@pytest.mark.slow(seconds=8)
def test_a_comparison_with_more_rounds_leaves_a_stopped_run(runs, tmp_path):
    config = dataclasses.replace(NOISY, data_dir=str(runs), stop_after=K)
    slow = dataclasses.replace(config, algorithm="local", lr=1e-4, stop_after=None)
    compare([config, slow], tmp_path / "x")
    before = content(tmp_path / "x/fedper")
    assert main(["resume", str(tmp_path / "x"), "--rounds", "32"]) == 0
    assert same(content(tmp_path / "x/fedper"), before)
    assert read_summary(tmp_path / "x/local/summary.json")["rounds"] == 32


@pytest.mark.slow
def test_noise_has_no_guarantee_then(runs, tmp_path):
    config = dataclasses.replace(
        NOISY, algorithm="fedavg", data_dir=str(runs), stop_after=1, clip=1.0, noise=1.0
    )
    privacy = execute(config, tmp_path / "x").get("privacy")
    assert privacy["epsilon"] is None
    assert "when the run ends" in privacy["assumes"][0]
