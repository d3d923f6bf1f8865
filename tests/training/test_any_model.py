"""Models of whatever kind: pure functions, modules of nnx, frozen weights, adapters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx
from toys import opposite_groups, quick_key, run

import jaxfl
from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.models.vit import ViT
from jaxfl.training.nnx_model import from_nnx

X = jnp.asarray(np.random.default_rng(0).normal(size=(5, 8)), jnp.float32)


class Net(nn.Module):
    """Two dense layers with dropout between them."""

    head: str = "Dense_1"

    @nn.compact
    def __call__(self, x, train=False):
        x = nn.relu(nn.Dense(6)(x))
        return nn.Dense(3)(nn.Dropout(0.5, deterministic=not train)(x))


class NnxNet(nnx.Module):
    """The same in nnx."""

    def __init__(self, rngs):
        self.hidden = nnx.Linear(8, 6, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.out = nnx.Linear(6, 3, rngs=rngs)

    def __call__(self, x):
        return self.out(self.dropout(nnx.relu(self.hidden(x))))


def task_of(model, **options):
    return jaxfl.classification(model, X[0], steps=3, batch_size=2, **options)


def weights_of(module=None):
    return (module or Net()).init(quick_key(7), jnp.zeros((1, 8)))


def paths_of(params):
    return {tree.path(k): leaf for k, leaf in jax.tree_util.tree_leaves_with_path(params)}


def pure(dtype=jnp.float32):
    def init(key):
        return {"w": 0.1 * jax.random.normal(key, (8, 3)).astype(dtype), "b": jnp.zeros(3)}

    return jaxfl.Model(init, lambda params, x: x @ params["w"] + params["b"][None], head="b")


def test_a_pure_model_predicts_by_its_own_functions():
    problem = task_of(pure()).problem
    params = problem.init(quick_key(0))
    expected = np.asarray(X) @ np.asarray(params["w"]) + np.asarray(params["b"])
    np.testing.assert_allclose(problem.apply(params, X), expected, rtol=1e-5)
    assert problem.head == "b"


def test_a_pure_model_trains_as_the_flax_module_of_the_same_form():
    module = nn.Dense(3, kernel_init=nn.initializers.normal(0.1))

    def init(key):
        return module.init(key, jnp.zeros((1, 8)))

    both = (module, jaxfl.Model(init, module.apply))
    states = []
    for model in both:
        task = task_of(model, optimizer=jaxfl.sgd(0.1))
        algorithm = jaxfl.algorithms.pfedgraph(task)
        states.append(run(algorithm, classes_of(), 2)[0].clients)
    for one, other in zip(*map(jax.tree.leaves, states), strict=True):
        np.testing.assert_array_equal(one, other)


def classes_of():
    """Four clients with ten examples of three classes each."""
    rng = np.random.default_rng(1)
    y = np.tile(np.arange(3), 20)[:40]
    x = rng.normal(size=(40, 8)).astype(np.float32) + y[:, None]
    source = jaxfl.data.from_arrays(x, y, x, y)
    return jaxfl.data.federate(source, list(np.arange(40).reshape(4, 10)))


@pytest.mark.parametrize(
    ("init", "words"),
    [
        (lambda key: {}, "no arrays"),
        (lambda key: {"w": jnp.zeros(3, int)}, "parameter w of the model has type int32"),
        (lambda key: {"w": jnp.zeros(3), "f": "relu"}, "no array"),
    ],
)
def test_what_is_no_pure_model_is_refused_in_one_line(init, words):
    with pytest.raises(InputError, match=words) as refusal:
        task_of(jaxfl.Model(init, lambda params, x: x))
    assert "\n" not in str(refusal.value)


def test_an_nnx_module_is_its_functions():
    model = from_nnx(NnxNet, head="out")
    params = model.init(quick_key(3))
    module = NnxNet(nnx.Rngs(quick_key(3)))
    module.eval()
    np.testing.assert_allclose(model.apply(params, X), module(X), rtol=1e-6)
    assert set(paths_of(params)) == {
        f"{a}/{b}" for a in ("hidden", "out") for b in ("bias", "kernel")
    }
    one, same, other = (model.train(params, X, quick_key(k)) for k in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert not np.allclose(one, other)
    assert not np.allclose(one, model.apply(params, X))


@pytest.mark.slow
def test_an_nnx_module_with_dropout_trains_in_a_round():
    """Its variables belong to the trace of one call, and a round traces it several times."""
    state, info, _ = run(jaxfl.algorithms.fedavg(task_of(from_nnx(NnxNet))), classes_of(), 1)
    assert np.isfinite(info.loss).all()
    assert np.isfinite(jax.tree.leaves(state.server)[0]).all()


def test_an_nnx_module_with_batch_statistics_is_refused():
    class Normal(nnx.Module):
        def __init__(self, rngs):
            self.norm = nnx.BatchNorm(8, rngs=rngs)

    with pytest.raises(InputError, match="batch statistics"):
        from_nnx(Normal)


@pytest.mark.slow
def test_frozen_weights_are_no_part_of_what_clients_hold_and_never_change():
    weights = weights_of()
    problem = task_of(jaxfl.freeze(Net(), weights, "Dense_1")).problem
    params = problem.init(quick_key(0))
    assert set(paths_of(params)) == {"params/Dense_1/bias", "params/Dense_1/kernel"}
    np.testing.assert_allclose(problem.apply(params, X), Net().apply(weights, X), rtol=1e-5)
    task = task_of(jaxfl.freeze(Net(), weights, "Dense_1"))
    for name in ("fedavg", "pfedgraph", "fedper"):
        algorithm = getattr(jaxfl.algorithms, name)(task)
        state, info, _ = run(algorithm, classes_of(), 2)
        held = jax.tree.leaves(state.clients) + jax.tree.leaves(state.server)
        assert all(leaf.shape[-2:] != (8, 6) for leaf in held)
    assert int(np.max(info.up)) <= 4 * (6 * 3 + 3)


@pytest.mark.slow
def test_the_gradient_of_the_trained_part_is_that_of_the_whole_model():
    weights = weights_of()
    frozen = task_of(jaxfl.freeze(Net(), weights, "Dense_1")).problem
    y = jnp.array([0, 1, 2, 0, 1])

    def loss(problem, params):
        return problem.error(problem.apply(params, X), y).mean()

    part = jax.grad(lambda p: loss(frozen, p))(frozen.init(quick_key(0)))
    whole = jax.grad(lambda p: loss(task_of(Net()).problem, p))(weights)
    for path, leaf in paths_of(part).items():
        np.testing.assert_allclose(leaf, paths_of(whole)[path], rtol=1e-5, atol=1e-7)


def test_a_weight_that_is_left_out_is_drawn_anew_in_each_run():
    weights = paths_of(weights_of())
    start = dict(weights)
    del start["params/Dense_1/kernel"]
    problem = task_of(jaxfl.freeze(Net(), start, "Dense_1")).problem
    one, other = (paths_of(problem.init(quick_key(k))) for k in (0, 1))
    assert not np.allclose(one["params/Dense_1/kernel"], other["params/Dense_1/kernel"])
    np.testing.assert_array_equal(one["params/Dense_1/bias"], weights["params/Dense_1/bias"])


@pytest.mark.parametrize(
    ("change", "trained", "words"),
    [
        ({}, "Dense_9", "no parameter matches 'Dense_9'"),
        ({"params/Dense_0/bias": None}, "Dense_1", "lack params/Dense_0/bias"),
        ({"params/extra": np.zeros(3)}, "Dense_1", "have params/extra"),
        ({"params/Dense_0/bias": np.zeros(5)}, "Dense_1", r"shape \(5,\)"),
    ],
)
def test_weights_that_do_not_fit_are_refused_in_one_line(change, trained, words):
    weights = {k: v for k, v in (paths_of(weights_of()) | change).items() if v is not None}
    with pytest.raises(InputError, match=words) as refusal:
        task_of(jaxfl.freeze(Net(), weights, trained))
    assert "\n" not in str(refusal.value)


def test_frozen_weights_may_take_half_the_memory():
    task = task_of(jaxfl.freeze(Net(), weights_of(), "Dense_1", dtype="bfloat16"))
    params = task.problem.init(quick_key(0))
    rounded = jax.tree.map(lambda x: x.astype(jnp.bfloat16).astype(jnp.float32), weights_of())
    np.testing.assert_allclose(
        task.problem.apply(params, X), Net().apply(rounded, X), rtol=2e-2, atol=2e-2
    )
    assert not np.array_equal(task.problem.apply(params, X), Net().apply(weights_of(), X))


def test_an_adapter_adds_the_product_of_its_two_factors():
    """Beside the layer with the kernel W + scale / rank A B, by NumPy."""
    weights = weights_of()
    model = jaxfl.lora(Net(), 2, scale=3.0)
    problem = task_of(jaxfl.freeze(model, weights, "lora")).problem
    params = problem.init(quick_key(0))
    assert set(paths_of(params)) == {
        f"lora/Dense_{layer}/{factor}" for layer in (0, 1) for factor in "ab"
    }
    # As it begins, it is the model as it was.
    np.testing.assert_allclose(problem.apply(params, X), Net().apply(weights, X), rtol=1e-5)
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), x.dtype), params)
    layers = {}
    for layer in ("Dense_0", "Dense_1"):
        a, b = (np.asarray(params["lora"][layer][factor]) for factor in "ab")
        of_layer = weights["params"][layer]
        layers[layer] = of_layer | {"kernel": of_layer["kernel"] + 3 / 2 * a @ b}
    expected = Net().apply({"params": layers}, X)
    np.testing.assert_allclose(problem.apply(params, X), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_derivatives_by_an_adapter_are_those_by_its_product():
    """First and second ones, beside those of the model whose kernels are W + scale / rank A B."""
    weights = weights_of()
    model = jaxfl.freeze(jaxfl.lora(Net(), 2, scale=3.0), weights, "lora")
    problem = task_of(model).problem
    rng = np.random.default_rng(0)

    def drawn(x):
        return jnp.asarray(rng.normal(size=x.shape), x.dtype)

    shapes = jax.eval_shape(problem.init, quick_key(0))
    params, direction = (jax.tree.map(drawn, shapes) for _ in range(2))

    def loss(params):
        return jnp.sin(problem.apply(params, X)).sum()

    def of_products(params):
        layers = {
            name: weights["params"][name]
            | {"kernel": weights["params"][name]["kernel"] + 3 / 2 * pair["a"] @ pair["b"]}
            for name, pair in params["lora"].items()
        }
        return jnp.sin(Net().apply({"params": layers}, X)).sum()

    found = jax.jvp(jax.grad(loss), (params,), (direction,))
    expected = jax.jvp(jax.grad(of_products), (params,), (direction,))
    for ours, reference in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, reference, rtol=2e-3, atol=2e-3)
    twice = jax.grad(lambda p: tree.dot(jax.grad(loss)(p), direction))(params)
    for ours, reference in zip(jax.tree.leaves(twice), jax.tree.leaves(expected[1]), strict=True):
        np.testing.assert_allclose(ours, reference, rtol=2e-3, atol=2e-3)


def test_a_bottleneck_adds_what_its_activation_makes_of_the_input():
    """Beside NumPy: relu(x A) B is added to the last layer's output."""
    weights = weights_of()
    model = jaxfl.lora(Net(), 2, "Dense_1", scale=3.0, activation=jax.nn.relu)
    problem = task_of(jaxfl.freeze(model, weights, "lora")).problem
    params = problem.init(quick_key(0))
    assert set(paths_of(params)) == {"lora/Dense_1/down", "lora/Dense_1/up"}
    plain, inside = Net().apply(weights, X, mutable="intermediates", capture_intermediates=True)
    np.testing.assert_allclose(problem.apply(params, X), plain, rtol=1e-5)
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), x.dtype), params)
    down, up = (np.asarray(params["lora"]["Dense_1"][name]) for name in ("down", "up"))
    hidden = np.maximum(np.asarray(inside["intermediates"]["Dense_0"]["__call__"][0]), 0)
    added = 3 / 2 * np.maximum(hidden @ down, 0) @ up
    np.testing.assert_allclose(problem.apply(params, X), plain + added, rtol=1e-4, atol=1e-4)


