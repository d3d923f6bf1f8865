"""What every algorithm of the registry owes, whatever it is: no test here knows a name."""

import functools
import inspect
import os
import socket
import subprocess
import sys
import typing
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lineage import lineages
from starts import starts_from_server
from toys import (
    SIZES,
    check_relabelling,
    close,
    coins,
    deployed,
    differ,
    equal,
    full,
    half,
    init_key,
    jit,
    made,
    make_evaluate,
    make_rounds,
    normed,
    once,
    opposite_groups,
    pick,
    predictors,
    run,
    shallow,
    unpadded,
)
from variants import variants

import jaxfl
from jaxfl.algorithms import ALGORITHMS
from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.core.facts import facts_of
from jaxfl.core.streams import Stream
from jaxfl.core.types import Cohort, Edges, take_offer
from jaxfl.simulation import checkpoint, mesh
from jaxfl.simulation.rounds import cohort_round
from jaxfl.training.batch_statistics import statistics
from jaxfl.uplink import attack

C = 6


@once
def uneven():
    """Six clients of different sizes. Most tests use them and so share one compiled program."""
    return opposite_groups(sizes=SIZES)


@once
def padded():
    """The same, each client padded with rubbish, of which nothing may be computed."""
    return opposite_groups(sizes=SIZES, pad=13, rubbish=np.nan)


def between(weights):
    """The largest weight of each other client in any part of the model [T, M, M]."""
    largest = functools.reduce(np.maximum, jax.tree.leaves(weights))
    return largest * (1 - np.eye(C))[None]


def cohort_of(data, ids):
    return Cohort(ids, pick(data.train, ids), pick(data.val, ids))


class Traced(typing.NamedTuple):
    """The programs of the initial state and of a round of all clients; shapes of their results."""

    init: typing.Any
    round: typing.Any
    state: typing.Any
    after: typing.Any
    info: typing.Any
    deployed: typing.Any
    # whether the round offers each client a model that it may refuse
    offers: bool
    # whether it asks the task which edges of its graph to keep
    limits: bool
    # of each upload, whether the method says to it which clients' uploads are lost
    losses: list[bool]


@functools.cache
def traced(factory, **hyper):
    """The method under an attack that draws random numbers; it is traced once for several tests."""
    asked = []

    def accept(own, offered, cohort):
        asked.append(own)
        return take_offer(own, offered, cohort)

    limited = []

    def keep_edges(weights):
        limited.append(weights)
        return Edges(weights, weights)

    plain = shallow(uplink=attack("gauss", np.ones(C, bool)))
    losses = []

    def upload(key, before, after, ids, lost=None):
        losses.append(lost is not None)
        return plain.upload(key, before, after, ids, lost)

    task = plain._replace(accept=accept, keep_edges=keep_edges, upload=upload)
    algorithm = factory(task, **hyper)
    data = uneven()
    key = jax.random.key(0)
    init, state = jax.make_jaxpr(algorithm.init, return_shape=True)(key, data.train)
    losses.clear()  # before the first round nothing is lost
    cohort = cohort_of(data, np.arange(C))._replace(lost=jnp.zeros(C, bool))
    step, (after, info) = jax.make_jaxpr(algorithm.round, return_shape=True)(key, state, cohort)
    models = jax.eval_shape(algorithm.models, state, cohort)
    return Traced(init, step, state, after, info, models, bool(asked), bool(limited), losses)


def test_a_round_keeps_shapes_and_dtypes(factory):
    _, _, state, after, info, deployed, *_ = traced(factory)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    for old, new in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
        assert (new.shape, new.dtype, new.weak_type) == (old.shape, old.dtype, old.weak_type)
    assert info.loss.shape == info.up.shape == info.down.shape == (C,)
    assert info.batches.shape == info.reported.shape == (C,)
    assert all(matrix.shape == (C, C) for matrix in jax.tree.leaves(info.weights))
    assert all(value.shape == () for value in info.metrics.values())
    # The trained models can be deployed and scored as those that the method deploys.
    assert jax.tree.structure(info.trained) == jax.tree.structure(deployed)
    for one, other in zip(jax.tree.leaves(info.trained), jax.tree.leaves(deployed), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)


