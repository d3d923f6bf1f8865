"""Runs with a virtual clock: times of clients, late arrivals, and when a target is reached."""

import dataclasses
import json
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import DOCS, script
from finished_runs import run as finished_run
from kill import content, interrupt_after, same
from toys import opposite_groups, quick_key, shallow

from jaxfl.algorithms import ALGORITHMS, fedbuff
from jaxfl.cli import main
from jaxfl.core.errors import InputError
from jaxfl.core.facts import facts_of, method
from jaxfl.core.types import Cohort, State
from jaxfl.experiment import Config, build, execute, gather, resolve, resume
from jaxfl.experiment.tables.formats import markdown
from jaxfl.experiment.tables.sections import sections
from jaxfl.experiment.tables.target_score import pool_timed
from jaxfl.simulation import clock
from jaxfl.simulation.statistics import timed_summary

methods = script("methods")
SHORT = ["--rounds", "4", "--local-steps", "2", "--model", "linear", "--clients", "6"]
SHORT += ["--partition", "iid", "--participation", "0.34", "--score-after", "none"]
LATE = ["--speeds", ":arrivals=asynchronous"]


def lines_of(out):
    return [json.loads(line) for line in (Path(out) / "metrics.jsonl").read_text().splitlines()]


def summary_of(out):
    return json.loads((Path(out) / "summary.json").read_text())


@pytest.mark.slow
def test_clients_that_arrive_late_are_those_of_the_schedule(tmp_path, capsys):
    out = tmp_path / "x"
    options = ["--speeds", "1:seed=3", "--seeds", "2", "--target", "0.01"]
    assert main(["run", "pfedgraph", *SHORT, *LATE, *options, "--out", str(out)]) == 0
    ids, times = clock.arrivals(clock.log_normal(6, 1.0, seed=3), 2, 4)
    with np.load(out / "graph.npz") as graph:
        np.testing.assert_array_equal(graph["ids"], [np.sort(ids, axis=1)] * 2)
    lines = lines_of(out)
    assert [line["time"] for line in lines] == times.tolist()
    assert [line["times"] for line in lines] == [[time] * 2 for time in times]
    summary = summary_of(out)
    assert summary["time"] == times[-1]
    assert summary["target"]["round"] == 1
    assert summary["target"]["time"] == times[0]
    shown = " ".join(capsys.readouterr().out.split())
    assert "rounds to target: until the mean score is that of --target" in shown


@pytest.mark.slow
def test_a_synchronous_round_waits_for_its_slowest_client(tmp_path):
    np.save(tmp_path / "durations.npy", np.array([1, 2, 3, 4, 5, 60]))
    options = ["--durations", str(tmp_path / "durations.npy"), "--seeds", "2"]
    assert main(["run", "fedavg", *SHORT, *options, "--out", str(tmp_path / "x")]) == 0
    with np.load(tmp_path / "x/graph.npz") as graph:
        slowest = np.array([1, 2, 3, 4, 5, 60])[graph["ids"]].max(axis=-1)  # [S, T]
    lines = lines_of(tmp_path / "x")
    np.testing.assert_allclose(
        np.array([line["times"] for line in lines]).T, np.cumsum(slowest, axis=1)
    )
    assert lines[-1]["time"] == pytest.approx(slowest.sum(axis=1).mean())
    assert "target" not in summary_of(tmp_path / "x")


RESUMED = Config(
    algorithm="fedbuff",
    rounds=6,
    local_steps=2,
    model="linear",
    clients=6,
    partition="iid",
    participation=0.34,
    eval_every=2,
    checkpoint_every=3,
    score_after="none",
    speeds=0.7,
    target=0.02,
    devices=1,
)