def test_attention_takes_adapters():
    class Attends(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(3)(nn.MultiHeadDotProductAttention(2)(x, x).mean(axis=1))

    x = np.zeros((4, 8), np.float32)
    task = jaxfl.classification(jaxfl.lora(Attends(), 2, "query|value"), x)
    shapes = jax.tree.map(jnp.shape, task.problem.init(quick_key(0))["lora"])
    (of_attention,) = shapes.values()
    adapter = {"a": (8, 2), "b": (2, 8)}
    assert of_attention == {"query": adapter, "value": adapter}


@pytest.mark.slow
def test_adapters_have_weights_of_their_own():
    task = task_of(jaxfl.freeze(jaxfl.lora(Net(), 2), weights_of(), "lora"))
    _, info, _ = run(jaxfl.algorithms.fedaghn(task), classes_of(), 2)
    assert len(info.weights) == 2
    assert all(one.shape == (2, 4, 4) for one in info.weights.values())


@pytest.mark.parametrize(
    ("rank", "where", "words"),
    [
        (2, "conv", "no dense layer matches 'conv'"),
        (3, "Dense_1", "rank 3"),
        (0, "", "rank is 0: expected"),
    ],
)
def test_adapters_that_do_not_fit_are_refused_in_one_line(rank, where, words):
    with pytest.raises(InputError, match=words) as refusal:
        task_of(jaxfl.lora(Net(), rank, where))
    assert "\n" not in str(refusal.value)


@pytest.mark.slow
def test_dropout_is_on_in_training_below_adapters_and_frozen_weights():
    problem = task_of(jaxfl.freeze(jaxfl.lora(Net(), 2), weights_of(), "lora")).problem
    params = problem.init(quick_key(0))
    mask = jnp.ones(5, bool)
    one, other = (problem.predict(params, X, mask, quick_key(k))[0] for k in (0, 1))
    assert not np.allclose(one, other)


def test_products_with_frozen_weights_are_one_for_all_clients():
    """No product with a kernel has the client axis as an axis of a batch."""
    problem = task_of(jaxfl.freeze(jaxfl.lora(Net(), 2), weights_of(), "lora")).problem
    params = tree.broadcast(problem.init(quick_key(0)), 7)
    program = jax.make_jaxpr(jax.vmap(problem.apply))(params, jnp.zeros((7, 5, 8)))
    batches = {
        eqn.invars[1].aval.shape: eqn.params["dimension_numbers"][1]
        for eqn in program.jaxpr.eqns
        for eqn in [eqn, *inner(eqn)]
        if eqn.primitive.name == "dot_general"
    }
    assert batches[(8, 6)] == ((), ())
    assert batches[(6, 3)] == ((), ())


@pytest.mark.slow
def test_a_step_of_a_transformer_has_no_product_with_frozen_weights_for_each_client():
    """Forward and backward: one product each, and no gradient of a frozen weight."""
    net = ViT(3, width=10, depth=2, heads=2)
    images = jnp.zeros((7, 5, 8, 8, 1))
    model = jaxfl.freeze(
        jaxfl.lora(net, 2, "block"), net.init(quick_key(0), images[0]), "^lora/|head"
    )
    problem = jaxfl.classification(model, images[0, 0], steps=1).problem
    params = tree.broadcast(problem.init(quick_key(0)), 7)

    def loss(params, x):
        return problem.error(problem.apply(params, x), jnp.zeros(len(x), int)).sum()

    program = jax.make_jaxpr(jax.vmap(jax.grad(loss)))(params, images)
    products = [
        [*(one.aval.shape for one in [*eqn.invars, *eqn.outvars]), eqn.params["dimension_numbers"]]
        for eqn in program.jaxpr.eqns
        for eqn in [eqn, *inner(eqn)]
        if eqn.primitive.name == "dot_general"
    ]
    # Both layers before an adapter's first one get no gradient.
    for kernel, times in {(4, 10): 1, (10, 30): 3, (10, 10): 4, (10, 40): 4, (40, 10): 4}.items():
        batches = [numbers[1] for left, right, _, numbers in products if kernel in (left, right)]
        assert batches == [((), ())] * times
        for one in products:
            assert (7, *kernel) not in one
            assert (7, *kernel[::-1]) not in one


def inner(eqn):
    """The equations of programs inside."""
    for value in eqn.params.values():
        if hasattr(value, "jaxpr"):
            for one in value.jaxpr.eqns:
                yield one
                yield from inner(one)


def test_the_federation_of_the_toys_takes_a_pure_model():
    model = jaxfl.Model(
        lambda key: {"w": jnp.zeros(())}, lambda params, x: 0 * x[:, :1] + params["w"]
    )
    federation = opposite_groups()
    task = jaxfl.regression(model, np.zeros(federation.train.x.shape[2:]), steps=1)
    state, _, _ = run(jaxfl.algorithms.local(task), federation, 1)
    assert np.isfinite(jax.tree.leaves(state.clients)[0]).all()
