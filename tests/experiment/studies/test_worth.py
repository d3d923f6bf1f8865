"""What a client is worth: runs without it are the runs of the others' data alone."""

import csv
import itertools
import math

import numpy as np
import pytest

from jaxfl.cli import main
from jaxfl.core.errors import InputError
from jaxfl.experiment import Config, execute, leave_one_out, load
from jaxfl.experiment.studies.shapley import shapley_values, steps
from jaxfl.experiment.studies.worth import run_coalitions

pytestmark = pytest.mark.xdist_group("worth")
NAMES = ["north", "south", "west", "east"]
SHORT = {
    "dataset": "sites",
    "rounds": 3,
    "local_steps": 5,
    "batch_size": 8,
    "lr": 0.3,
    "model": "linear",
    "metric": ("log_loss", "accuracy"),
}


def write_sites(folder, sites=4):
    """Clients 0 and 1 have one truth, clients 2 and 3 the opposite one."""
    rng = np.random.default_rng(0)
    counts = (120, 150, 180, 135)
    x = rng.normal(size=(sum(counts), 4)).astype(np.float32)
    owners = np.repeat(np.arange(4), counts)
    y = ((x[:, 0] + x[:, 1] > 0) ^ (owners > 1)).astype(np.int32)
    kept = owners < sites
    np.savez(
        folder / "sites.npz",
        x_train=x[kept],
        y_train=y[kept],
        owners=owners[kept],
        owner_names=NAMES[:sites],
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sites")
    write_sites(folder)
    return folder


def run_of(folder, algorithm, **options):
    out = folder / "-".join([algorithm, *options])
    if not out.exists():
        config = Config(algorithm=algorithm, data_dir=str(folder), **SHORT | options)
        execute(config, out)
    return load(out)


# pfedgraph mixes, knn_per predicts with its own examples, and gossip has a network of the clients.
@pytest.mark.parametrize(
    "algorithm",
    [
        "fedavg",
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("pfedgraph", "knn_per", "gossip")),
    ],
)
def test_a_run_without_a_client_is_that_of_the_other_data(algorithm, folder, tmp_path):
    options = {"seeds": 2} if algorithm == "fedavg" else {}
    run = run_of(folder, algorithm, **options)
    write_sites(tmp_path, sites=3)
    other = run_of(tmp_path, algorithm, **options)
    expected = other.seeds.with_axis(other.clients["deployed_test"])[:, -1]
    found = run_coalitions(run, np.array([[0, 1, 2], [1, 2, 3]])).scores
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-4)
    assert np.abs(found[:, 1, :2] - expected[:, 1:]).min() > 1e-3


def test_local_training_is_worth_the_same_without_the_others(folder):
    worth = leave_one_out(run_of(folder, "local"))
    differences = np.array([[one.difference for one in row] for row in worth.results])
    np.testing.assert_array_equal(np.isnan(differences), np.eye(4, dtype=bool))
    np.testing.assert_allclose(differences[~np.eye(4, dtype=bool)], 0, atol=1e-6)


def test_a_friend_is_worth_more_than_an_opponent(folder, capsys):
    run = run_of(folder, "fedavg")
    assert main(["worth", str(run.directory)]) == 0
    shown = capsys.readouterr().out
    assert "Without south, north loses" in shown
    with (run.directory / "worth.csv").open() as file:
        rows = {(row["client"], row["without"]): row for row in csv.DictReader(file)}
    assert len(rows) == 12
    for client, friend in ((0, 1), (1, 0), (2, 3), (3, 2)):
        for sender in {0, 1, 2, 3} - {client}:
            row = rows[NAMES[client], NAMES[sender]]
            gain = float(row["difference"])
            # The log-loss is lower where the client is better off.
            assert gain == pytest.approx(
                float(row["score_without"]) - float(row["score"]), abs=2e-6
            )
            assert (gain > 0) == (sender == friend)
            assert float(row["low"]) <= gain <= float(row["high"])
    assert (run.directory / "worth.png").exists()
    assert main(["worth", str(run.directory)]) == 2
    assert "worth.csv exists: add --overwrite" in capsys.readouterr().err


@pytest.mark.slow(seconds=20)
def test_shapley_values_add_up_to_the_gain_beside_training_alone(folder):
    run, alone = (run_of(folder, name, metric=("accuracy",)) for name in ("fedavg", "local"))
    gains = 100 * (run.clients["deployed_test"][-1] - alone.clients["deployed_test"][-1])
    values = shapley_values(run)
    np.testing.assert_allclose(np.nansum(values, axis=1), gains, atol=1e-3)
    assert np.abs(gains).max() > 1


def test_all_steps_are_the_mean_over_all_orders():
    rng = np.random.default_rng(0)
    worth = {
        frozenset(one): rng.normal()
        for size in range(1, 6)
        for one in itertools.combinations(range(5), size)
    }
    found = np.zeros((5, 5))
    for step in steps(5, None):
        gain = worth[step.before | {step.sender}] - worth[step.before]
        found[step.receiver, step.sender] += step.share * gain
    for receiver in range(5):
        expected = np.zeros(5)
        senders = [one for one in range(5) if one != receiver]
        for order in itertools.permutations(senders):
            joined = frozenset([receiver])
            for sender in order:
                expected[sender] += (worth[joined | {sender}] - worth[joined]) / math.factorial(4)
                joined |= {sender}
        np.testing.assert_allclose(found[receiver], expected, atol=1e-12)
    drawn = np.zeros((5, 5))
    for step in steps(5, 4000):
        gain = worth[step.before | {step.sender}] - worth[step.before]
        drawn[step.receiver, step.sender] += step.share * gain
    np.testing.assert_allclose(drawn, found, atol=0.1)


def test_options_that_name_single_clients_are_refused(folder):
    run = run_of(folder, "fedavg", attack="sign_flip", attack_ratio=0.25, partition="iid")
    with pytest.raises(InputError, match=r"has --attack, .* give a run without"):
        leave_one_out(run)
