"""Arrays of clients without padding hold what padded arrays hold, in less memory."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import SIZES, close, jit, linear, make_evaluate, opposite_groups, run, unpadded

from jaxfl.algorithms import fedavg
from jaxfl.core import order, tree
from jaxfl.core.ragged import Ragged, padded, ragged, stack
from jaxfl.data import federate, from_arrays, load
from jaxfl.experiment.config import Setting, resolve
from jaxfl.experiment.session.gather import gather
from jaxfl.experiment.store.digests import digest_arrays
from jaxfl.simulation import mesh

VALUES = np.arange(24.0, dtype=np.float32).reshape(8, 3)
PARTS = [np.array([7, 0, 2]), np.array([], int), np.array([5, 7])]
# The array as it would be with padding, written by hand.
PADDED = np.zeros((3, 3, 3), np.float32)
PADDED[0] = VALUES[[7, 0, 2]]
PADDED[2, :2] = VALUES[[5, 7]]


def test_a_ragged_array_converts_to_the_padded_one():
    held = ragged(VALUES, PARTS)
    assert (held.shape, held.ndim, held.dtype) == (PADDED.shape, 3, PADDED.dtype)
    assert len(held) == 3
    np.testing.assert_array_equal(np.asarray(held), PADDED)
    np.testing.assert_array_equal(jnp.asarray(held), PADDED)
    np.testing.assert_array_equal(jit(lambda x: -x.padded())(held), -PADDED)
    np.testing.assert_array_equal(padded({"x": held, "n": 1})["x"], PADDED)


@pytest.mark.parametrize(
    "index",
    [
        (0, np.array([2, 0])),
        (np.array([0, 2]), np.array([1, 0])),
        (np.array([0, 2]), slice(1)),
        (2, slice(0, 2)),
        (slice(None, 1), 0),
        (0, 1),
        (0, slice(None), 2),
        (0, PADDED[0, :, 0] > 5),
        (..., 1),
    ],
)
@pytest.mark.parametrize("on_host", [True, False])
def test_it_is_indexed_as_the_padded_array(index, on_host):
    held = ragged(VALUES, PARTS)
    held = jax.device_get(held) if on_host else held
    found = held[index]
    assert isinstance(found, np.ndarray) == on_host
    np.testing.assert_array_equal(found, PADDED[index])


def test_clients_are_taken_without_a_copy_of_their_examples():
    held = ragged(VALUES, PARTS)
    taken = tree.take({"x": held}, jnp.array([2, 0]))["x"]
    assert taken.values is held.values
    np.testing.assert_array_equal(np.asarray(taken), PADDED[[2, 0]])
    np.testing.assert_array_equal(np.asarray(held[2]), PADDED[2])


def test_what_is_read_after_the_last_example_of_a_client_is_its_own():
    held = ragged(np.where(np.arange(8)[:, None] == 5, np.nan, VALUES), PARTS)
    assert np.isfinite(np.asarray(held[0, np.arange(9)])).all()


def test_a_federation_without_any_example_of_a_kind_is_zero():
    nothing = ragged(VALUES, [np.array([], int)] * 2)
    assert nothing.shape == (2, 1, 3)
    assert not np.asarray(nothing).any()


@pytest.mark.parametrize("same", [True, False])
def test_seeds_share_examples_that_are_the_same(same):
    one = ragged(VALUES, PARTS)
    values = one.values if same else jnp.asarray(2 * VALUES)
    other = dataclasses.replace(ragged(VALUES, [*PARTS[:2], np.arange(5)]), values=values)
    both = stack([one, other])
    assert both.shape == (2, 3, 5, 3)
    assert (both.values is one.values) == same
    for place, alone in enumerate((one, other)):
        expected = np.zeros((3, 5, 3), np.float32)
        expected[:, : alone.length] = np.asarray(alone)
        np.testing.assert_array_equal(np.asarray(both)[place], expected)
        np.testing.assert_array_equal(np.asarray(both[place, 2]), expected[2])


def held_bytes(tree):
    """Bytes of all arrays of a tree, each buffer once on all devices."""
    buffers = {}
    for array in jax.tree.leaves(tree):
        for shard in array.addressable_shards:
            buffers[shard.data.unsafe_buffer_pointer()] = shard.data.nbytes
    return sum(buffers.values())


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("sizes", [[1000] + [5] * 99, [10] * 100])
def test_a_federation_takes_no_more_than_1_3_times_its_data(sizes, devices):
    """One client of 1,000 beside 99 of 5 would take 67 times the data with padding."""
    count = sum(sizes)
    source = from_arrays(np.ones((count, 16, 16, 3), np.uint8), np.arange(count) % 10)
    parts = np.split(np.random.default_rng(0).permutation(count), np.cumsum(sizes)[:-1])
    with jax.set_mesh(mesh.make_mesh(devices)):
        data = mesh.place(federate(source, parts, test="own"))
    assert held_bytes(data) <= 1.3 * (source.x_train.nbytes + source.y_train.nbytes)
    assert data.train.mask.shape[0] == 100


def test_a_federation_on_a_cpu_shares_the_memory_of_the_data_set():
    source = from_arrays(np.ones((40, 3)), np.arange(40) % 2)
    data = federate(source, np.array_split(np.arange(40), 4), test="own")
    for part in data:
        assert part.x.values.unsafe_buffer_pointer() == source.x_train.ctypes.data
    with jax.set_mesh(mesh.make_mesh(4)):
        spread = mesh.place(data)
    pointers = {
        shard.data.unsafe_buffer_pointer()
        for part in spread
        for shard in part.x.values.addressable_shards
    }
    assert pointers == {source.x_train.ctypes.data}


def test_examples_that_no_client_holds_are_left_out_where_they_are_many():
    source = load("digits")
    few = [np.arange(10, 30), np.arange(25, 60)]
    data = federate(source, few)
    assert len(data.train.x.values) == 50
    np.testing.assert_array_equal(np.asarray(data.val.x)[1, :7], source.x_train[53:60])
    most = np.array_split(np.arange(len(source.x_train) - 3), 2)
    assert len(federate(source, most).train.x.values) == len(source.x_train)


@pytest.mark.slow
def test_the_digest_of_a_federation_is_that_of_the_padded_one():
    assert digest_arrays({"x": ragged(VALUES, PARTS)}) == digest_arrays({"x": PADDED})
    several = gather(resolve(Setting(partition="dirichlet", clients=4, test="own", seeds=2)))
    assert isinstance(several.federation.train.x, Ragged)
    assert several.digest == digest_arrays(padded(several.federation))


def test_seeds_of_a_run_share_the_data_set():
    setting = Setting(partition="dirichlet", clients=4, seeds=3)
    train = gather(resolve(setting)).federation.train
    assert train.x.values.shape == load("digits").x_train.shape
    assert train.x.shape[0] == 3


def test_a_gather_of_rows_in_place_moves_nothing():
    rows = np.random.default_rng(0).integers(0, 50, 100)
    # Numbers that fit into 32 bits together with their places, and numbers that do not.
    for count in (50, 2**31 - 1):
        found = jax.vmap(order.not_fused, (0, None))(jnp.asarray([rows]), count)
        np.testing.assert_array_equal(found, [rows])


def test_nan_of_one_client_does_not_reach_another_one():
    """The batches of the others are filled up with examples that do not count."""
    data = unpadded(opposite_groups(clients=3, sizes=(13, 9, 11)))
    x = data.train.x
    first = np.asarray(x.rows)[: int(x.size[0])]
    values = jnp.asarray(x.values).at[first].set(jnp.nan)
    spoilt = data._replace(train=data.train._replace(x=dataclasses.replace(x, values=values)))
    _, info, _ = run(fedavg(linear()), spoilt, 1)
    assert info.reported.tolist() == [[False, True, True]]


@pytest.mark.slow
def test_fine_tuned_scores_are_those_of_padded_data():
    data = opposite_groups(sizes=SIZES)
    task = linear(steps=None, epochs=2)
    algorithm = fedavg(task)
    evaluate = make_evaluate(algorithm, task)
    state = jit(algorithm.init)(jax.random.key(0), data.train)
    ids = jnp.array([4, 1])
    close(
        evaluate(jax.random.key(0), unpadded(data), state, ids),
        evaluate(jax.random.key(0), data, state, ids),
        1e-6,
    )