def test_inputs_are_augmented_as_they_are_given(factory):
    """Whatever a method trains on, measures or warns of: never examples of another shape."""
    seen = []

    def augment(key, x):
        seen.append(x.shape[1:])
        return x

    algorithm = made(factory, augment=augment)
    key, data = jax.random.key(0), uneven()
    state = jax.eval_shape(algorithm.init, key, data.train)
    jax.eval_shape(algorithm.round, key, state, cohort_of(data, np.arange(C)))
    if algorithm.warn_of_sizes is not None:
        algorithm.warn_of_sizes(np.array([30, 40]))
    assert set(seen) == {data.train.x.shape[2:]}


def test_a_method_says_whether_it_offers_mixtures_that_clients_may_refuse(factory):
    assert traced(factory).offers == facts_of(factory).offers_mixture


def test_a_method_says_whether_its_graph_may_be_limited_to_the_largest_weights(factory):
    assert traced(factory).limits == facts_of(factory).takes_top_edges


def test_a_method_says_whether_its_clients_start_from_the_server(factory):
    stated = facts_of(factory).starts_from_server
    assert starts_from_server(factory, shallow(), {}, uneven()) == stated, "starts_from_server"


@pytest.mark.long
def test_what_a_method_says_of_itself_holds_under_each_of_its_options(factory):
    facts = facts_of(factory)
    for hyper in variants(factory):
        try:
            found = traced(factory, **hyper)
        except InputError:  # an option that takes effect beside another one only
            continue
        assert found.offers == facts.offers_mixture, hyper
        assert found.limits == facts.takes_top_edges, hyper
        if not facts.starts_from_server:
            assert not starts_from_server(factory, shallow(), hyper, uneven()), hyper


def test_every_upload_of_a_round_can_be_lost(factory):
    assert all(traced(factory).losses)


def test_client_state_has_the_client_axis_first(factory):
    few = traced(factory).state
    twice = opposite_groups(clients=2 * C)
    many = jax.eval_shape(made(factory, shallow).init, jax.random.key(0), twice.train)

    def rows(state, clients):
        """The shapes of a client's part; an axis behind its own may be that of all clients."""
        shapes = [x.shape[1:] for x in jax.tree.leaves(state.clients)]
        return [tuple("C" if n == clients else n for n in shape) for shape in shapes]

    assert rows(few, C) == rows(many, 2 * C)
    assert {x.shape[0] for x in jax.tree.leaves(few.clients)} <= {C}
    assert {x.shape[0] for x in jax.tree.leaves(many.clients)} <= {2 * C}
    assert [x.shape for x in jax.tree.leaves(few.server)] == [
        x.shape for x in jax.tree.leaves(many.server)
    ]


def test_no_key_in_the_state(factory):
    leaves = jax.tree.leaves(traced(factory).state)
    assert not any(jnp.issubdtype(x.dtype, jax.dtypes.prng_key) for x in leaves)


@pytest.mark.long
def test_neither_four_devices_nor_padding_changes_anything(factory):
    """Six clients leave a gap on four devices."""
    algorithm = made(factory, shallow)
    with jax.set_mesh(mesh.make_mesh(4)):
        spread = run(algorithm, mesh.place(padded()), 1)
    close(run(algorithm, uneven(), 1), spread, 1e-6)


