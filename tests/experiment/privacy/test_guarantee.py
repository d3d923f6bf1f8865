"""What a run claims of privacy, and the bytes that it counts."""

import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from scipy.stats import norm
from toys import federation, quick_key, shallow

from jaxfl.algorithms import ALGORITHMS, fedavg
from jaxfl.cli import main
from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.core.messages import Clients
from jaxfl.core.types import State
from jaxfl.experiment.privacy.audit import Work, audit
from jaxfl.experiment.privacy.guarantee import Exposure, Protection, claim, count_releases, epsilon
from jaxfl.training.batches import minibatches
from jaxfl.training.objectives import data_loss


def excess(noise, releases, epsilon):
    """The mass of one sum of releases beyond exp(epsilon) times that of its neighbour, by a sum."""
    mu = 2 / noise * math.sqrt(releases)
    x = np.linspace(-12, mu + 12, 200_001)
    # The logarithm of exp(epsilon) times the other density, over the one; above 0 nothing counts.
    log_ratio = epsilon + norm.logpdf(x) - norm.logpdf(x, mu)
    mass = -norm.pdf(x, mu) * np.expm1(np.minimum(log_ratio, 0))
    return np.trapezoid(mass, x)


@pytest.mark.parametrize(
    ("noise", "releases", "delta"),
    [(4.0, 1, 1e-5), (2.0, 20, 1e-5), (10.0, 100, 1e-6), (0.05, 10, 1e-5), (500.0, 3, 1e-4)],
)
def test_epsilon_is_that_of_the_composed_mechanism(noise, releases, delta):
    found = epsilon(noise, releases, delta)
    assert excess(noise, releases, found) == pytest.approx(delta, rel=1e-4)
    # No smaller number would do.
    assert excess(noise, releases, 0.99 * found) > delta


@pytest.mark.slow
def test_epsilon_is_what_dp_accounting_finds_by_convolutions_and_less_than_by_renyi():
    event = SelfComposedDpEvent(GaussianDpEvent(5.0), 100)
    by_convolutions, by_renyi = (
        accountant().compose(event).get_epsilon(1e-6)
        for accountant in (PLDAccountant, RdpAccountant)
    )
    found = epsilon(10.0, 100, 1e-6)
    assert found == pytest.approx(by_convolutions, rel=1e-3)
    assert found < 0.95 * by_renyi


@pytest.mark.parametrize(
    ("noise", "releases", "expected"),
    # Far apart, epsilon is mu^2 / 2 up to a few mu; with hardly any shift delta is enough.
    [(1e-3, 10**6, 2e12), (1e-8, 10**9, 2e25), (1e6, 1, 0.0)],
)
def test_epsilon_is_finite_whatever_the_noise(noise, releases, expected):
    assert epsilon(noise, releases, 1e-5) == pytest.approx(expected, rel=1e-5)


def test_epsilon_of_nothing_sent():
    assert epsilon(1.0, 0, 1e-5) == 0


@pytest.mark.slow
@pytest.mark.parametrize("amount", [{"steps": 7}, {"epochs": 3}], ids=["steps", "epochs"])
def test_batches_that_an_example_is_in(amount):
    mask = np.arange(12) < np.array([[12], [5], [1], [0]])
    own = count_releases(Work((), ({},)), mask, 4, amount)
    for real, counted in zip(mask, own, strict=True):
        rows, counts = minibatches(quick_key(0), jnp.asarray(real), 4, **amount)
        assert counted == np.bincount(np.asarray(rows)[np.asarray(counts)], minlength=12).max()
    both = count_releases(Work((), ({"optimizer": None}, {"epochs": 2})), mask, 4, amount)
    np.testing.assert_array_equal(both, own + 2 * mask.any(axis=1))


def test_the_claim_is_of_the_client_that_lets_out_most():
    noised = Protection("client", clip=2.0, noise=5.0, delta=1e-6)
    ids = [
        np.array([[[0, 1], [1, 2]]]),
        np.array([[[1, 2]]]),
    ]  # client 1 three times, 2 twice, 0 once
    exposure = Exposure(noised, np.array([1, 1, 1]), np.array([1, 1, 4]), sealed=True)
    said = claim(exposure, ids, 3)
    assert (said["unit"], said["clip"], said["noise"], said["delta"]) == ("client", 2.0, 5.0, 1e-6)
    assert said["releases"] == 1 + 2 * 4
    assert said["epsilon"] == epsilon(5.0, 9, 1e-6)
    assert claim(exposure._replace(sealed=False), ids, 3)["epsilon"] is None
    clipped = exposure._replace(protection=noised._replace(noise=0.0))
    assert claim(clipped, ids, 3)["epsilon"] is None


