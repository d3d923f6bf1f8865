"""Clients that take a part of their local steps, and clients whose uploads are lost."""

import re
from fractions import Fraction
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toys import (
    close,
    equal,
    federation,
    full,
    half,
    init_key,
    made,
    opposite_groups,
    pick,
    quadratic,
    quick_key,
    run,
    run_key,
    shallow,
    stack,
)

import jaxfl
from jaxfl.algorithms import (
    ditto,
    fedavg,
    feddyn,
    fednova,
    fedrep,
    gfedmtl,
    measured_graph,
    per_fedavg,
    pfedgat,
    pfedme,
    scaffold,
)
from jaxfl.core.errors import Diverged, InputError
from jaxfl.core.types import Cohort
from jaxfl.simulation import mesh, on_disk, work
from jaxfl.training.batches import minibatches
from jaxfl.training.channel import Channel, faithful
from jaxfl.training.objectives import masked_mean
from jaxfl.training.trainer import steps_of_work, trainer
from jaxfl.uplink import clip_to_median

C = 6
KEY = quick_key(3)


def mean_squares(params, batch, anchor, key):
    loss = masked_mean(jnp.square(batch.x @ params - batch.y), batch.mask)
    return loss, loss


def clients(sizes=(9, 4, 6)):
    rng = np.random.default_rng(0)
    xs = [rng.normal(size=(n, 3)).astype(np.float32) for n in sizes]
    ys = [rng.normal(size=n).astype(np.float32) for n in sizes]
    data = stack(xs, ys, 2)
    return Cohort(jnp.array([5, 2, 7]), data, data)


def first_batches(cohort, client, count, amount):
    """The model of a client after `count` batches, and the mean of their losses."""
    order_key, _ = jax.random.split(jax.random.fold_in(KEY, int(cohort.ids[client])))
    rows, counts = minibatches(order_key, cohort.train.mask[client], 4, **amount)
    w = np.ones(3)
    losses = []
    for r, c in zip(np.asarray(rows)[:count], np.asarray(counts)[:count], strict=True):
        x, y = (np.asarray(part[client], np.float64)[r[c]] for part in cohort.train[:2])
        losses.append(np.mean((x @ w - y) ** 2))
        w = w - 0.1 * 2 * x.T @ (x @ w - y) / len(y)
    return w, np.mean(losses)


@pytest.mark.long
@pytest.mark.parametrize("chunk", [1, 2, "all"])
@pytest.mark.parametrize(
    ("amount", "parts", "expected"),
    [({"steps": 7}, [0.4, 1.0, 0.01], [3, 7, 1]), ({"epochs": 4}, [0.25, 0.5, 1.0], [3, 2, 8])],
    ids=["steps", "epochs"],
)
def test_training_ends_after_the_first_steps_of_work_the_steps(amount, parts, expected, chunk):
    """Clients of nine, four and six examples have three, one and two batches of four an epoch."""
    cohort = clients()._replace(work=jnp.array(parts))
    fit = trainer(mean_squares, optax.sgd(0.1), batch_size=4, chunk=chunk, **amount)
    fitted = fit(KEY, jnp.ones((3, 3)), None, cohort)
    assert fitted.batches.tolist() == expected
    for client, count in enumerate(expected):
        w, loss = first_batches(cohort, client, count, amount)
        np.testing.assert_allclose(fitted.params[client], w, atol=1e-5)
        np.testing.assert_allclose(fitted.loss[client], loss, rtol=1e-4)


@pytest.mark.slow
def test_clients_that_do_all_of_their_work_train_as_without_parts():
    cohort = clients()
    fit = trainer(mean_squares, optax.adam(0.1), batch_size=4, steps=5)
    plain = fit(KEY, jnp.ones((3, 3)), None, cohort)
    close(fit(KEY, jnp.ones((3, 3)), None, cohort._replace(work=jnp.ones(3))), plain)


def test_a_client_without_examples_takes_no_step_whatever_its_part():
    cohort = clients()._replace(work=jnp.array([0.5, 0.5, 0.5]))
    empty = cohort.train._replace(mask=cohort.train.mask.at[1].set(False))
    fit = trainer(mean_squares, optax.sgd(0.1), batch_size=4, steps=4)
    fitted = fit(KEY, jnp.ones((3, 3)), None, cohort._replace(train=empty))
    assert fitted.batches.tolist() == [2, 0, 2]
    equal(fitted.params[1], jnp.ones(3))


