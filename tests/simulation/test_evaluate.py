import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import linear, made, opposite_groups, quick_key, run

import jaxfl
from jaxfl.algorithms import fedavg, fedavg_ft, local
from jaxfl.core.errors import InputError
from jaxfl.core.types import Dataset, Pool
from jaxfl.data import federate, load, pathological
from jaxfl.simulation.client_scores import score_clients
from jaxfl.simulation.evaluate import make_evaluate, make_evaluate_models
from jaxfl.simulation.evaluation import by_stage
from jaxfl.simulation.participation import full
from jaxfl.simulation.rounds import make_rounds
from jaxfl.simulation.statistics import select_on_val, summarise


def predict(params, x):
    return x * params


def right(prediction, y):
    return (prediction == y).astype(jnp.float32)


@pytest.mark.slow
def test_scores_are_masked_means_whatever_the_batch():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, size=(3, 11)).astype(np.float32)
    y = rng.integers(0, 2, size=(3, 11)).astype(np.float32)
    mask = np.array([[True] * 11, [True] * 4 + [False] * 7, [False] * 11])
    expected = [np.mean((x[i] == y[i])[mask[i]]) if mask[i].any() else np.nan for i in range(3)]
    data = Dataset(jnp.asarray(x), jnp.asarray(y), jnp.asarray(mask))
    for batch, chunk in ((256, "all"), (4, "auto"), (11, 1), (1, 2)):
        scores = score_clients(predict, right, jnp.ones(3), data, batch_size=batch, chunk=chunk)
        np.testing.assert_allclose(scores, expected, rtol=1e-6)


def test_a_pool_is_weighted_by_client():
    x = jnp.arange(4.0)
    y = jnp.array([0.0, 1.0, 9.0, 9.0])
    weights = jnp.array([[1.0, 1, 1, 1], [3, 0, 1, 0], [0, 0, 1, 0]])
    scores = score_clients(
        predict, right, jnp.ones(3), Pool(x, y, weights), batch_size=3, chunk="all"
    )
    np.testing.assert_allclose(scores, [0.5, 0.75, 0.0])


def test_examples_that_do_not_count_are_not_computed():
    computed = []

    def counted(params, x):
        jax.debug.callback(lambda rows: computed.append(len(rows)), x)
        return predict(params, x)

    x = jnp.arange(1000.0)
    weights = jnp.zeros((2, 1000)).at[0, jnp.array([3, 500, 999])].set(1.0)
    pool = Pool(x, x.at[500].set(0), weights)
    scores = score_clients(counted, right, jnp.ones(2), pool, batch_size=2, chunk=1)
    np.testing.assert_allclose(scores, [2 / 3, np.nan])
    jax.effects_barrier()
    assert computed == [2, 2]
    # The same weights by groups: that of the three examples, and that of all others.
    groups = jnp.zeros(1000, int).at[jnp.array([3, 500, 999])].set(1)
    by_group = Pool(pool.x, pool.y, jnp.array([[0.0, 1.0], [0.0, 0.0]]), groups)
    again = score_clients(counted, right, jnp.ones(2), by_group, batch_size=2, chunk=1)
    np.testing.assert_array_equal(again, scores)
    jax.effects_barrier()
    assert computed == [2, 2, 2, 2]


@pytest.mark.slow
def test_the_label_reweighted_protocol_equals_its_formula():
    """acc_i = sum_c q_i(c) correct_c / sum_c q_i(c) total_c, as in pFedGraph's reference code."""
    source = load("digits")
    parts = pathological(source.y_train, 10, seed=1)
    data = federate(source, parts)
    task = jaxfl.classification(
        jaxfl.models.mlp(10), source.x_train[0], steps=20, scale=source.scale
    )
    algorithm = local(task)
    state, _, _ = run(algorithm, data, 1)
    scores = make_evaluate(algorithm, task)(quick_key(0), data, state, jnp.arange(10)).deployed.test
    for client, rows in enumerate(parts):
        q = np.bincount(source.y_train[rows], minlength=10) / len(rows)
        params = jax.tree.map(lambda x, client=client: x[client], state.clients.memory)
        correct = (
            np.asarray(task.problem.apply(params, jnp.asarray(source.x_test)).argmax(-1))
            == source.y_test
        )
        per_class = np.array([correct[source.y_test == c].sum() for c in range(10)])
        total = np.bincount(source.y_test, minlength=10)
        np.testing.assert_allclose(
            scores[client], (q * per_class).sum() / (q * total).sum(), rtol=1e-5
        )


@pytest.mark.slow
def test_fine_tuning_starts_from_the_deployed_model_and_leaves_the_state_alone():
    data = opposite_groups()
    task = linear(steps=20)
    algorithm = fedavg(task)
    state, _, _ = run(algorithm, data, 2)
    evaluate = make_evaluate(algorithm, task)
    some = jnp.array([4, 1])
    all_scores = evaluate(quick_key(0), data, state, jnp.arange(6))
    scores = evaluate(quick_key(0), data, state, some)
    np.testing.assert_allclose(scores.fine_tuned.test, all_scores.fine_tuned.test[some], rtol=1e-6)
    assert all_scores.deployed.test.mean() < 0.65 < 0.9 < scores.fine_tuned.test.mean()
    assert not np.allclose(scores.deployed.val, scores.fine_tuned.val)