def examples():
    x = [np.zeros((4, 8), np.float32)] * 3
    return federation(x, [np.array([0, 1, 0, 1])] * 3)


OPEN = {  # what the server learns beside, by default hyper-parameters
    "client": {
        # clients start from models that they have not sent, so an upload tells more than its update
        "fedamp",
        "heurfedamp",
        "fedfomo",
        # clients choose a cluster by their loss; clients that were absent do so in the last two
        "ifca",
        "cfl",
        "fedsem",
        "pfedccg",  # the weights, and so the starts of the updates, follow the counts of labels
        # the server learns which classes a client has
        "fedproto",
        "fedtgp",
        "fedgh",
        "feddistill",
        "fedpac",
        # clients start from mixtures whose weights follow losses or gradients without noise
        "meritfed",
        "dpfl",
        "cobo",
        "learned_graph",  # clients choose a mixture by their validation losses
        "safe_graph",  # weights follow means of the examples, and clients choose by their scores
        "fedcollab",  # coalitions follow discriminators of the examples, without noise
        # weights follow losses, which clients tell without noise
        "qffl",
        "afl",
        "term",
        "pooled",  # one place has all examples
    },
    "example": {
        "apfl",  # trains with a share of the models that plain gradients have found
        "cfl",
        "fedsem",
        "fedfomo",
        "fedrod",  # trains with the counts of its labels
        "ifca",
        "pfedccg",
        "feddbe",  # sends mean features of the examples
        "fedproto",
        "fedtgp",
        "fedgh",
        "feddistill",
        "fedpac",
        "meritfed",
        "dpfl",
        "cobo",
        "learned_graph",
        "safe_graph",
        "fedcollab",
        "pfedgat",  # sends plain gradients of validation losses
        "qffl",
        "afl",
        "term",
        "pooled",
    },
}


@pytest.mark.long
@pytest.mark.parametrize("unit", ["client", "example"])
def test_of_every_method_whether_it_sends_more_than_is_noised(factory, unit):
    assert audit(factory, shallow(), {}, examples(), unit).sealed == (
        factory.__name__ not in OPEN[unit]
    )


@pytest.mark.slow
def test_an_audit_finds_a_leak_that_takes_two_rounds():
    """Clients that keep a number from their data and start from it a round later."""

    def leaking(task):
        plain = fedavg(task)

        def init(key, train):
            state = plain.init(key, train)
            return state._replace(clients=(jnp.zeros(3), jnp.zeros(3)))

        def round(key, state, cohort):
            old, older = state.clients
            server = jax.tree.map(lambda w: w + 0 * older.sum(), state.server)
            after, info = plain.round(key, state._replace(clients=Clients(), server=server), cohort)
            return after._replace(clients=(cohort.train.x.mean(axis=(1, 2)), old)), info

        return plain._replace(init=init, round=round)

    assert audit(fedavg, shallow(), {}, examples()).sealed
    assert not audit(leaking, shallow(), {}, examples()).sealed


@pytest.mark.slow
def test_an_audit_counts_uploads_and_trainings():
    found = {
        name: audit(ALGORITHMS[name], shallow(), {}, examples())
        for name in ("local", "fedper", "pfedgat")
    }
    assert {
        name: [tree.size(model) for model in one.round.uploads] for name, one in found.items()
    } == {
        "local": [],
        "fedper": [8 * 9],  # the body
        "pfedgat": [8 * 9 + 9 * 2] * 2,
    }
    ditto = audit(ALGORITHMS["ditto"], shallow(), {}, examples())
    assert len(ditto.round.fits) == 2
    joining = audit(ALGORITHMS["gfedmtl"], shallow(), {}, examples()).joining
    assert (len(joining.uploads), len(joining.fits)) == (1, 1)