@pytest.mark.slow
@pytest.mark.parametrize("arrivals", ["synchronous", "asynchronous"])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits_and_times(arrivals, tmp_path):
    config = dataclasses.replace(RESUMED, arrivals=arrivals)
    execute(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        execute(config, tmp_path / "x", follow=interrupt_after(1))
    resume(tmp_path / "x")
    assert same(content(tmp_path / "x"), content(tmp_path / "whole"))
    found, expected = (lines_of(tmp_path / name) for name in ("x", "whole"))
    assert [line["time"] for line in found] == [line["time"] for line in expected]
    found, expected = (summary_of(tmp_path / name) for name in ("x", "whole"))
    assert found["target"] == expected["target"]
    # A longer run begins with the steps of the shorter one.
    longer = resume(tmp_path / "x", rounds=8)
    assert longer["target"] == expected["target"]
    assert longer["time"] > expected["time"]


@pytest.mark.slow(seconds=4)
def test_durations_that_change_before_a_run_goes_on_are_refused(tmp_path):
    file = tmp_path / "durations.npy"
    np.save(file, np.arange(1, 7))
    config = dataclasses.replace(RESUMED, speeds=None, durations=str(file))
    with pytest.raises(KeyboardInterrupt):
        execute(config, tmp_path / "x", follow=interrupt_after(1))
    np.save(file, np.arange(2, 8))
    with pytest.raises(InputError, match="what the file of --durations holds has changed since"):
        resume(tmp_path / "x")


@pytest.mark.slow
def test_late_clients_on_disk_have_the_times_and_scores_of_those_in_memory(tmp_path):
    options = [*SHORT, *LATE, "--speeds", "1", "--keep", "models=none"]
    assert main(["run", "fedasync", *options, "--out", str(tmp_path / "memory")]) == 0
    options += ["--store", str(tmp_path / "data")]
    assert main(["run", "fedasync", *options, "--out", str(tmp_path / "disk")]) == 0
    for one, other in zip(lines_of(tmp_path / "memory"), lines_of(tmp_path / "disk"), strict=True):
        assert one["time"] == other["time"]
        assert one["deployed"] == pytest.approx(other["deployed"], abs=1e-6)
        assert one["metrics"] == pytest.approx(other["metrics"])


@pytest.mark.slow
def test_newcomers_arrive_never(tmp_path):
    options = [*SHORT, *LATE, "--speeds", "0.5", "--unseen", "0.3", "--participation", "0.5"]
    assert main(["run", "fedbuff", *options, "--out", str(tmp_path / "x")]) == 0
    with np.load(tmp_path / "x/graph.npz") as graph, np.load(tmp_path / "x/clients.npz") as clients:
        assert graph["ids"].shape == (4, 2)
        assert not clients["unseen"][graph["ids"]].any()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--speeds", "1", "--durations", "d.npy"], "both --speeds and --durations are given"),
        (
            LATE,
            "arrivals of --speeds is asynchronous, and has no effect without --speeds or",
        ),
        (["--speeds", ":seed=2"], "seed of --speeds is 2, and has no effect without --speeds"),
        (["--speeds", "-1"], "--speeds is -1.0: expected a number in [0, 10]"),
        (["--speeds", "1:arrivals=late"], "arrivals of --speeds is 'late': expected"),
        (["--durations", "none.npy"], "expected a .npy file that exists"),
        (
            ["--target", "80"],
            "--target is 80.0: expected a value of accuracy of at most 1, such as 0.8",
        ),
        (["--target", "0"], "--target is 0.0: expected a positive number"),
        (["--speeds", "1", *LATE], "fedavg train from the server's newest model"),
        (["--speeds", "1", *LATE, "--participation", "1"], "waits for all 6 clients"),
    ],
)
def test_options_that_make_no_sense_are_one_line(given, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["run", "fedavg", *SHORT, *given, "--out", "x"]) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert not Path("x").exists()


def test_a_method_that_does_not_say_where_its_clients_start_is_refused(tmp_path, monkeypatch):
    """No round is traced to find it out: the safe answer is taken, and the line says so."""

    def mine(task):
        return fedbuff(task)

    monkeypatch.setitem(ALGORITHMS, "mine", mine)
    late = dataclasses.replace(RESUMED, algorithm="mine", arrivals="asynchronous")
    with pytest.raises(InputError, match=r"mine train from the server's .* own says so by st"):
        execute(late, tmp_path / "x")
    monkeypatch.setitem(ALGORITHMS, "mine", stating(mine))
    assert build_of(late).timing.ids is not None


def stating(factory):
    """The method with the facts that its clients may arrive late."""
    says = method(title="", paper="", personal="", sends="", starts_from_server=False)
    return says(factory)


def build_of(config):
    resolved = resolve(config)
    return build(resolved, gather(resolved))


@pytest.mark.long(every=5)
@pytest.mark.parametrize("name", ["fedamp", "heurfedamp", "fedaghn", "pfedla", "apple"])
def test_late_clients_cannot_train_from_mixtures_of_newer_models(name, tmp_path, capsys):
    assert main(["run", name, *SHORT, *LATE, "--speeds", "1", "--out", str(tmp_path / "x")]) == 2
    shown = capsys.readouterr()
    assert f"{name} train from mixtures of what others have sent by now" in shown.err
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert not (tmp_path / "x").exists()


@pytest.mark.long
def test_a_method_says_whether_a_round_begins_with_mixtures(factory):
    """What clients train to depends on another client's state only if the method says so."""
    task, found = shallow(), []

    def trainer(objective, **differing):
        fit = task.trainer(objective, **differing)

        def recorded(*arguments):
            fitted = fit(*arguments)
            # In order: a method may train twice.
            jax.debug.callback(found.append, fitted.params, ordered=True)
            return fitted

        return recorded

    def disturbed(x):
        """Other numbers in the state of client 0."""
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return x
        return x.at[0].add(0.1 * jax.random.normal(quick_key(1), x.shape[1:]))

    # With options and a start by which weights of others are not 0 after two rounds.
    algorithm = factory(task._replace(trainer=trainer), **facts_of(factory).separating)
    data = opposite_groups()
    proceed = jax.jit(algorithm.round)
    cohort = Cohort(jnp.arange(6), data.train, data.val, round=0)
    state = algorithm.init(quick_key(2), data.train)
    for number in range(2):
        state, _ = proceed(quick_key(number), state, cohort._replace(round=number))
    results = []
    for clients in (state.clients, jax.tree.map(disturbed, state.clients)):
        found.clear()
        jax.block_until_ready(proceed(quick_key(2), State(clients, state.server), cohort))
        jax.effects_barrier()
        results.append([np.asarray(x)[1:] for x in jax.tree.leaves(found)])
    assert results[0]
    moved = any(not np.allclose(*pair, atol=1e-6) for pair in zip(*results, strict=True))
    assert moved == facts_of(factory).mixes_before_training


