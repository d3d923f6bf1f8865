"""Inputs that are pytrees of arrays, from the data to the scores."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from toys import close, quick_key, run

import jaxfl
from jaxfl.core.errors import InputError
from jaxfl.training.objectives import data_loss
from jaxfl.training.task import supervised

RNG = np.random.default_rng(0)
IMAGE = RNG.integers(0, 256, (80, 2, 2)).astype(np.uint8)
AGE = RNG.normal(size=(80, 3)).astype(np.float32)
TRUTH = RNG.normal(size=7)
KERNEL = RNG.normal(size=(7, 2)).astype(np.float32)
TOGETHER = np.concatenate([IMAGE.reshape(80, 4) / 255, AGE], axis=1).astype(np.float32)
Y = (np.median(TOGETHER @ TRUTH) < TOGETHER @ TRUTH).astype(int)
PARTS = [np.arange(0, 30), np.arange(30, 45), np.arange(45, 80)]
FORMS = {
    "dict": lambda image, age: {"image": image, "age": age},
    "tuple": lambda image, age: (image, age),
    "nested": lambda image, age: {"all": {"image": image}, "more": (age,)},
}


class Together(nn.Module):
    """One dense layer on all numbers of an example, whatever arrays they stand in."""

    @nn.compact
    def __call__(self, x):
        leaves = jax.tree.leaves(x)
        leaves = sorted(leaves, key=lambda leaf: -leaf.ndim)  # the image first
        return nn.Dense(2)(jnp.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], 1))


def data_of(x, **options):
    return jaxfl.data.from_arrays(x, Y, jax.tree.map(lambda leaf: leaf[:20], x), Y[:20], **options)


def learn(source, method="pfedgraph", **options):
    """The models of the clients after two rounds, and their scores."""
    example = jax.tree.map(lambda leaf: leaf[0], source.x_train)
    task = jaxfl.classification(
        Together(), example, scale=source.scale, optimizer=jaxfl.sgd(0.1), **options
    )
    federation = jaxfl.data.federate(source, PARTS, test="global")
    algorithm = jaxfl.algorithms.ALGORITHMS[method](task)
    state, _, _ = run(algorithm, federation, 2)
    evaluate = jaxfl.make_evaluate(algorithm, task)
    scores = evaluate(quick_key(0), federation, state, jnp.arange(3))
    return jax.tree.leaves(state), scores


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_the_loss_and_its_gradient_are_those_of_these_arrays_side_by_side(form):
    answers = []
    for source in (data_of(FORMS[form](IMAGE, AGE)), data_of(TOGETHER)):
        example = jax.tree.map(lambda leaf: leaf[0], source.x_train)
        task = jaxfl.classification(Together(), example, scale=source.scale)
        train = jaxfl.data.federate(source, PARTS, test="global", val=0.0).train
        params = {"params": {"Dense_0": {"kernel": jnp.asarray(KERNEL), "bias": jnp.zeros(2)}}}
        models = jaxfl.tree.broadcast(params, 3)
        gradient = task.gradient(data_loss(task.problem))
        answers.append(gradient(quick_key(0), models, train, jnp.arange(3)))
    close(*answers, 1e-5)
    # The same in NumPy, of the first client.
    x, y = TOGETHER[PARTS[0]], Y[PARTS[0]]
    logits = x @ KERNEL
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    kernel = answers[0].grads["params"]["Dense_0"]["kernel"][0]
    np.testing.assert_allclose(kernel, x.T @ (shares - np.eye(2)[y]) / len(y), atol=1e-5)


@pytest.mark.slow(seconds=20)
@pytest.mark.parametrize(
    ("form", "amount"),
    [("dict", {"steps": 5}), ("dict", {"epochs": 1}), ("tuple", {"epochs": 1})],
    ids=["steps", "epochs", "tuple"],
)
def test_a_model_of_several_arrays_learns_as_one_of_these_arrays_side_by_side(form, amount):
    several, scores = learn(data_of(FORMS[form](IMAGE, AGE)), batch_size=8, **amount)
    one, expected = learn(data_of(TOGETHER), batch_size=8, **amount)
    for leaf, other in zip(several, one, strict=True):
        np.testing.assert_allclose(leaf, other, atol=1e-5)
    close(scores, expected)
    assert float(scores.fine_tuned.test.mean()) > 0.6


@pytest.mark.slow(seconds=30)
@pytest.mark.parametrize("method", ["scaffold", "fedprox", "pooled", "trust", "per_fedavg"])
def test_methods_take_several_arrays_as_they_take_one(method):
    several, scores = learn(data_of(FORMS["dict"](IMAGE, AGE)), method, batch_size=8, steps=2)
    one, expected = learn(data_of(TOGETHER), method, batch_size=8, steps=2)
    for leaf, other in zip(several, one, strict=True):
        np.testing.assert_allclose(leaf, other, atol=1e-5)
    close(scores, expected)


@pytest.mark.slow
def test_the_gradient_of_each_example_is_clipped_with_several_arrays():
    options = {"batch_size": 8, "steps": 2, "example_clip": 0.1}
    several, _ = learn(data_of(FORMS["dict"](IMAGE, AGE)), **options)
    one, _ = learn(data_of(TOGETHER), **options)
    for leaf, other in zip(several, one, strict=True):
        np.testing.assert_allclose(leaf, other, atol=1e-5)


@pytest.mark.slow
def test_a_mask_stays_what_it_is_and_words_stay_whole_numbers():
    words = RNG.integers(0, 50, (80, 6))
    mask = np.arange(6) < RNG.integers(1, 7, (80, 1))
    x = {"words": words, "mask": mask}
    source = data_of(x, vocabulary={"words": 50})
    seen = {}

    class Text(nn.Module):
        @nn.compact
        def __call__(self, x):
            seen.update(x)
            embedded = nn.Embed(50, 4)(x["words"])
            total = jnp.where(x["mask"][..., None], embedded, 0.0).sum(axis=1)
            return nn.Dense(2)(total / x["mask"].sum(axis=1, keepdims=True))

    example = jax.tree.map(lambda leaf: leaf[0], source.x_train)
    task = jaxfl.classification(Text(), example, scale=source.scale, compute="bfloat16", steps=2)
    algorithm = jaxfl.algorithms.fedavg(task)
    federation = jaxfl.data.federate(source, PARTS)
    state, info, _ = run(algorithm, federation, 1)
    assert np.isfinite(info.loss).all()
    assert {name: leaf.dtype.name for name, leaf in seen.items()} == {
        "words": "int32",
        "mask": "bool",
    }
    # By hand, of what the text holds behind the mask nothing depends.
    other = {"words": np.where(mask, words, 49), "mask": mask}
    one, two = (
        task.problem.apply(state.server, jax.tree.map(jnp.asarray, part)) for part in (x, other)
    )
    np.testing.assert_array_equal(one, two)


def test_each_array_has_a_scale_and_a_shift_of_its_own():
    seen = {}

    def apply(params, x):
        seen.update(x)
        return params[None] + x["b"]

    example = {"a": np.zeros((2, 3), np.uint8), "b": np.zeros(1, np.float32)}
    task = jaxfl.regression(
        jaxfl.Model(lambda key: jnp.zeros(1), apply),
        example,
        scale={"a": (1.0, 2.0, 4.0), "b": None},
        shift={"a": 8.0, "b": 0.0},
    )
    batch = {"a": jnp.full((5, 2, 3), 16, jnp.uint8), "b": jnp.full((5, 1), 7.0)}
    assert task.problem.apply(jnp.zeros(1), batch).tolist() == [[7.0]] * 5
    assert seen["a"][0, 0].tolist() == [8.0, 4.0, 2.0]


def test_predictions_may_be_a_pytree_for_an_error_of_ones_own():
    def apply(params, x):
        return {"mean": x["age"] @ params, "spread": jnp.ones(len(x["age"]))}

    def error(prediction, y):
        return jnp.square(prediction["mean"] - y) * prediction["spread"]

    model = jaxfl.Model(lambda key: jnp.zeros(3), apply)
    example = {"age": AGE[0], "image": IMAGE[0]}
    target = AGE @ np.array([1.0, -2.0, 3.0])
    source = jaxfl.data.from_arrays({"age": AGE, "image": IMAGE}, target)
    task = supervised(
        model, example, error, lambda p, y: -error(p, y), optimizer=optax.sgd(0.1), steps=200
    )
    federation = jaxfl.data.federate(source, PARTS, test="own", val=0.0)
    algorithm = jaxfl.algorithms.local(task)
    state, _, _ = run(algorithm, federation, 1)
    scores = jaxfl.make_evaluate(algorithm, task, after="none")(
        quick_key(0), federation, state, jnp.arange(3)
    )
    np.testing.assert_allclose(jax.tree.leaves(state.clients)[0], [[1, -2, 3]] * 3, atol=1e-3)
    np.testing.assert_allclose(scores.deployed.test, 0, atol=1e-3)


@pytest.mark.parametrize(
    ("example", "words"),
    [
        ({"image": IMAGE[0]}, "of the arrays image, and the clients' are of the arrays age, image"),
        (TOGETHER[0], "of one array, and the clients' are of the arrays age, image"),
        ({"image": IMAGE[:1], "age": AGE[0]}, r"of shape \(1, 2, 2\) in image, and the clients'"),
    ],
)
def test_an_example_of_other_arrays_is_refused_in_one_line(example, words):
    task = jaxfl.classification(Together(), example)
    source = data_of(FORMS["dict"](IMAGE, AGE))
    federation = jaxfl.data.federate(source, PARTS, test="global")
    with pytest.raises(InputError, match=words) as refusal:
        run(jaxfl.algorithms.fedavg(task), federation, 1)
    assert "\n" not in str(refusal.value)


def test_scales_of_other_arrays_are_refused_in_one_line():
    with pytest.raises(
        InputError, match="expected a number, or one for each of these arrays"
    ) as refusal:
        jaxfl.classification(Together(), FORMS["dict"](IMAGE[0], AGE[0]), scale={"image": 255.0})
    assert "\n" not in str(refusal.value)


@pytest.mark.slow
def test_methods_that_compare_examples_refuse_several_arrays():
    task = jaxfl.classification(Together(), FORMS["dict"](IMAGE[0], AGE[0]))
    source = data_of(FORMS["dict"](IMAGE, AGE))
    federation = jaxfl.data.federate(source, PARTS, test="global")
    algorithm = jaxfl.algorithms.fedcollab(task)
    with pytest.raises(InputError, match="of examples of one array, and these have several"):
        algorithm.init(quick_key(0), federation.train)