def test_a_steps_of_work_all_steps_is_rounded_up_as_fractions_are():
    for denominator in (3, 5, 7, 10, 50):
        parts = [Fraction(k, denominator) for k in range(1, denominator + 1)]
        for steps in (1, 7, 200, 1550, 50_000):
            found = steps_of_work(
                jnp.full(denominator, steps), jnp.array([float(p) for p in parts])
            )
            assert found.tolist() == [-(-p * steps // 1) for p in parts]


def test_stragglers_are_a_fraction_of_the_clients_and_take_whole_epochs():
    ids = jnp.arange(4000)
    parts = np.asarray(work.stragglers(0.5, epochs=4)(KEY, ids))
    epochs, often = np.unique((4 * parts).round(5), return_counts=True)
    assert epochs.tolist() == [1, 2, 3, 4]
    # A straggler takes all epochs with probability 1 / 4.
    np.testing.assert_allclose(often / 4000, [0.125, 0.125, 0.125, 0.625], atol=0.03)
    anything = np.asarray(work.stragglers(1.0, least=0.2)(KEY, ids))
    assert anything.min() >= 0.2
    assert anything.max() <= 1
    np.testing.assert_allclose(anything.mean(), 0.6, atol=0.02)
    assert (np.asarray(work.stragglers(0.0)(KEY, ids)) == 1).all()


def test_what_a_client_draws_does_not_depend_on_the_others():
    ids = jnp.array([8, 3, 5])
    for draw in (
        lambda ids: work.stragglers(0.7)(KEY, ids),
        lambda ids: work.drop(0.5)(KEY, ids, None),
    ):
        together = draw(jnp.arange(10))
        equal(draw(ids), together[ids])


def test_uploads_are_lost_at_the_rate_given():
    lost = work.drop(0.2)(KEY, jnp.arange(5000), None)
    assert abs(float(lost.mean()) - 0.2) < 0.02


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: work.stragglers(1.5), "a fraction of 1.5 stragglers"),
        (lambda: work.stragglers(0.5, least=-1.0), "the least work is -1"),
        (lambda: work.stragglers(0.5, epochs=0), "0 epochs of stragglers"),
        (lambda: work.drop(1.0), "a rate of 1.0 lost uploads"),
        (lambda: work.given([[1.0]]), r"has shape \(1, 1\) and type float64"),
        (lambda: work.given([0.5, 0.0]), "has 0.0 for client 1: expected a fraction"),
        (lambda: work.given([0.5, np.nan]), "has nan for client 1"),
        (lambda: work.given(["half"]), "type <U4: expected numbers"),
        (lambda: work.read_fractions("none.npy", 2), "expected a .npy file that exists"),
    ],
)
def test_bad_numbers_are_one_line(wrong, message):
    with pytest.raises(InputError, match=message) as error:
        wrong()
    assert "\n" not in str(error.value)


def test_a_file_of_fractions_is_never_unpickled(tmp_path):
    file = tmp_path / "work.npy"
    np.save(file, np.array([0.5, "x", None], object), allow_pickle=True)
    with pytest.raises(InputError, match="expected an array of numbers"):
        work.read_fractions(file, 3)
    np.save(file, np.array([0.5, 1.0]))
    with pytest.raises(InputError, match="has 2 numbers, and there are 3 clients"):
        work.read_fractions(file, 3)
    file.write_bytes(b"")
    with pytest.raises(InputError, match="expected an array of numbers"):
        work.read_fractions(file, 3)


def lose(*gone):
    return lambda key, ids, parts: jnp.isin(ids, jnp.array(gone))


def rounds_with(algorithm, data, count, participation=None, **conditions):
    """The state, info and ids after some rounds, as of `toys.run`."""
    rounds = jaxfl.make_rounds(algorithm, participation or full(C), **conditions)
    state = algorithm.init(init_key(), data.train)
    state, (info, ids) = rounds(run_key(), data, state, 0, count)
    return state, info, ids


@pytest.mark.slow
def test_a_lost_upload_is_as_if_its_client_had_not_taken_part():
    data = opposite_groups()
    algorithm = made(ditto)
    state, info, ids = rounds_with(algorithm, data, 2, lost=lose(2))
    assert info.reported.tolist() == [[True, True, False, True, True, True]] * 2
    equal(info.lost, ~info.reported)
    jaxfl.check_finite(info, ids)
    others = jaxfl.participation.schedule([[0, 1, 3, 4, 5]])
    expected, *_ = run(algorithm, data, 2, participation=others)
    close(state.server, expected.server, 1e-6)
    close(state.clients, expected.clients, 1e-6)


