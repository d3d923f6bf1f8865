"""What `rounds` refuses of a Python user, in one line, and how divergence is seen."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from toys import full, jit, made, make_rounds, opposite_groups, quick_key, shallow

import jaxfl
from jaxfl.cli import main
from jaxfl.core.errors import Diverged, InputError
from jaxfl.models.mlp import mlp
from jaxfl.simulation.checks import check_validation

FEDAVG = jaxfl.algorithms.fedavg
KEY = quick_key(0)


def start(algorithm, data):
    return jit(algorithm.init)(KEY, data.train)


def with_labels(data, part, change):
    changed = getattr(data, part)
    return data._replace(**{part: changed._replace(y=change(changed.y))})


@pytest.mark.parametrize("part", ["train", "val", "test"])
@pytest.mark.parametrize(
    ("change", "found"),
    [(lambda y: y + 1, "from 1 to 2"), (lambda y: y - 1, "from -1 to 0")],
    ids=["too large", "negative"],
)
def test_labels_out_of_range_for_the_model_are_refused(part, change, found):
    algorithm = made(FEDAVG)
    data = opposite_groups()
    state = start(algorithm, data)
    expected = rf"the {part} data hold labels {found}, the model has 2 outputs: expected labels fr"
    with pytest.raises(InputError, match=expected):
        make_rounds(algorithm, full(6))(KEY, with_labels(data, part, change), state, 0, 1)


@pytest.mark.slow
def test_labels_of_positions_are_checked_but_for_those_without_one():
    task = jaxfl.classification(Tagger(), np.zeros((4, 1)), steps=1)
    algorithm = FEDAVG(task)
    data = opposite_groups()
    one = jnp.asarray(data.train.y)

    def positions(label):
        y = jnp.stack([one, one, jnp.full_like(one, -1), jnp.full_like(one, label)], axis=-1)
        train = data.train._replace(x=jnp.zeros((*y.shape, 1)), y=y)
        return jaxfl.types.Federation(train, train, train)

    rounds = make_rounds(algorithm, full(6))
    state = start(algorithm, positions(1))
    _, (info, ids) = rounds(KEY, positions(1), state, 0, 1)
    jaxfl.check_finite(info, ids)
    for label in (2, -2):
        with pytest.raises(InputError, match=r"the train data hold labels from .*has 2 outputs"):
            rounds(KEY, positions(label), state, 0, 1)


class Tagger(nn.Module):
    """Two logits for each position."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(x)


def test_labels_that_were_refused_once_are_refused_again():
    algorithm = made(FEDAVG)
    data = opposite_groups()
    state = start(algorithm, data)
    wrong = with_labels(data, "train", lambda y: y + 1)
    rounds = make_rounds(algorithm, full(6))
    for _ in range(2):
        with pytest.raises(InputError, match="the train data hold labels from 1 to 2"):
            rounds(KEY, wrong, state, 0, 1)


@pytest.mark.slow
def test_classification_with_one_output_is_refused_and_regression_of_whole_numbers_is_not():
    data = opposite_groups()
    one = mlp(1, hidden=())
    refused = FEDAVG(jaxfl.classification(one, jnp.zeros(8), steps=1))
    with pytest.raises(InputError, match="the model has one output, and its softmax is alw"):
        make_rounds(refused, full(6))(KEY, data, start(refused, data), 0, 1)
    allowed = FEDAVG(jaxfl.regression(one, jnp.zeros(8), steps=1))
    _, (info, ids) = make_rounds(allowed, full(6))(KEY, data, start(allowed, data), 0, 1)
    jaxfl.check_finite(info, ids)


def test_labels_in_padding_and_targets_that_are_numbers_are_not_checked():
    algorithm = made(FEDAVG)
    data = opposite_groups(sizes=[40, 25, 31, 40, 12, 9])

    def beyond(part):
        return part._replace(y=jnp.where(part.mask, part.y, 99))

    state = start(algorithm, data)
    rounds = make_rounds(algorithm, full(6))
    _, (info, ids) = rounds(KEY, data._replace(train=beyond(data.train)), state, 0, 1)
    jaxfl.check_finite(info, ids)


@pytest.mark.long(every=6)
@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([0, 3, 3], "names twice client 3 in round 5: expected each of the clients 0 to 5 at most"),
        ([0, 3, 6], "names client 6 in round 5"),
        ([-1, 3, 5], "names client -1 in round 5"),
        ([0, 1, 2, 3, 4, 7], "names client 7 in round 5"),
        ([0, 1, 2, 3, 4, 4], "names twice client 4 in round 5"),
        ([0, 1, 2, 3, 4, 5, 6], "names 7 clients a round, the federation has 6"),
    ],
)
def test_cohorts_with_wrong_clients_are_refused(ids, message):
    algorithm = made(FEDAVG)
    data = opposite_groups()
    rounds = jaxfl.make_rounds(algorithm, lambda key, number: jnp.array(ids))
    with pytest.raises(InputError, match=message):
        rounds(KEY, data, start(algorithm, data), 5, 1)


