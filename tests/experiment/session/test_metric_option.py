"""Runs that are scored by metrics of the user's choice."""

import dataclasses
import json
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console
from sklearn.metrics import log_loss, roc_auc_score

import jaxfl
from jaxfl.cli import main
from jaxfl.cli.search import show_search
from jaxfl.core.errors import InputError, RunWarning
from jaxfl.experiment import Config, execute, resolve, resume
from jaxfl.experiment.config.hints import value_of
from jaxfl.experiment.html.page import write_page
from jaxfl.experiment.pictures import curves
from jaxfl.experiment.session import build as build_module
from jaxfl.experiment.session.build import build
from jaxfl.experiment.session.gather import gather
from jaxfl.experiment.session.models import Best, _keep_better
from jaxfl.experiment.session.seeds import Seeds
from jaxfl.experiment.store.finished_runs import load_finished
from jaxfl.experiment.studies.sweep import search
from jaxfl.experiment.tables.tables import table_cells
from jaxfl.simulation.metrics import METRICS

# Of `small`, whose last client has one label.
pytestmark = pytest.mark.filterwarnings("ignore:AUC is not defined on the validation")

SHORT = {
    "clients": 4,
    "partition": "dirichlet",
    "test": "own",
    "rounds": 3,
    "local_steps": 5,
    "score_after": "none",
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run with three metrics, and one of the same with none."""
    folder = tmp_path_factory.mktemp("metrics")
    config = Config(algorithm="local", metric=("auc", "accuracy", "log_loss"), **SHORT)
    execute(config, folder / "named")
    execute(Config(algorithm="local", **SHORT), folder / "plain")
    return folder, config


def mean_area(logits, y):
    """The mean over the labels that occur of the area of each against all others."""
    others = [np.delete(logits, label, axis=1) for label in range(logits.shape[1])]
    odds = [
        logits[:, label] - np.log(np.exp(rest.astype(float)).sum(axis=1))
        for label, rest in enumerate(others)
    ]
    return np.mean([roc_auc_score(y == label, odds[label]) for label in np.unique(y)])


@pytest.mark.slow
def test_scores_in_the_files_are_those_of_scikit_learn_on_the_predictions(finished):
    folder, config = finished
    run = jaxfl.load(folder / "named")
    data = gather(resolve(config)).federation.test
    x, y = (np.asarray(part) for part in (jnp.asarray(data.x), jnp.asarray(data.y)))
    masks = np.asarray(data.mask) > 0
    labels = [y[client][mask] for client, mask in enumerate(masks)]
    logits = [run.scores(client, x[client][mask]) for client, mask in enumerate(masks)]
    areas = [mean_area(*one) for one in zip(logits, labels, strict=True)]
    clients = np.load(folder / "named" / "clients.npz")
    np.testing.assert_allclose(clients["deployed_test"][-1], areas, rtol=1e-5)
    p = [np.exp(one - one.max(axis=1, keepdims=True)) for one in logits]
    p = [one / one.sum(axis=1, keepdims=True) for one in p]
    losses = [log_loss(a, b, labels=range(10)) for a, b in zip(labels, p, strict=True)]
    np.testing.assert_allclose(
        clients["deployed_test_log_loss"][-1], np.negative(losses), rtol=1e-4
    )

    summary = json.loads((folder / "named" / "summary.json").read_text())
    assert (summary["measure"], set(summary["scores"])) == ("auc", {"accuracy", "log_loss"})
    assert summary["final"]["deployed"]["mean"] == pytest.approx(np.mean(areas), rel=1e-5)
    together = mean_area(np.concatenate(logits), np.concatenate(labels))
    assert summary["final"]["deployed"]["pooled"] == pytest.approx(together, rel=1e-4)
    further = summary["scores"]["log_loss"]
    assert further["final"]["deployed"]["mean"] == pytest.approx(-np.mean(losses), rel=1e-4)
    # Each client at its best validation AUC, whatever its validation loss.
    best = clients["deployed_val"].argmax(axis=0)
    chosen = clients["deployed_test_log_loss"][best, np.arange(4)]
    assert further["selected_on_val"]["deployed"]["mean"] == pytest.approx(chosen.mean(), rel=1e-6)
    lines = (folder / "named" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["scores"]["log_loss"]["deployed"] == further["final"]["deployed"]


def test_accuracy_beside_other_metrics_is_that_of_a_run_without_any(finished):
    folder, _ = finished
    named, plain = (np.load(folder / name / "clients.npz") for name in ("named", "plain"))
    for part in ("val", "test"):
        accuracy = named[f"deployed_{part}_accuracy"]
        np.testing.assert_allclose(accuracy, plain[f"deployed_{part}"], rtol=1e-6)
    summary = json.loads((folder / "plain" / "summary.json").read_text())
    assert "scores" not in summary
    assert set(summary["final"]["deployed"]) == {"mean", "weighted", "std", "worst10"}


def test_the_best_model_is_that_of_the_first_metric(finished):
    folder, config = finished
    run = jaxfl.load(folder / "named")
    data = gather(resolve(config)).federation.val
    x, y = jnp.asarray(data.x), np.asarray(jnp.asarray(data.y))
    best = np.load(folder / "named" / "clients.npz")["deployed_val"].max(axis=0)
    for client, mask in enumerate(np.asarray(data.mask) > 0):
        logits = run.scores(client, np.asarray(x[client])[mask], which="best")
        assert mean_area(logits, y[client][mask]) == pytest.approx(best[client], rel=1e-5)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The folder and the config of a short run of two seeds; a client has one label alone."""
    folder = tmp_path_factory.mktemp("small")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 4)).astype(np.float32)
    y = (x[:, 0] + rng.normal(size=90) > 0).astype(int)
    owners = np.arange(90) // 30
    y[owners == 2] = 0
    np.savez(folder / "mine.npz", x_train=x, y_train=y, owners=owners)
    config = Config(
        algorithm="fedavg",
        dataset="mine",
        data_dir=str(folder),
        model="linear",
        rounds=4,
        local_steps=2,
        batch_size=4,
        eval_every=2,
        seeds=2,
        score_after="none",
        devices=1,
        metric=("auc", "log_loss"),
    )
    execute(config, folder / "whole")
    return folder, config