@pytest.mark.slow
def test_an_upload_that_is_not_finite_is_still_an_error_where_another_is_lost():
    data = opposite_groups()
    spoilt = data._replace(train=data.train._replace(x=data.train.x.at[4].set(jnp.nan)))
    _, info, ids = rounds_with(made(fedavg), spoilt, 1, lost=lose(2))
    assert info.reported.tolist() == [[True, True, False, True, False, True]]
    with pytest.raises(Diverged, match="client 4 was not finite"):
        jaxfl.check_finite(info, ids)


@pytest.mark.long(every=3)
@pytest.mark.parametrize(
    ("method", "options"),
    [
        (measured_graph, {}),
        (pfedgat, {"wire": "gradient"}),
        (gfedmtl, {"tau": "learned", "servers": 1}),
    ],
    ids=["measured_graph", "pfedgat", "gfedmtl"],
)
@pytest.mark.slow(seconds=7)
def test_both_uploads_of_a_round_are_lost_together(method, options):
    """What a client without an upload has learned changes nothing for the others."""
    data = opposite_groups()
    other = data._replace(train=data.train._replace(y=data.train.y.at[2].set(1)))
    other = other._replace(val=other.val._replace(y=other.val.y.at[2].set(1)))
    algorithm = method(shallow(), **options)
    rounds = jaxfl.make_rounds(algorithm, full(C), lost=lose(2))
    state = algorithm.init(init_key(), data.train)
    found = [rounds(run_key(), one, state, 0, 2) for one in (data, other)]
    (one, (info, _)), (two, _) = found
    assert not info.reported[:, 2].any()
    equal(one.server, two.server)
    others = np.delete(np.arange(C), 2)
    equal(pick(one.clients, others), pick(two.clients, others))


@pytest.mark.slow
def test_a_defence_sees_only_the_uploads_that_arrive():
    """The median of the lengths 1, 2 and 90 is 2; without the first it is the mean of 2 and 90."""
    before = jnp.zeros((3, 1))
    after = jnp.array([[1.0], [2.0], [90.0]])
    upload = Channel(faithful, clip_to_median)
    lost = jnp.array([True, False, False])
    received, reported = upload(KEY, before, after, jnp.arange(3), lost)
    assert reported.tolist() == [False, True, True]
    np.testing.assert_allclose(received, [[0.0], [2.0], [46.0]], rtol=1e-6)


def test_stragglers_may_be_lost_and_the_others_report():
    work_of = work.given(np.array([1, 0.5, 1, 0.2, 1, 1]))
    data = opposite_groups()
    _, info, _ = rounds_with(
        made(fedavg), data, 1, work=work_of, lost=work.drop(0.0, stragglers=True)
    )
    assert info.reported.tolist() == [[True, False, True, False, True, True]]
    assert info.batches.tolist() == [[5, 3, 5, 1, 5, 5]]


@pytest.mark.slow
def test_neither_draw_changes_who_takes_part_or_what_is_trained():
    data = opposite_groups()
    algorithm = made(fedavg)
    conditions = {"work": work.stragglers(0.0), "lost": work.drop(0.0)}
    state, info, ids = rounds_with(algorithm, data, 2, half(C), **conditions)
    plain_state, plain, plain_ids = run(algorithm, data, 2, participation=half(C))
    equal(ids, plain_ids)
    close(state, plain_state, 1e-6)
    close(info.loss, plain.loss, 1e-6)


@pytest.mark.slow
def test_four_devices_share_clients_with_unequal_work():
    """Six clients leave a gap on four devices."""
    data = opposite_groups()
    algorithm = made(fedavg)
    conditions = {"work": work.stragglers(0.6), "lost": work.drop(0.4)}
    with jax.set_mesh(mesh.make_mesh(4)):
        spread = rounds_with(algorithm, mesh.place(data), 1, **conditions)
    close(rounds_with(algorithm, data, 1, **conditions), spread, 1e-6)


@pytest.mark.slow
def test_clients_on_disk_draw_what_clients_in_memory_draw(tmp_path):
    data = opposite_groups()
    algorithm = made(ditto)
    conditions = {"work": work.stragglers(0.6), "lost": work.drop(0.4)}
    state, info, ids = rounds_with(algorithm, data, 3, half(C), **conditions)
    assert 0 < info.lost.sum() < info.lost.size
    stored = on_disk.write_federation(tmp_path / "data", data)
    states, first = on_disk.open_clients(tmp_path / "states", algorithm, init_key(), stored)
    rounds = on_disk.make_stored_rounds(algorithm, half(C), stored, states, **conditions)
    found, (stored_info, stored_ids) = rounds(run_key(), first, 0, 3)
    equal(stored_ids, np.asarray(ids))
    equal(stored_info.lost, np.asarray(info.lost))
    equal(stored_info.batches, np.asarray(info.batches))
    close(found.server, state.server, 1e-6)
    close(states.read(np.asarray(found.clients), np.arange(C)), state.clients, 1e-6)