def test_the_round_of_a_wrong_cohort_is_named():
    algorithm = made(FEDAVG)
    data = opposite_groups()

    def late(key, number):
        return jnp.where(number < 3, jnp.array([0, 1]), jnp.array([4, 4]))

    with pytest.raises(InputError, match="names twice client 4 in round 3"):
        jaxfl.make_rounds(algorithm, late)(KEY, data, start(algorithm, data), 2, 3)


def test_a_state_of_another_method_or_federation_is_refused():
    data = opposite_groups()
    ditto = made(jaxfl.algorithms.ditto)
    fedavg = made(FEDAVG)
    rounds = make_rounds(ditto, full(6))
    with pytest.raises(InputError, match="the state is of another algorithm, model or federation"):
        rounds(KEY, data, start(fedavg, data), 0, 1)
    with pytest.raises(InputError, match="the state is of another algorithm, model or federation"):
        rounds(KEY, data, start(made(jaxfl.algorithms.ditto, shallow), data), 0, 1)
    fewer = opposite_groups(clients=4)
    with pytest.raises(InputError, match=r"of shape .*\(4,.*, the federation has 6 clients"):
        rounds(KEY, data, start(ditto, fewer), 0, 1)
    with pytest.raises(InputError, match="the state has type dict: expected the State of"):
        rounds(KEY, data, {}, 0, 1)


def test_traced_arguments_are_not_checked():
    algorithm = made(FEDAVG)
    data = with_labels(opposite_groups(), "train", lambda y: y + 1)
    state = start(algorithm, data)
    rounds = make_rounds(algorithm, full(6))
    jax.eval_shape(lambda data: rounds(KEY, data, state, 0, 1), data)


def test_an_error_of_the_method_itself_is_not_replaced():
    algorithm = made(FEDAVG)

    def fails(*_):
        raise ZeroDivisionError

    data = opposite_groups()
    rounds = jaxfl.make_rounds(algorithm._replace(round=fails), full(6))
    with pytest.raises(ZeroDivisionError):
        rounds(KEY, data, start(algorithm, data), 0, 1)


@pytest.mark.slow
def test_divergence_names_its_round_and_its_clients():
    algorithm = made(FEDAVG)
    data = opposite_groups()
    spoiled = data.train.x.at[jnp.array([1, 4])].set(jnp.nan)
    data = data._replace(train=data.train._replace(x=spoiled))
    rounds = make_rounds(algorithm, full(6))
    _, (info, ids) = rounds(KEY, data, start(algorithm, data), 3, 2)
    with pytest.raises(Diverged, match="an update of client 1, 4 was not finite in round 3"):
        jaxfl.check_finite(info, ids, start=3)
    seeds = jax.tree.map(lambda x: np.stack([x, x]), (info, ids))
    with pytest.raises(Diverged, match="client 1, 4 was not finite in round 0"):
        jaxfl.check_finite(*seeds)


def test_a_run_without_divergence_passes():
    algorithm = made(FEDAVG)
    data = opposite_groups()
    _, (info, ids) = make_rounds(algorithm, full(6))(KEY, data, start(algorithm, data), 0, 2)
    jaxfl.check_finite(info, ids)


@pytest.mark.long
@pytest.mark.parametrize(
    "learner",
    [
        jaxfl.algorithms.pfedgat,
        jaxfl.algorithms.fedfomo,
        functools.partial(jaxfl.algorithms.gfedmtl, tau="learned"),
    ],
    ids=["pfedgat", "fedfomo", "gfedmtl"],
)
def test_methods_that_learn_from_validation_data_refuse_to_run_without_any(learner):
    algorithm = learner(shallow())
    data = opposite_groups()
    nothing = data._replace(val=data.val._replace(mask=jnp.zeros_like(data.val.mask)))
    with pytest.raises(InputError, match="no client has any: give each some"):
        make_rounds(algorithm, full(6))(KEY, nothing, start(algorithm, data), 0, 1)
    # One client with validation data is enough.
    one = data.val._replace(mask=data.val.mask.at[1:].set(False))
    check_validation(algorithm, data._replace(val=one))


@pytest.mark.slow
def test_a_run_without_validation_data_is_refused_before_it_is_compiled(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    short = ["--clients", "3", "--partition", "iid", "--rounds", "1", "--local-steps", "1"]
    assert main(["run", "fedfomo", *short, "--val", "0", "--out", "x"]) == 2
    assert "no client has any: give each some" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "x").exists()