@pytest.mark.slow(seconds=70)
@pytest.mark.parametrize("every", [20, 1])
def test_two_processes_give_what_one_gives(tmp_path, every):
    """One round of every twentieth algorithm, or of each; two processes share the clients."""
    out = tmp_path / "leaves.npz"
    with socket.socket() as free:
        free.bind(("localhost", 0))
        coordinator = f"localhost:{free.getsockname()[1]}"
    program = Path(__file__).parents[1] / "two_processes.py"
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir}
    running = [
        subprocess.Popen(
            [sys.executable, program, coordinator, str(process), out, str(every)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in range(2)
    ]
    errors = [process.communicate(timeout=600)[1] for process in running]
    assert [process.returncode for process in running] == [0, 0], errors
    with np.load(out, allow_pickle=False) as together:
        for name in list(ALGORITHMS)[::every]:
            state, info, _ = run(made(ALGORITHMS[name], shallow), uneven(), 1)
            for number, leaf in enumerate(jax.tree.leaves((state, info))):
                found = together[f"{name}/{number:03}"]
                np.testing.assert_allclose(
                    found, np.asarray(leaf), rtol=1e-6, atol=1e-6, err_msg=name
                )


@pytest.mark.long
def test_a_scan_traces_a_round_once_and_gives_what_single_rounds_give_in_chunks_or_not(factory):
    traces = []
    data, chunked = uneven(), made(factory, shallow, chunk=4)

    def counted(*arguments):
        traces.append(1)
        return chunked.round(*arguments)

    key, advance = jax.random.key(0), jaxfl.make_rounds(chunked._replace(round=counted), full(C))
    start = jit(made(factory, shallow).init)(jax.random.fold_in(key, 10**6), data.train)
    whole, said = advance(key, data, start, 0, 3)
    advance(key, data, whole, 3, 3)
    assert len(traces) == 1
    close((whole, *said), run(made(factory, shallow), data, 3))


@pytest.mark.slow
def test_padding_changes_no_bit_of_programs_as_shipped(factory):
    algorithm = made(factory, shallow)
    equal(run(algorithm, uneven(), 2, exact=True), run(algorithm, padded(), 2, exact=True))


@once
def by_rows():
    """The same again, each example stored once and read by row number."""
    return unpadded(uneven())


@pytest.mark.long
def test_examples_that_are_read_by_row_number_change_nothing(factory):
    algorithm = made(factory, shallow)
    found = run(algorithm, by_rows(), 2, participation=half(C))
    close(found, run(algorithm, uneven(), 2, participation=half(C)), 1e-6)


@pytest.mark.slow
def test_examples_that_are_read_by_row_number_change_no_bit_of_programs_as_shipped(factory):
    algorithm = made(factory, shallow)
    one = run(algorithm, uneven(), 2, exact=True)
    equal(one, run(algorithm, by_rows(), 2, exact=True))
    with jax.set_mesh(mesh.make_mesh(4)):
        spread = run(algorithm, mesh.place(by_rows()), 1, exact=True)
        equal(spread, run(algorithm, mesh.place(uneven()), 1, exact=True))


@pytest.mark.long
def test_relabelling_clients_relabels_the_result(factory):
    algorithm, data = made(factory, shallow), uneven()
    check_relabelling(algorithm, data, run(algorithm, data, 2)[0])


@pytest.mark.long
def test_four_rounds_are_two_restored_and_two_more(factory, tmp_path):
    algorithm, data = made(factory, shallow), uneven()
    whole, info, ids = run(algorithm, data, 4, participation=half(C))
    state, first, first_ids = run(algorithm, data, 2, participation=half(C))
    checkpoint.save(tmp_path / "two", 2, state)
    like = jax.eval_shape(algorithm.init, jax.random.key(0), data.train)
    number, restored = checkpoint.restore(tmp_path / "two", like)
    state, second, second_ids = run(
        algorithm, data, 2, participation=half(C), state=restored, start=number
    )
    equal(state, whole)
    equal(
        jax.tree.map(lambda a, b: np.concatenate([a, b]), (first, first_ids), (second, second_ids)),
        (info, ids),
    )


def test_no_two_streams_of_a_round_share_a_key_for_any_client(factory):
    """In the program of a round its key makes streams by number, and only streams get ids.

    A stream into which a number is folded beside ids would share a key with the client of that id,
    as would a stream that serves two trainings or two uploads.
    """
    begin, proceed, *_ = traced(factory)
    for program, keys_of_the_model in ((begin, True), (proceed, False)):
        uses = lineages(program, [0])
        streams = {step for (lineage, step) in uses if lineage == ()}
        assert all(type(step) is int for step in streams) or keys_of_the_model
        for (lineage, step), often in uses.items():
            if len(lineage) == 1 and step == "ids":
                assert not any(of == lineage and type(other) is int for of, other in uses)
                name = typing.get_args(Stream)[lineage[0]]
                assert often == 1 or name == "evaluate", name


@pytest.mark.long
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(factory):
    algorithm, data = made(factory, shallow), uneven()
    once, again, other = (run(algorithm, data, 2, key=jax.random.key(s))[0] for s in (4, 4, 5))
    equal(once, again)
    assert differ(once, other)


@pytest.mark.long
def test_seeds_and_float_hyper_parameters_run_side_by_side(factory):
    """One program for two values of each traced option gives what each value gives alone."""
    hints = {
        n: h for n, h in typing.get_type_hints(factory).items() if jax.Array in typing.get_args(h)
    }
    task, data = shallow(), uneven()
    values = {}
    for name, parameter in inspect.signature(factory).parameters.items():
        try:
            if name in hints:
                factory(task, **{name: 0.6})
                values[name] = np.array([parameter.default or 0.6, 0.3], np.float32)
        except InputError:  # takes effect beside another hyper-parameter only
            continue

    def final(seed, hyper):
        algorithm, key = factory(task, **hyper), jax.random.key(seed)
        start = algorithm.init(jax.random.fold_in(key, 10**6), data.train)
        return jaxfl.make_rounds(algorithm, half(C))(key, data, start, 0, 2)[0]

    seeds, alone = np.array([1, 0]), jit(final)
    both = jit(jax.vmap(final))(seeds, values)
    for i, seed in enumerate(seeds):
        close(pick(both, i), alone(seed, {n: v[i] for n, v in values.items()}))


@pytest.mark.long
def test_clients_out_of_the_cohort_are_left_alone(factory):
    algorithm, data = made(factory, shallow), uneven()
    state, _, _ = run(algorithm, data, 2)
    after, info, ids = run(algorithm, data, 1, state=state, participation=half(C), start=2)
    assert info.loss.shape == ids.shape == (1, 3)
    rest = np.setdiff1d(np.arange(C), ids[0])
    equal(pick(after.clients, rest), pick(state.clients, rest))


@pytest.mark.long
def test_weights_are_row_stochastic(factory):
    _, info, _ = run(made(factory, shallow), uneven(), 4)
    for matrix in jax.tree.leaves(info.weights):
        assert matrix.min() >= 0
        np.testing.assert_allclose(matrix.sum(axis=-1), 1, atol=1e-6)


def test_who_mixes_also_sends_and_who_sends_is_counted(factory):
    _, info, _ = run(made(factory, shallow), uneven(), 2)
    for floats in (info.up, info.down):
        assert np.issubdtype(floats.dtype, np.integer)
        assert bool((floats >= 0).all())
    sends = facts_of(factory).sends != ""
    mixes = sends if info.weights is None else between(info.weights).any()
    assert bool((info.up > 0).all()) == mixes
    assert bool((info.down > 0).all()) == mixes


@pytest.mark.long
def test_one_lie_is_felt_wherever_clients_mix_and_leaves_everything_finite(factory):
    def lie(key, before, after, ids):
        return jax.tree.map(
            lambda x: jnp.where((ids == 2).reshape(-1, *[1] * (x.ndim - 1)), -100 * x, x), after
        )

    data = uneven()
    state, info, _ = run(made(factory, shallow), data, 2)
    misled, told, _ = run(factory(shallow(uplink=lie)), data, 2)
    others = None if info.weights is None else between(info.weights)
    sends = facts_of(factory).sends != ""
    if not sends or (others is not None and not others.any()):
        assert not differ(state, misled)
    elif others is None or others[:, :, 2].max() > 1e-3:  # a robust rule may not choose it
        assert differ(state, misled)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((misled, told)))


@pytest.mark.long(every=16)
@pytest.mark.parametrize("rubbish", [np.nan, np.inf])
def test_what_is_not_finite_reaches_nobody(factory, rubbish):
    """A client whose update is NaN or inf is named, and left out until it is finite again."""
    data, broken, others = uneven(), 2, np.delete(np.arange(C), 2)

    def spoil(part):
        x = np.array(part.x)
        x[broken] = rubbish
        return part._replace(x=jnp.asarray(x))

    spoilt = data._replace(train=spoil(data.train), val=spoil(data.val))
    start = jit(made(factory, shallow).init)(jax.random.key(1), data.train)
    state, info, _ = run(made(factory, shallow), spoilt, 2, state=start)
    np.testing.assert_array_equal(info.reported, [np.arange(C) != broken] * 2)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((state, info.weights, info.metrics)))
    assert np.isfinite(info.loss[:, others]).all()
    for matrix in jax.tree.leaves(info.weights):
        np.testing.assert_array_equal(matrix[:, others, broken], 0)
        np.testing.assert_allclose(matrix.sum(axis=-1), 1, atol=1e-6)
    healed, told, _ = run(made(factory, shallow), data, 1, state=state, start=2)
    assert told.reported.all()
    assert differ(pick(state.clients, others), pick(healed.clients, others)) or differ(
        state.server, healed.server
    )


