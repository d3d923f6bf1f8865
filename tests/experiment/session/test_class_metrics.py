"""Metrics of one class, by its name or number, from the option to tables and pages."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import recall_score

import jaxfl
from jaxfl.cli import main
from jaxfl.core.errors import InputError
from jaxfl.experiment import Config, execute, resolve
from jaxfl.experiment.html.page import write_page
from jaxfl.experiment.store.finished_runs import load_finished
from jaxfl.experiment.tables.tables import table_cells
from jaxfl.experiment.trackers import shown_name
from jaxfl.simulation.metrics import METRICS, Metric, metric_of, named_metrics

HOSTILE = "<b>a:b/$x$[red]"
NAMES = ["lived", "died", HOSTILE]
METRIC = ("auc", "recall:died", f"precision:{HOSTILE}", "specificity:0")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of three clients, of whom the last one has nobody who died."""
    folder = tmp_path_factory.mktemp("classes")
    rng = np.random.default_rng(0)
    y = np.tile([0, 1, 2], 60)
    owners = np.repeat([0, 1, 2], 60)
    y[(owners == 2) & (y == 1)] = 0
    x = rng.normal(size=(180, 3)).astype(np.float32) + y[:, None]
    np.savez(folder / "wards.npz", x_train=x, y_train=y, owners=owners, class_names=NAMES)
    options = {
        "dataset": "wards",
        "data_dir": str(folder),
        "partition": "natural",
        "model": "linear",
        "rounds": 2,
        "local_steps": 5,
        "score_after": "none",
    }
    execute(Config(algorithm="local", metric=METRIC, **options), folder / "run")
    return folder, options


@pytest.mark.slow
def test_the_score_of_a_class_is_that_of_scikit_learn_on_each_client(finished):
    folder, _ = finished
    run = jaxfl.load(folder / "run")
    scores = run.clients["deployed_test_recall:died"][-1]
    for client in (0, 1):
        x, y, weight = map(np.asarray, run.test(client))
        guess = run.predict(client, x)
        guess = np.array([NAMES.index(one) if isinstance(one, str) else one for one in guess])
        expected = recall_score(y == 1, guess == 1, sample_weight=weight)
        assert scores[client] == pytest.approx(expected)
    assert np.isnan(scores[2])
    final = run.summary["scores"]["recall:died"]["final"]["deployed"]
    assert final["undefined"] == 1
    assert final["mean"] == pytest.approx(np.mean(scores[:2]))


@pytest.mark.slow
def test_tables_columns_and_pages_name_the_class(finished, tmp_path, capsys):
    folder, _ = finished
    titles = table_cells(load_finished([folder / "run"])).titles
    expected = ["AUC", "recall of died", f"precision of {HOSTILE}", "specificity of 0"]
    assert titles[:4] == expected
    assert json.loads((folder / "run/config.json").read_text())["metric"] == list(METRIC)
    assert main(["report", str(folder / "run"), "--columns", "recall:died"]) == 0
    printed = capsys.readouterr().out
    assert "died" in printed
    assert "specificity" not in printed
    write_page([folder / "run"], tmp_path / "x.html")
    assert "<b>a" not in (tmp_path / "x.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (("recall:alive",), r"the data have no such class: .* one of lived, died, .* from 0 to 2"),
        (("recall:3",), "the data have no such class"),
        (("recall:",), "the data have no such class"),
        (("recall:died", "recall:1"), "names a class twice, as recall:died and as recall:1"),
        (("recall",), "did you mean recall:CLASS"),
    ],
)
def test_a_class_that_does_not_exist_is_refused_with_those_that_do(finished, metric, message):
    _, options = finished
    with pytest.raises(InputError, match=message):
        resolve(Config(algorithm="local", metric=metric, **options))


def test_a_class_is_its_name_before_its_number():
    logits = jnp.array([[2.0, 1.0], [2.0, 1.0]])
    arguments = (logits, jnp.array([0, 1]), jnp.ones(2))
    assert metric_of("recall:1").score(*arguments) == 0
    assert metric_of("recall:1", ["1", "0"]).score(*arguments) == 1
    assert named_metrics(["recall:a"], ["a", "b"])["recall:a"].score(*arguments) == 1
    with pytest.raises(InputError, match="give the number of the class"):
        metric_of("recall:a").score(*arguments)
    # Programs are compiled once for a metric.
    assert metric_of("recall:a", ["a"]) is metric_of("recall:a", ["a"])


def test_a_plug_in_adds_a_metric_of_one_class(monkeypatch):
    def missed(predictions, y, weight, label):
        return ((y == label) * weight).sum()

    monkeypatch.setitem(METRICS, "missed:CLASS", Metric("missed of CLASS", missed, "lower"))
    metric = metric_of("missed:2")
    assert (metric.title, metric.better) == ("missed of 2", "lower")
    assert metric.score(jnp.zeros((3, 3)), jnp.array([2, 2, 1]), jnp.ones(3)) == 2
    assert shown_name("missed:>50K") == "negative_missed_of__3e_50K"
