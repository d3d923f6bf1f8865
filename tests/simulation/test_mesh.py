import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec
from toys import equal, once, opposite_groups, quick_key

from jaxfl.cli import main
from jaxfl.core.errors import InputError
from jaxfl.core.over_clients import over_clients
from jaxfl.core.ragged import split_shared
from jaxfl.core.types import CLIENTS, State
from jaxfl.data import federate, load, pathological
from jaxfl.experiment import Config, execute, resume
from jaxfl.experiment.config import resolve
from jaxfl.experiment.session.build import build
from jaxfl.experiment.session.gather import gather
from jaxfl.experiment.session.make_program import compile_run
from jaxfl.simulation import mesh


def layouts(placed):
    return {x.sharding.spec for x in jax.tree.leaves(placed)}


@pytest.mark.long(every=6)
@pytest.mark.parametrize("clients", [5, 8])
@pytest.mark.parametrize("chunk", [1, 2, "all"])
def test_each_device_computes_some_of_the_clients(clients, chunk):
    seen = []
    common = jnp.arange(3.0)

    def one(key, x):
        seen.append(x.shape)
        return {"sum": (x * common).sum() + jax.random.normal(key), "double": 2 * x}

    arguments = (
        jax.random.split(quick_key(0), clients),
        jnp.arange(3.0 * clients).reshape(clients, 3),
    )
    alone = jax.jit(over_clients(one, chunk))(*arguments)
    with jax.set_mesh(mesh.make_mesh(4)):
        spread = jax.jit(over_clients(one, chunk))(
            *mesh.place(arguments[:1]), *mesh.place(arguments[1:])
        )
        seeds = jax.jit(jax.vmap(over_clients(one, chunk), (None, 0)))(
            arguments[0], arguments[1][None]
        )
    equal(alone, spread)
    equal(alone, jax.tree.map(lambda x: x[0], seeds))
    if clients == 8:
        assert layouts(spread) == {PartitionSpec("clients")}
    assert set(seen) == {(3,)}


@pytest.mark.parametrize(("clients", "calls"), [(1, 1), (2, 2), (5, 6)])
def test_a_device_without_clients_computes_nothing(clients, calls):
    computed = []

    def one(x):
        jax.debug.callback(lambda: computed.append(1))
        return 2 * x

    with jax.set_mesh(mesh.make_mesh(4)):
        doubled = jax.jit(over_clients(one, 1))(jnp.arange(1.0, clients + 1))
        jax.effects_barrier()
    assert doubled.tolist() == [2.0 * number for number in range(1, clients + 1)]
    assert len(computed) == calls


def test_a_federation_and_a_state_are_split_by_clients_if_the_devices_divide_them():
    source = load("digits")
    federation = federate(source, pathological(source.y_train, 10, 0))
    state = State({"w": jnp.zeros((10, 3))}, {"w": jnp.zeros(10)})
    with jax.set_mesh(mesh.make_mesh(2)):
        halves = mesh.place(federation)
        split = mesh.place(state)
        own, examples = split_shared((halves.train, halves.val))
        assert layouts((own, halves.test.mask, split.clients)) == {PartitionSpec("clients")}
        assert layouts((examples, halves.test.x, halves.test.y, split.server)) == {PartitionSpec()}
        equal(federation, halves)
        behind = mesh.place(
            jax.tree.map(lambda x: jnp.stack([x, x]), opposite_groups(clients=6)), axis=1
        )
        assert layouts(behind) == {PartitionSpec(None, "clients")}
    with jax.set_mesh(mesh.make_mesh(4)):
        assert layouts(mesh.place(federation)) == {PartitionSpec()}
    assert mesh.place(federation) is federation


@pytest.mark.slow(seconds=13)
def test_a_device_holds_its_part_of_the_state_where_the_devices_do_not_divide_the_clients(
    tmp_path,
):
    """Ten clients on four devices are three for each; files and results do not show it."""
    config = Config(
        algorithm="gossip", clients=10, rounds=2, local_steps=1, model="linear", devices=4
    )
    state = compile_run(build(resolved := resolve(config), gather(resolved))).state
    shapes = [x.addressable_shards[0].data.shape[0] for x in jax.tree.leaves(state.clients)]
    assert set(shapes) == {3}
    config = dataclasses.replace(config, checkpoint_every=1, keep_checkpoints=2)
    execute(config, tmp_path / "four")
    execute(dataclasses.replace(config, devices=1), tmp_path / "one")
    shutil.rmtree(tmp_path / "four/checkpoints/000002")
    (tmp_path / "four/summary.json").unlink()
    resume(tmp_path / "four", devices=2)
    for name in ("models.npz", "clients.npz"):
        with np.load(tmp_path / "four" / name) as four, np.load(tmp_path / "one" / name) as one:
            assert set(four) == set(one)
            for key in one:
                assert four[key].shape == one[key].shape
                np.testing.assert_allclose(four[key], one[key], atol=1e-5, err_msg=key)


@pytest.mark.parametrize("size", [1, 100, 10**6])
def test_an_array_is_gathered_in_pieces(size):
    x = np.arange(2.0 * 8 * 3 * 5).reshape(2, 8, 3, 5)
    with jax.set_mesh(mesh.make_mesh(4)):
        for axis in (0, 1):
            placed = mesh.place(jnp.moveaxis(x, 1, axis), axis=axis)
            assert CLIENTS in placed.sharding.spec
            equal(mesh.gather_in_pieces(placed, size), np.moveaxis(x, 1, axis))


def test_too_many_devices_are_refused():
    with pytest.raises(InputError, match="5 devices asked for: JAX has 4"):
        mesh.make_mesh(5)


def test_arrays_that_tests_share_are_on_one_device_though_a_mesh_and_a_trace_ask_first():
    """Else the last digits of a test would depend on the tests before it."""
    shared = once(lambda: jnp.arange(3))
    with jax.set_mesh(mesh.make_mesh(4)):
        assert len(jnp.arange(3).devices()) == 4
        jax.eval_shape(shared)
    assert len(shared().devices()) == 1


@pytest.mark.slow(seconds=10)
def test_a_run_does_not_depend_on_the_number_of_devices(tmp_path):
    """Weights and scores are the same up to rounding, and the cohorts are the same."""
    short = [
        "run",
        "pfedgraph",
        "--rounds",
        "2",
        "--local-steps",
        "3",
        "--model",
        "linear",
        "--participation",
        "0.6",
        "--seeds",
        "2",
    ]
    for devices in ("1", "2"):
        assert main([*short, "--devices", devices, "--out", str(tmp_path / devices)]) == 0
        summary = json.loads((tmp_path / devices / "summary.json").read_text())
        assert summary["devices"] == int(devices)
    with np.load(tmp_path / "1" / "graph.npz") as one, np.load(tmp_path / "2" / "graph.npz") as two:
        np.testing.assert_array_equal(one["ids"], two["ids"])
        np.testing.assert_allclose(one["weights"], two["weights"], atol=1e-5)
    with (
        np.load(tmp_path / "1" / "clients.npz") as one,
        np.load(tmp_path / "2" / "clients.npz") as two,
    ):
        np.testing.assert_allclose(one["fine_tuned_test"], two["fine_tuned_test"], atol=1e-2)