@pytest.mark.long
def test_an_upload_whose_squares_overflow_counts_as_not_finite(factory):
    """One client cannot keep the others from learning by finite numbers, whatever their size."""
    data, huge, others = uneven(), 2, np.delete(np.arange(C), 2)
    cohort = cohort_of(data, np.arange(C))

    def round_with(cohort, number):
        def spoil(key, before, after, ids):
            rows = tree.choose(ids == huge, jax.tree.map(lambda x: x * 0 + number, after), after)
            return jax.tree.map(lambda x, y: x.astype(y.dtype), rows, after)

        algorithm = factory(shallow(uplink=spoil))
        state = algorithm.init(init_key(), cohort.train)
        return cohort_round(algorithm, jax.random.key(3), state, cohort)

    outcome = jit(round_with)
    state, info = outcome(cohort, jnp.nan)
    assert info.reported[others].all()
    for number in (3e38, -1e20, 2e15):
        equal(outcome(cohort, number), (state, info))


@pytest.mark.long(every=4)
def test_where_nobody_reports_everything_stays_finite(factory):
    data = uneven()
    spoilt = data._replace(train=data.train._replace(x=data.train.x * np.nan))
    state, info, _ = run(made(factory, shallow), spoilt, 1)
    assert not info.reported.any()
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((state, info.weights)))
    for matrix in jax.tree.leaves(info.weights):
        np.testing.assert_allclose(matrix.sum(axis=-1), 1, atol=1e-6)