@pytest.mark.slow
def test_trained_models_are_those_of_the_round_before_the_server_answers():
    """FedAvg's trained models are what FedAvg with fine-tuning deploys after the same round."""
    data = opposite_groups()
    task = linear(steps=3)
    key = quick_key(3)
    ids = jnp.arange(6)
    found = {}
    for factory in (fedavg, fedavg_ft):
        algorithm = factory(task)
        state = algorithm.init(key, data.train)
        rounds = make_rounds(algorithm, full(6), trained=True)
        state, (info, _) = rounds(key, data, state, 0, 4)
        evaluate = make_evaluate(algorithm, task, after="trained")
        found[factory] = evaluate(key, data, state, ids, info.trained)
    np.testing.assert_array_equal(found[fedavg].trained.test, found[fedavg_ft].deployed.test)
    np.testing.assert_array_equal(found[fedavg].trained.val, found[fedavg_ft].trained.val)
    assert not np.allclose(found[fedavg].trained.test, found[fedavg].deployed.test)
    with pytest.raises(InputError, match="trained=True"):
        make_evaluate(algorithm, task, after="trained")(key, data, state, ids)
    nothing = make_evaluate(algorithm, task, after="none")(key, data, state, ids)
    assert list(by_stage(nothing)) == ["deployed"]
    assert list(by_stage(found[fedavg])) == ["deployed", "trained"]
    assert np.isfinite(nothing.deployed.test).all()


def test_test_scores_do_not_change_the_selection():
    """The same evaluation is selected, whatever the test scores are."""
    val = np.array([[0.1, 0.9], [0.8, 0.9], [0.5, 0.2]])
    for seed in range(5):
        test = np.random.default_rng(seed).random((3, 2))
        np.testing.assert_array_equal(select_on_val(val, test), [test[1, 0], test[0, 1]])


def test_selection_without_validation_scores():
    nan = np.nan
    val = np.array([[nan, 0.5, nan], [nan, nan, nan]])
    test = np.array([[0.1, 0.2, nan], [0.3, nan, nan]])
    np.testing.assert_array_equal(select_on_val(val, test), [0.3, 0.2, nan])


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 100)), min_size=1, max_size=40))
def test_summary(clients):
    scores, sizes = (np.array(column, float) for column in zip(*clients, strict=True))
    found = summarise(scores, sizes)
    assert found["mean"] == pytest.approx(scores.mean())
    assert found["weighted"] == pytest.approx((scores * sizes).sum() / sizes.sum())
    assert found["std"] == pytest.approx(scores.std(), abs=1e-12)
    worst = max(1, round(len(scores) / 10))
    assert found["worst10"] == pytest.approx(sorted(scores)[:worst] @ np.ones(worst) / worst)


def test_summary_leaves_out_clients_without_a_score():
    assert summarise(np.array([0.5, np.nan]), np.array([1, 9]))["weighted"] == 0.5
    assert set(summarise(np.array([np.nan]), np.array([1])).values()) == {None}


@pytest.mark.slow
def test_evaluation_is_traced_once():
    traces = []
    data = opposite_groups()
    algorithm = made(local)
    task = linear()
    problem = task.problem
    counted = task._replace(
        problem=problem._replace(score=lambda p, y: traces.append(1) or problem.score(p, y))
    )
    evaluate = make_evaluate(algorithm, counted)
    state, _, _ = run(algorithm, data, 2)
    evaluate(quick_key(0), data, state, jnp.arange(6))
    count = len(traces)
    evaluate(quick_key(1), data, state, jnp.arange(6))
    assert len(traces) == count


def test_scoring_is_one_program_for_methods_that_predict_with_the_model_alone():
    """So that a comparison compiles it once: the persistent cache finds it for the next method."""
    data = opposite_groups()
    ids = jnp.arange(6)
    texts = []
    for factory in (fedavg, local):
        task = linear()
        models = jax.vmap(task.problem.init)(jax.random.split(quick_key(0), 6))
        evaluate = jax.jit(make_evaluate_models(factory(task), task))
        texts.append(evaluate.lower(quick_key(0), data, models, ids).as_text())
    assert texts[0] == texts[1]


@pytest.mark.slow
def test_an_algorithms_own_apply_is_used_for_scores_and_for_fine_tuning():
    """The task's `apply` cannot read this deployed model: a network, and a sign for its logits."""
    data = opposite_groups()
    task = linear(steps=20)
    plain = local(task)
    signed = plain._replace(
        models=lambda state, cohort: {
            "net": plain.models(state, cohort),
            "sign": jnp.where(cohort.ids % 2 == 0, 1.0, -1.0),
        },
        apply=lambda params, x: params["sign"] * task.problem.apply(params["net"], x),
    )
    state, _, _ = run(plain, data, 2)
    usual, turned = (
        make_evaluate(a, task)(quick_key(0), data, state, jnp.arange(6)) for a in (plain, signed)
    )
    expected = np.where(np.arange(6) % 2 == 0, usual.deployed.test, 1 - usual.deployed.test)
    np.testing.assert_allclose(turned.deployed.test, expected, atol=1e-6)
    assert (turned.fine_tuned.test[1::2] > turned.deployed.test[1::2] + 0.2).all()