@pytest.mark.parametrize("unit", ["client", "example"])
def test_a_training_without_the_noise_of_the_task_is_no_noised_training(unit):
    """The server learns what such a training makes of the examples, or of none."""

    def telling(objective):
        def factory(task):
            plain = fedavg(task)
            fit = task.trainer(objective, example_clip=None)

            def round(key, state, cohort):
                after, info = plain.round(key, state, cohort)
                found = fit(key, jnp.zeros(3), None, cohort).params
                return State((), jax.tree.map(lambda w: w + 0 * found.sum(), after.server)), info

            return plain._replace(round=round)

        return factory

    def of_examples(position, batch, anchor, key):
        return position * batch.x.mean(), position

    def of_none(position, batch, anchor, key):
        return position, position

    assert not audit(telling(of_examples), shallow(), {}, examples(), unit).sealed
    found = audit(telling(of_none), shallow(), {}, examples(), unit)
    assert found.sealed
    assert len(found.round.fits) == 1


@pytest.mark.slow
def test_what_an_objective_takes_from_outside_its_anchor_is_no_secret():
    """The centre of the training is the mean of the examples, in the round's own objective."""

    def telling(closed):
        def factory(task):
            plain = fedavg(task)
            loss = data_loss(task.problem)

            def round(key, state, cohort):
                centre = cohort.train.x.mean()

                def objective(params, batch, anchor, key):
                    value, aux = loss(params, batch, None, key)
                    return value + centre * jax.tree.leaves(params)[0].sum(), aux

                start = tree.broadcast(state.server, 3)
                fitted = task.trainer(objective if closed else loss)(key, start, None, cohort)
                received, _ = task.upload(key, start, fitted.params, cohort.ids)
                _, info = plain.round(key, state, cohort)
                return State((), jax.tree.map(lambda x: x.mean(axis=0), received)), info

            return plain._replace(round=round)

        return factory

    assert audit(telling(False), shallow(), {}, examples(), "example").sealed
    assert not audit(telling(True), shallow(), {}, examples(), "example").sealed


def rounds_of(repeat):
    """FedAvg whose training and upload of a round stand in what `repeat` makes of them.

    repeat: (turn, model, cohort) -> model, where turn is model -> model.
    """

    def repeating(task):
        plain = fedavg(task)
        fit = task.trainer(data_loss(task.problem))

        def round(key, state, cohort):
            def turn(model):
                start = tree.broadcast(model, 3)
                fitted = fit(key, start, None, cohort)
                received, _ = task.upload(key, start, fitted.params, cohort.ids)
                return jax.tree.map(lambda x: x.mean(axis=0), received)

            _, info = plain.round(key, state, cohort)
            return State((), repeat(turn, state.server, cohort)), info

        return plain._replace(round=round)

    return repeating


def jitted(turn, model, cohort):
    return jax.jit(lambda model: jax.jit(turn)(model))(model)


def scanned(turn, model, cohort):
    return jax.lax.scan(lambda model, _: (turn(model), None), model, length=4)[0]


def counted(turn, model, cohort):
    return jax.lax.fori_loop(0, 4, lambda _, model: turn(model), model)


def vmapped(turn, model, cohort):
    found = jax.vmap(turn)(tree.broadcast(model, 5))
    return jax.tree.map(lambda x: x[0], found)


def chosen(turn, model, cohort):
    return jax.lax.cond(cohort.ids.sum() > 2, lambda model: turn(turn(model)), turn, model)


def chosen_by_data(turn, model, cohort):
    return jax.lax.cond(cohort.train.x.sum() > 2, turn, lambda model: model, model)


def peeking(turn, model, cohort):
    """The server of a scan starts from what the data say."""

    def step(model, _):
        return jax.tree.map(lambda x: x + cohort.train.x.mean(), turn(model)), None

    return jax.lax.scan(step, model, length=4)[0]


def waited(turn, model, cohort):
    return jax.lax.while_loop(lambda m: jax.tree.leaves(m)[0].sum() < 1, turn, model)


@pytest.mark.long(every=14)
@pytest.mark.parametrize("unit", ["client", "example"])
@pytest.mark.parametrize(
    ("repeat", "times", "sealed"),
    [
        (jitted, 1, True),
        (scanned, 4, True),
        (counted, 4, True),
        (vmapped, 5, True),
        (chosen, 2, True),
        (chosen_by_data, 1, False),
        (peeking, 4, False),
    ],
)
def test_an_audit_follows_trainings_and_uploads_into_loops(repeat, times, sealed, unit):
    found = audit(rounds_of(repeat), shallow(), {}, examples(), unit)
    assert found.sealed == sealed
    # One more of each is FedAvg's own.
    assert len(found.round.fits) == len(found.round.uploads) == times + 1
    assert {tree.size(model) for model in found.round.uploads} == {8 * 9 + 9 * 2}