def weighted(data, weigh):
    """The data whose training and validation examples weigh `weigh(mask)`."""
    train, val = (part._replace(weight=weigh(part.mask)) for part in (data.train, data.val))
    return data._replace(train=train, val=val)


@pytest.mark.long
def test_clients_train_by_the_weights_of_their_examples(factory):
    """Equal weights change nothing but the rounding, and others change what clients deploy."""
    algorithm = made(factory, shallow)
    rng = np.random.default_rng(0)
    ways = [
        lambda mask: None,
        lambda mask: jnp.where(mask, 4.0, jnp.nan),
        lambda mask: jnp.asarray(rng.exponential(size=mask.shape).astype(np.float32)),
    ]
    datas = [weighted(padded(), weigh) for weigh in ways]
    ends = [run(algorithm, data, 1) for data in datas]
    plain, equal_weights, others = (
        deployed(algorithm, state, C, data) for (state, *_), data in zip(ends, datas, strict=True)
    )
    close(plain, equal_weights, 1e-4)
    assert differ(plain, others)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(others))


@pytest.mark.long
def test_equal_clients_all_reach_the_common_optimum(factory):
    """Within 2,000 rounds, in one scan, each predicts the labels by their frequencies.

    A method that leaves a part of the model as it was at first, for clients to fine-tune, predicts
    them better than at first, as far as that part allows.
    """
    data, kinds, frequencies = coins()
    algorithm, key = (
        made(factory, shallow, optimizer=jaxfl.sgd(0.05, 0.0, 0.0), batch_size=32),
        jax.random.key(0),
    )
    start = jit(algorithm.init)(jax.random.fold_in(key, 10**6), data.train)
    state, _ = make_rounds(algorithm, full(4))(key, data, start, 0, 2000)

    def predicted(state):
        models = predictors(algorithm, state, data.train)
        return models, jax.nn.softmax(jit(jax.vmap(algorithm.apply, (0, None)))(models, kinds))

    first, guessed = predicted(start)
    last, found = predicted(state)
    expected = np.broadcast_to(frequencies, (4, 2, 2))
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(last), strict=True)
    if any(np.array_equal(one, other) for one, other in pairs):
        assert np.abs(found - expected).max() < 0.7 * np.abs(guessed - expected).max()
    else:
        np.testing.assert_allclose(found, expected, atol=0.05)


@pytest.mark.long
def test_opposite_groups_need_personal_models(factory):
    """No one model can serve both groups.

    A method that says that something of the deployed model is personal must give each client a
    model that suits it better than its neighbour's, who is of the other group; and a good one if it
    mixes within the groups or not at all. Any other method deploys one model, with which half of
    the clients are wrong.
    """
    data = opposite_groups()
    ids = np.arange(C)
    facts = facts_of(factory)
    task = shallow(steps=20)
    algorithm = factory(shallow(), **facts.separating)
    state, info, _ = run(algorithm, data, 12)
    models = predictors(algorithm, state, data.train)

    def accuracy(models):
        predicted = jit(jax.vmap(algorithm.apply))(models, data.test.x)
        return float(jit(jax.vmap(task.problem.score))(predicted, data.test.y).mean())

    matrix = np.asarray(jit(tree.ravel)(models))
    differs = np.ptp(matrix, axis=0).max() > 1e-3 * np.abs(matrix).max()
    # The toy has no part that some methods keep: normalisation layers.
    memory = getattr(state.clients, "memory", state.clients)
    empty = not jax.tree.leaves(memory) and jax.tree.structure(memory) != jax.tree.structure(())
    personal = facts.personal != "" and not empty
    assert differs == personal
    own = accuracy(models)
    strange = accuracy(pick(models, (ids + 1) % C))
    assert own > strange if personal else own < 0.65
    same = ids[:, None] % 2 == ids[None] % 2
    apart = info.weights is None or (between(info.weights)[-1] * ~same).sum(axis=1).max() < 0.1
    if personal and apart:
        assert own > 0.7
    scores = make_evaluate(algorithm, task)(jax.random.key(0), data, state, ids)
    np.testing.assert_allclose(scores.deployed.test.mean(), own, atol=1e-6)
    assert scores.fine_tuned.test.mean() > 0.8