def lines_of(run):
    """The lines of a run without times."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


@pytest.mark.slow
def test_seeds_and_clients_without_a_score(small):
    folder, _ = small
    clients = np.load(folder / "whole" / "clients.npz")
    auc, loss = (clients[f"deployed_test{name}"] for name in ("", "_log_loss"))
    # [seeds, evaluations, clients]
    assert auc.shape == loss.shape == (2, 2, 3)
    assert np.isnan(auc[..., 2]).all()
    assert np.isfinite(auc[..., :2]).all()
    assert np.isfinite(loss).all()
    summary = json.loads((folder / "whole" / "summary.json").read_text())
    final, further = summary["final"], summary["scores"]["log_loss"]["final"]
    assert [seed["deployed"]["undefined"] for seed in final["seeds"]] == [1, 1]
    assert "undefined" not in further["deployed"]
    means = [seed["deployed"]["mean"] for seed in final["seeds"]]
    np.testing.assert_allclose(means, auc[:, -1, :2].mean(axis=1), rtol=1e-6)
    pooled = [seed["deployed"]["pooled"] for seed in final["seeds"]]
    assert final["deployed"]["pooled"] == pytest.approx(np.mean(pooled))
    # A client without a score keeps its newest model, not its first.
    models, best = jaxfl.load(folder / "whole").models, jaxfl.load(folder / "whole").best_models
    same = jax.tree.map(lambda a, b: (a[:, 2] == b[:, 2]).all(), models, best)
    assert all(jax.tree.leaves(same))


@pytest.mark.slow(seconds=8)
def test_a_run_that_is_stopped_goes_on_with_its_metrics(small):
    folder, config = small
    stopped = dataclasses.replace(config, checkpoint_every=1)

    def follow(config, line):
        if line is not None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(stopped, folder / "stopped", follow=follow)
    resume(folder / "stopped")
    assert lines_of(folder / "stopped") == lines_of(folder / "whole")
    whole, again = (np.load(folder / name / "clients.npz") for name in ("whole", "stopped"))
    assert set(whole) == set(again)
    for name in whole:
        np.testing.assert_array_equal(whole[name], again[name])


@pytest.mark.slow(seconds=8)
def test_devices_and_a_store_change_no_score(small):
    folder, config = small
    # Two devices do not divide three clients.
    execute(dataclasses.replace(config, devices=2), folder / "devices")
    one = dataclasses.replace(config, seeds=1)
    execute(one, folder / "one")
    stored = dataclasses.replace(one, store=str(folder / "store"), keep_models="none")
    execute(stored, folder / "stored")
    for a, b in (("whole", "devices"), ("one", "stored")):
        lines, others = lines_of(folder / a), lines_of(folder / b)
        finals = [line["deployed"] for line in (lines[-1], others[-1])]
        pooled = finals[0].pop("pooled")
        if b == "devices":
            assert finals[1].pop("pooled") == pytest.approx(pooled, rel=1e-5)
        # Of clients on disk nothing is pooled.
        assert finals[1] == pytest.approx(finals[0], rel=1e-5)
        arrays = [np.load(folder / name / "clients.npz") for name in (a, b)]
        for name in ("deployed_test", "deployed_val_log_loss"):
            np.testing.assert_allclose(arrays[0][name], arrays[1][name], rtol=1e-4)


@pytest.mark.slow
def test_too_many_predictions_are_not_pooled_and_this_is_said(small, monkeypatch):
    _, config = small
    resolved = resolve(config)
    built = build(resolved, gather(resolved))
    assert built.pooled is not None
    assert built.pooled.tolist() == [True, True, True]
    monkeypatch.setattr(build_module, "TOGETHER", 10)
    built = build(resolved, gather(resolved))
    with pytest.warns(RunWarning, match="no score of them together"):
        assert built.pooled is None


def test_runs_of_other_first_metrics_are_refused(finished):
    folder, _ = finished
    with pytest.raises(InputError, match="scored by accuracy and auc: give runs of one measure"):
        load_finished([folder / "named", folder / "plain"])


@pytest.mark.slow
def test_a_search_shows_the_metric_and_its_direction(small, tmp_path, capsys, monkeypatch):
    _, config = small
    draw, figures = curves.draw_sweep, []

    def draw_sweep(*arguments):
        figures.append(draw(*arguments))
        return figures[-1]

    monkeypatch.setattr(curves, "draw_sweep", draw_sweep)
    config = dataclasses.replace(config, metric=("log_loss",), rounds=1, seeds=1)
    trials = search(config, [{"lr": 0.5}, {"lr": 1e-9}, {"lr": 0.1}], tmp_path / "x")
    assert figures[0].axes[0].get_ylabel() == "validation log loss"
    losses = [-value_of(trial["val"]) for trial in trials]
    assert losses == sorted(losses)
    assert losses[0] > 0
    console = Console(width=100)
    show_search(tmp_path / "x", console)
    printed = capsys.readouterr().out
    assert "validation log loss" in printed
    assert f"{losses[0]:.3f}" in printed
    assert f"{-losses[0]:.3f}" not in printed
    write_page([tmp_path / "x"], tmp_path / "x.html")
    assert "Validation log loss by value" in (tmp_path / "x.html").read_text()
    both = [{"metric": ["auc"]}, {"metric": ["accuracy"]}]
    with pytest.raises(InputError, match="metric is one of the values to try"):
        search(config, both, tmp_path / "y")


def test_tables_have_a_column_for_each_metric(finished):
    folder, _ = finished
    table = table_cells(load_finished([folder / "named"]))
    assert table.titles[:3] == ["AUC", "accuracy", "log loss"]
    assert {"AUC, pooled", "log loss, pooled"} <= set(table.titles)


def test_a_client_without_a_score_in_some_rounds_keeps_its_best_model():
    seeds = Seeds(0, 1)
    best = Best(jnp.full(3, -jnp.inf), {"w": jnp.zeros(3)})
    rounds = [
        # never a score; a score in the second round alone; a score that is lost again
        [jnp.nan, jnp.nan, 0.5],
        [jnp.nan, 0.1, jnp.nan],
        [jnp.nan, jnp.nan, 0.4],
        # not evaluated
        [-jnp.inf, -jnp.inf, -jnp.inf],
    ]
    for number, val in enumerate(rounds, start=1):
        best = _keep_better(seeds, best, jnp.array(val), {"w": jnp.full(3, float(number))})
    assert best.models["w"].tolist() == [3, 2, 1]


@pytest.mark.slow
def test_a_plug_in_adds_metrics_as_the_page_tells(tmp_path, monkeypatch, capsys):
    page = (Path(__file__).parents[3] / "docs" / "training.md").read_text()
    programs = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    programs = [program for program in programs if "METRICS" in program]
    # The entry is gone when the test is over.
    monkeypatch.setitem(METRICS, "cost", METRICS["accuracy"])
    monkeypatch.chdir(tmp_path)
    Path("cost.py").write_text("\n".join(programs))
    options = [part for key, value in SHORT.items() for part in (f"--{key}", str(value))]
    options = [part.replace("_", "-") if part.startswith("--") else part for part in options]
    words = ["compare", "local", "fedavg", *options, "--metric", "cost", "f1:3"]
    assert main([*words, "--plugin", "cost.py", "--out", "both"]) == 0
    runs = load_finished([Path("both")])
    clients = np.load("both/local/clients.npz")
    summary = runs["local"].summary
    assert summary["final"]["deployed"]["mean"] == pytest.approx(
        clients["deployed_test"][-1].mean()
    )
    # Stored so that higher is better: nobody gains by an error.
    assert (clients["deployed_test"] <= 0).all()
    table = table_cells(runs)
    assert table.titles[:2] == ["cost", "F1 of 3"]
    assert [name for name, _ in table.rows][2:] == ["majority"]
    costs = [float(row[0]) for _, row in table.rows[:2]]
    assert costs == sorted(costs)
    del METRICS["cost"]
    capsys.readouterr()
    assert main(["report", "both"]) == 2
    assert "'cost', which is not known here" in capsys.readouterr().err
    assert main(["report", "both", "--plugin", "cost.py"]) == 0
    assert "F1 of 3" in capsys.readouterr().out


def test_metrics_that_tables_could_not_tell_apart_are_refused(monkeypatch):
    monkeypatch.setitem(METRICS, "mine", METRICS["auc"])
    with pytest.raises(InputError, match=r"tables would call two metrics alike \(AUC, AUC\)"):
        resolve(Config(algorithm="local", metric=("auc", "mine")))


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (("rmse",), "--metric rmse takes numbers, the targets of the data are labels: choose from"),
        (("auc", "auc"), "--metric names a metric twice"),
    ],
)
def test_metrics_that_do_not_fit_are_refused(metric, message):
    with pytest.raises(InputError, match=message):
        resolve(Config(algorithm="local", metric=metric))


def test_a_target_is_a_value_of_the_first_metric(monkeypatch):
    with pytest.raises(InputError, match=r"--target is 3.0: expected a value of accuracy"):
        resolve(Config(algorithm="local", target=3.0))
    assert resolve(Config(algorithm="local", metric=("log_loss",), target=3.0))
    # The highest value may be 0.
    monkeypatch.setitem(METRICS, "below", dataclasses.replace(METRICS["auc"], highest=0.0))
    with pytest.raises(InputError, match=r"of at most 0, such as 0"):
        resolve(Config(algorithm="local", metric=("below",), target=0.5))