def test_an_audit_says_what_it_cannot_follow():
    with pytest.raises(InputError, match="in a loop whose number of turns is unknown; write it as"):
        audit(rounds_of(waited), shallow(), {}, examples())

    def differentiated(turn, model, cohort):
        return jax.grad(lambda m: sum(x.sum() for x in jax.tree.leaves(turn(m))))(model)

    with pytest.raises(InputError, match="takes a gradient through an upload"):
        audit(rounds_of(differentiated), shallow(), {}, examples())


SHORT = ["--rounds", "2", "--local-steps", "3", "--model", "linear"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JAXFL_DATA_DIR", raising=False)


@pytest.mark.slow(seconds=7)
def test_a_run_says_what_it_guarantees_and_repeats_itself(capsys):
    options = [
        "--clip",
        "0.5:noise=3,delta=1e-4",
        "--compress",
        "int8",
        "--participation",
        "0.5",
    ]
    assert main(["run", "fedavg", *SHORT, *options, "--out", "x"]) == 0
    assert main(["run", "--config", "x/config.json", "--out", "y"]) == 0
    first, again = (
        [
            json.loads(line) | {"seconds": 0}
            for line in Path(run, "metrics.jsonl").read_text().splitlines()
        ]
        for run in "xy"
    )
    assert first == again
    summary = json.loads(Path("x/summary.json").read_text())
    with np.load("x/graph.npz") as graph:
        most = np.bincount(graph["ids"].ravel()).max()
    said = summary["privacy"]
    assert (said["unit"], said["clip"], said["noise"], said["delta"]) == ("client", 0.5, 3.0, 1e-4)
    assert (said["releases"], said["epsilon"]) == (most, epsilon(3.0, int(most), 1e-4))
    floats = 64 * 10 + 10
    assert summary["up"] == 2 * 5 * floats
    assert summary["up_bytes"] == 2 * 5 * (floats + 2 * 4)
    capsys.readouterr()


@pytest.mark.slow
def test_a_run_with_noise_on_gradients_says_how_often_an_example_was_in_a_batch():
    options = ["--example-clip", "1:noise=6", "--batch-size", "20", "--seeds", "2"]
    options += ["--clients", "3", "--max-examples", "20", "--partition", "iid"]
    assert main(["run", "ditto", *SHORT, "--eval-every", "2", *options, "--out", "x"]) == 0
    summary = json.loads(Path("x/summary.json").read_text())
    said = summary["privacy"]
    assert (said["unit"], said["clip"], said["noise"], said["delta"]) == ("example", 1.0, 6.0, 1e-5)
    releases = 2 * 2 * 3  # rounds, trainings of a round, steps on all examples
    assert (said["releases"], said["epsilon"]) == (releases, epsilon(6.0, releases, 1e-5))
    assert summary["up_bytes"] == 4 * summary["up"]


@pytest.mark.long(every=9)
@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--clip", "0"], "--clip is 0.0: expected a positive number"),
        (["--clip", "nan"], "--clip is nan: expected a positive number"),
        (["--clip", ":noise=1"], "noise of --clip is given without --clip, its unit: give both"),
        (["--clip", "1:noise=-1"], "noise of --clip is -1: expected a non-negative number"),
        (["--example-clip", "-2"], "--example-clip is -2.0: expected a positive number"),
        (["--example-clip", ":noise=1"], "noise of --example-clip is given without --example-clip"),
        (
            ["--clip", "1", "--example-clip", "1"],
            "both --clip and --example-clip are given: choose",
        ),
        (["--clip", ":delta=0"], "delta of --clip is 0: expected a number in (0, 1)"),
        (
            ["--compress", "topk:fraction=0"],
            "fraction of --compress is 0: expected a fraction in (0, 1]",
        ),
    ],
)
def test_bad_options_are_one_line_and_nothing_is_written(options, named, capsys):
    assert main(["run", "fedavg", *SHORT, *options, "--out", "x"]) == 2
    shown = capsys.readouterr().err
    assert named in shown
    assert shown.count("\n") == 1
    assert not Path("x").exists()


@pytest.mark.slow
def test_a_method_of_whole_batches_takes_no_clipping_of_examples(capsys):
    assert main(["run", "per_fedavg", *SHORT, "--example-clip", "1", "--out", "x"]) == 2
    assert "trains on a batch as a whole" in capsys.readouterr().err
    assert not Path("x").exists()
