"""`jaxfl.fit` is the loop that one would write by hand."""

import jax
import numpy as np
import pytest
from toys import SIZES, equal, opposite_groups, shallow

import jaxfl
from jaxfl.core.errors import Diverged, InputError

DATA = opposite_groups(sizes=SIZES)


@pytest.mark.slow
def test_it_has_the_bits_of_the_loop_by_hand():
    task = shallow()
    algorithm = jaxfl.algorithms.pfedgraph(task)
    key = jax.random.key(3)
    half = jaxfl.participation.uniform(6, 0.5)
    rounds = jaxfl.make_rounds(algorithm, half)
    evaluate = jaxfl.make_evaluate(algorithm, task)
    state = algorithm.init(key, DATA.train)
    expected = []
    losses = []
    for first, length in ((0, 2), (2, 1)):
        state, (info, _) = rounds(key, DATA, state, first, length)
        losses.append(np.asarray(info.loss).mean(axis=1))
        scores = evaluate(key, DATA, state, ids=np.arange(6))
        expected.append(scores)
    run = jaxfl.fit(
        algorithm,
        DATA,
        3,
        task=task,
        eval_every=2,
        participation=half,
        seed=3,
        after="fine_tuned",
    )
    equal(run.state, state)
    equal(run.weights, info.weights[-1])
    equal(run.loss, np.concatenate(losses))
    assert run.rounds.tolist() == [2, 3]
    equal(run.scores, jax.tree.map(lambda *x: np.stack(x), *expected))
    means = [point["mean"] for point in run.curves("val")["fine_tuned"]]
    np.testing.assert_allclose(means, [np.mean(e.fine_tuned.val) for e in expected], rtol=1e-6)


def test_it_goes_on_from_a_state_and_stops_when_asked():
    algorithm = jaxfl.algorithms.fedavg(shallow())
    whole = jaxfl.fit(algorithm, DATA, 3, eval_every=1)
    seen = []
    first = jaxfl.fit(
        algorithm,
        DATA,
        30,
        eval_every=1,
        callback=lambda point: seen.append(point.round),
        stop=lambda point: point.round == 2,
    )
    assert seen == first.rounds.tolist() == [1, 2]
    assert first.scores is None
    assert first.curves() == {}
    last = jaxfl.fit(algorithm, DATA, 1, state=first.state, start=2)
    equal(last.state, whole.state)
    assert last.rounds.tolist() == [3]


def test_who_diverges_is_named_or_left_out():
    spoilt = DATA._replace(train=DATA.train._replace(x=DATA.train.x.at[4].set(np.nan)))
    algorithm = jaxfl.algorithms.fedavg(shallow())
    with pytest.raises(Diverged, match="client 4"):
        jaxfl.fit(algorithm, spoilt, 1)
    run = jaxfl.fit(algorithm, spoilt, 1, diverged="leave out")
    np.testing.assert_array_equal(run.weights[:, 4], 0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rounds": 0}, "rounds is 0"),
        ({"rounds": 2, "eval_every": 0}, "eval_every is 0"),
        ({"rounds": 2, "after": "trained"}, "after of fit is 'trained'"),
    ],
)
def test_wrong_options_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        jaxfl.fit(jaxfl.algorithms.fedavg(shallow()), DATA, **options)