def test_the_guide_names_every_method_that_clients_may_run_late():
    guide = (DOCS / "guides/asynchronous.md").read_text()
    rows = [row.split("|")[1] for row in guide.splitlines() if row.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)} & set(ALGORITHMS)
    refused = guide.split("Other methods are refused")[1].split("##")[0]
    facts = {name: facts_of(made) for name, made in ALGORITHMS.items()}
    mixing = {name for name, stated in facts.items() if stated.mixes_before_training}
    late = {name for name, stated in facts.items() if not stated.starts_from_server}
    new = set(ALGORITHMS) - set(methods.named((DOCS / "methods.md").read_text()))
    assert named == late - mixing - new
    assert mixing - new <= set(re.findall(r"`(\w+)`", refused))


def lines(*means, times=None, measure="accuracy"):
    """Lines of metrics.jsonl with a mean score in each, every second round."""
    found = []
    for place, mean in enumerate(means):
        scores = dict.fromkeys(("mean", "weighted", "std", "worst10"), mean)
        line = {"round": 2 * place + 2, "loss": 1.0, "deployed": scores, "fine_tuned": scores}
        found.append(line | ({"time": times[place]} if times else {}))
    return found


def test_the_first_evaluation_with_the_score_counts():
    rounds = lines(0.1, None, 0.8, 0.7, 0.9, times=[1.5, 2, 4, 5, 9])
    assert timed_summary(0.8, rounds, "accuracy") == {
        "time": 9,
        "target": {"score": 0.8, "round": 6, "time": 4},
    }
    assert timed_summary(0.95, rounds, "accuracy")["target"]["time"] is None
    assert timed_summary(None, lines(0.1), "accuracy") == {}
    assert timed_summary(0.1, lines(0.1), "accuracy") == {"target": {"score": 0.1, "round": 2}}
    # Minus the mean squared error: an RMSE of 3, then of 2.
    assert timed_summary(2.5, lines(-3.0, -2.0), "rmse")["target"]["round"] == 4


def test_each_seed_has_a_time_of_its_own():
    rounds = [
        line | {"seeds": [one, other], "times": times}
        for line, one, other, times in zip(
            lines(0.5, 0.7, 0.8, times=[1.5, 3, 6]),
            lines(0.1, 0.8, 0.8),
            lines(0.9, 0.6, 0.8),
            ([1, 2], [2, 4], [4, 8]),
            strict=True,
        )
    ]
    target = timed_summary(0.8, rounds, "accuracy")["target"]
    assert target["seeds"] == [{"round": 4, "time": 2}, {"round": 2, "time": 2}]
    assert (target["round"], target["time"]) == (3, 2)
    missed = timed_summary(0.85, rounds, "accuracy")["target"]
    assert missed["seeds"] == [{"round": None, "time": None}, {"round": 2, "time": 2}]
    assert (missed["round"], missed["time"]) == (None, None)


def test_runs_of_other_seeds_are_pooled():
    one = {"time": 4.0, "target": {"score": 0.8, "round": 2, "time": 1.0}}
    seeds = [{"round": 4, "time": 3.0}, {"round": 6, "time": 8.0}]
    other = {"time": 7.0, "times": [6.0, 8.0]}
    other["target"] = {"score": 0.8, "round": 5, "time": 5.5, "seeds": seeds}
    found = pool_timed([one, other])
    assert (found["time"], found["times"]) == (6.0, [4.0, 6.0, 8.0])
    assert (found["target"]["round"], found["target"]["time"]) == (4.0, 4.0)
    assert len(found["target"]["seeds"]) == 3


def test_the_table_says_when_the_target_was_reached():
    runs = {name: finished_run(name, 0.5, target=0.8, speeds=1.0) for name in ("local", "fedavg")}
    target = {"score": 0.8, "round": 7, "time": 12.25}
    runs["local"].summary.update({"time": 90.0, "target": target})
    missed = {"score": 0.8, "round": None, "time": None}
    runs["fedavg"].summary.update({"time": 45.0, "target": missed})
    rows = markdown(sections(runs)).replace("**", "").splitlines()
    titles, *found = [[c.strip() for c in row.strip("|").split("|")] for row in rows if "|" in row]
    cells = {row[0]: dict(zip(titles, row, strict=True)) for row in found}
    wanted = ("rounds to target", "time to target", "virtual time")
    assert [cells["local"][name] for name in wanted] == ["7", "12.2", "90.0"]
    assert [cells["fedavg"][name] for name in wanted] == ["not reached", "not reached", "45.0"]
    plain = {name: finished_run(name, 0.5) for name in ("local", "fedavg")}
    assert "target" not in markdown(sections(plain))
