"""What a program does depends on the platform that it is compiled for, asked when it is traced."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

import jaxfl
from jaxfl.core import target, tree
from jaxfl.core.over_clients import on_every_device
from jaxfl.core.types import Cohort, Dataset
from jaxfl.models import cnn
from jaxfl.simulation import mesh
from jaxfl.simulation.client_scores import score_clients
from jaxfl.training.objectives import data_loss

CLIENTS = 3


@pytest.fixture
def elsewhere(monkeypatch):
    """Makes the program seem to be for a device that is no CPU."""
    monkeypatch.setattr(target, "platform", lambda: "tpu")


def test_the_default_device_counts_before_the_default_backend(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert target.platform() == "gpu"
    for device in ("cpu", jax.devices("cpu")[0]):
        with jax.default_device(device):
            assert target.platform() == "cpu"


def test_the_mesh_in_use_counts_before_the_default_backend(monkeypatch):
    seen = []

    def traced(x):
        seen.append(target.platform())
        return x

    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with jax.set_mesh(mesh.make_mesh(2)):
        jax.jit(traced)(jnp.zeros(2))
        jax.jit(on_every_device(lambda shared, x: traced(x)))(jnp.zeros(2))
    assert seen == ["cpu", "cpu"]


def loops(function, *arguments):
    """The lengths of all loops of a fixed length in the program, and how many others there are."""
    found = []

    def visit(jaxpr):
        for equation in jaxpr.eqns:
            if equation.primitive.name == "scan":
                found.append(equation.params["length"])
            if equation.primitive.name == "while":
                found.append("while")
            for below in jaxprs_in_params(equation.params):
                visit(below)

    # A function of its own, since JAX keeps the traces of a function.
    visit(jax.make_jaxpr(lambda *arguments: function(*arguments))(*arguments).jaxpr)
    return found


def images():
    data = np.random.default_rng(0).normal(size=(CLIENTS, 64, 4, 4, 1)).astype(np.float32)
    return Dataset(
        jnp.asarray(data), jnp.zeros((CLIENTS, 64), jnp.int32), jnp.ones((CLIENTS, 64), bool)
    )


def training_loops(built):
    data = images()
    cohort = Cohort(jnp.arange(CLIENTS), data, data)
    params = jax.eval_shape(lambda: tree.broadcast(built.problem.init(jax.random.key(0)), CLIENTS))
    fit = built.trainer(data_loss(built.problem))
    return loops(lambda params: fit(jax.random.key(0), params, None, cohort), params)


@pytest.fixture
def task():
    """Built where the default backend is a CPU: 5 steps of batch 64."""
    return jaxfl.classification(cnn(3), np.zeros((4, 4, 1)), steps=5, batch_size=64)


def test_on_a_cpu_clients_train_in_turn_and_batches_are_computed_in_parts(task):
    found = training_loops(task)
    assert CLIENTS in found
    assert 64 // 16 in found


def test_elsewhere_clients_train_side_by_side_on_whole_batches(task, elsewhere):
    assert [length for length in training_loops(task) if length in (CLIENTS, 64 // 16)] == []


@pytest.mark.slow
def test_the_gradient_on_all_data_takes_parts_on_a_cpu_only(task, monkeypatch):
    data = images()
    model = task.problem.init(jax.random.key(0))
    params = tree.broadcast(model, CLIENTS)
    arguments = (jax.random.key(0), params, data, jnp.arange(CLIENTS))

    def sizes(compute):
        seen = set()

        def objective(params, batch, anchor, key):
            seen.add(batch.mask.size)
            return data_loss(task.problem)(params, batch, anchor, key)

        jax.eval_shape(compute(objective), *arguments)
        return seen

    for compute in (task.gradient, task.evaluate):
        assert sizes(compute) == {16}
        with monkeypatch.context() as patch:
            patch.setattr(target, "platform", lambda: "tpu")
            assert sizes(compute) == {64}


@pytest.mark.slow
def test_scores_of_images_are_computed_in_larger_batches_elsewhere(task, monkeypatch):
    sizes = []

    def apply(params, x):
        sizes.append(x.shape[0])
        return jnp.zeros((x.shape[0], 3))

    data = images()
    for platform in ("cpu", "tpu"):
        monkeypatch.setattr(target, "platform", lambda platform=platform: platform)
        score_clients(apply, lambda prediction, y: y, jnp.zeros(CLIENTS), data)
    assert set(sizes) == {20, 64}