# Eight clients in two groups, each with the data of the first client of its group. Four of them
# take part at first, others later; clients 2 and 3 never do, and 4 and 5 leave.
EARLY = [0, 1, 4, 5]
LATE = [0, 1, 6, 7]


@once
def twins():
    return jax.tree.map(lambda x: x[np.arange(8) % 2], opposite_groups(examples=20))


@pytest.mark.long
def test_clients_never_seen_or_long_away_deploy_what_the_server_knows_now(factory):
    """If the server has models that changed, clients that were never seen deploy something of them.

    If present twins both deploy one model that the server has, absent twins deploy it too, unless
    the paper gives them something else.
    """
    facts = facts_of(factory)
    task, data = shallow(), twins()
    algorithm = factory(task, **facts.separating)
    who = jaxfl.participation.schedule(np.array([EARLY] * 2 + [LATE] * 4))
    state, _, _ = run(algorithm, data, 6, participation=who)
    start = jit(algorithm.init)(init_key(), data.train)
    before, after = (deployed(algorithm, s, 8, data) for s in (start, state))
    first, now = (
        np.concatenate([np.asarray(x).reshape(8, -1) for x in jax.tree.leaves(models)], axis=1)
        for models in (before, after)
    )
    kernel = jax.eval_shape(task.problem.init, jax.random.key(0))["params"]["Dense_0"]["kernel"]
    pairs = zip(jax.tree.leaves_with_path(start.server), jax.tree.leaves(state.server), strict=True)
    held = [
        np.asarray(new).reshape(-1, *kernel.shape)
        for (path, old), new in pairs
        if tree.path(path).endswith("Dense_0/kernel") and not np.allclose(old, new)
        # One model, or some; not a matrix for each parameter.
        if new.shape[-2:] == kernel.shape and new.ndim < 4
    ]
    if held:
        assert (np.abs(now - first).max(axis=1)[2:4] > 1e-3).all()
    kernels = next(x for x in jax.tree.leaves(after) if x.shape[1:] == kernel.shape)
    like = functools.partial(np.allclose, rtol=1e-4, atol=1e-5)
    for group in (0, 1):
        own, unseen, away, twin = now[group::2]
        of_server = any(like(model, kernels[group]) for models in held for model in models)
        if of_server and like(own, twin) and not facts.absent:
            assert like(unseen, own)
            assert like(away, own)


@pytest.mark.long
def test_batch_statistics_and_dropout_keep_the_contract(factory):
    """With both, padding changes nothing, every number is finite, and personal norms differ.

    Statistics stay those of inputs near 1: a penalty does not push them.
    """
    algorithm = made(factory, normed)
    state, info, _ = run(algorithm, uneven(), 2)
    close((state, info), run(algorithm, padded(), 2)[:2], 1e-4)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((state, info)))
    scores = make_evaluate(algorithm, normed())(jax.random.key(0), uneven(), state, np.arange(C))
    assert np.isfinite(scores.deployed.test).all()
    models = deployed(algorithm, state, C, uneven())
    assert all(np.abs(x).max() < 10 for x in jax.tree.leaves(statistics(models)))
    if facts_of(factory).personal.startswith("the normalisation"):
        own = pick(state.clients.memory, np.arange(C))["batch_stats"]["BatchNorm_0"]["mean"]
        assert np.ptp(own, axis=0).max() > 1e-3


@pytest.mark.long
def test_a_client_with_one_example(factory):
    data = opposite_groups(sizes=[1, 40, 40, 40, 40, 40])
    algorithm = made(factory, shallow)
    state, info, _ = run(algorithm, data, 2)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((state, info)))
    scores = make_evaluate(algorithm, shallow(steps=20))(
        jax.random.key(0), data, state, np.arange(C)
    )
    assert np.isnan(scores.deployed.val).tolist() == [True] + [False] * 5
    assert np.isfinite(scores.deployed.test).all()