@pytest.mark.slow
def test_the_program_of_the_guide():
    page = (Path(__file__).parents[2] / "docs/guides/unreliable_clients.md").read_text()
    names = {}
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL).group(1), names)
    data = opposite_groups()
    algorithm = made(fedavg)
    state = algorithm.init(init_key(), data.train)
    _, (info, _) = names["rounds_of"](algorithm, C)(run_key(), data, state, 0, 4)
    assert info.lost.any()
    assert info.batches.min() < 5


# The optimum of a client is the mean of its examples, which all equal it.
OPTIMA = np.array([[3.0, 0, 0], [0, 3, 0], [0, 0, 3]], np.float32)
POINTS = federation([np.repeat(o[None], 5, axis=0) for o in OPTIMA], [np.zeros(5)] * 3)
PARTS = np.array([1.0, 0.5, 0.1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "divided"), [(fedavg, False), (fednova, True)], ids=["fedavg", "fednova"]
)
def test_fedavg_favours_clients_with_much_work_and_fednova_does_not(method, divided):
    """On quadratics K steps of rate .02 go the part 1 - .98^K of the way to the own optimum.

    FedAvg rests where these parts balance, FedNova where the parts for each step do.
    """
    algorithm = method(quadratic(steps=10, learning_rate=0.02))
    conditions = {"work": work.given(PARTS)}
    rounds = jaxfl.make_rounds(algorithm, full(3), **conditions)
    state, _ = rounds(run_key(), POINTS, algorithm.init(KEY, POINTS.train), 0, 150)
    steps = np.array([10, 5, 1])
    pull = 1 - 0.98**steps
    if divided:
        pull = pull / steps
    np.testing.assert_allclose(state.server["w"], pull / pull.sum() @ OPTIMA, atol=1e-3)
    # The unweighted mean of the optima is 1 in each coordinate.
    bias = np.abs(np.asarray(state.server["w"]) - 1).max()
    assert bias < 0.1 if divided else bias > 0.7


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "options", "expected"),
    [
        (ditto, {}, 1 + 1),
        (per_fedavg, {}, 1),
        # Of ten epochs of four batches, eight batches train the head.
        (fedrep, {}, 8 + 1),
        # Five steps in a step of w, and one of five for the deployed model.
        (pfedme, {}, 5 + 1),
        (feddyn, {}, 1),
    ],
    ids=["ditto", "per_fedavg", "fedrep", "pfedme", "feddyn"],
)
def test_every_training_of_a_round_is_cut_and_counted(method, options, expected):
    """A fifth of five steps is one step."""
    data = opposite_groups()
    algorithm = method(shallow(), **options)
    cohort = Cohort(jnp.arange(C), data.train, data.val)
    part = cohort._replace(work=jnp.array([1.0, 0.2, 1, 1, 1, 0.2]))
    state = algorithm.init(init_key(), data.train)
    round = jax.jit(algorithm.round)
    plain = round(KEY, state, cohort)[1].batches.tolist()
    found = round(KEY, state, part)[1].batches.tolist()
    assert found == [plain[0], expected, *plain[2:5], expected]


def test_scaffold_reads_mean_gradients_of_clients_with_unequal_work():
    """With plain SGD a control variate is the mean gradient of the steps that a client took."""
    algorithm = scaffold(quadratic(steps=10, learning_rate=0.02))
    given_rate = scaffold(quadratic(steps=10, learning_rate=0.02), local_rate=0.2)
    start = algorithm.init(KEY, POINTS.train)
    rate = 0.02
    x = np.asarray(start.server.model["w"], np.float64)
    for method in (algorithm, given_rate):
        rounds = jaxfl.make_rounds(method, full(3), work=work.given(PARTS))
        state, (info, _) = rounds(run_key(), POINTS, start, 0, 1)
        assert info.batches.tolist() == [[10, 5, 1]]
        for client, steps in enumerate([10, 5, 1]):
            y = x
            grads = []
            for _ in range(steps):
                grads.append(y - OPTIMA[client])
                y = y - rate * grads[-1]
            mean = np.mean(grads, axis=0)
            np.testing.assert_allclose(state.clients.memory["w"][client], mean, rtol=1e-4)
