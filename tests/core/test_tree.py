import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import equal

from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.core.over_clients import over_clients

STACK = {"a": jnp.arange(12.0).reshape(3, 2, 2), "b": {"c": jnp.arange(3.0)}}


def test_take_and_put_are_inverse():
    ids = jnp.array([2, 0])
    rows = tree.take(STACK, ids)
    assert rows["b"]["c"].tolist() == [2, 0]
    equal(tree.put(STACK, ids, rows), STACK)
    assert tree.put(STACK, ids, tree.scale(rows, jnp.zeros(2)))["b"]["c"].tolist() == [0, 1, 0]


def test_ravel_and_unravel_are_inverse():
    matrix = tree.ravel(STACK)
    assert matrix.shape == (3, 5)
    equal(tree.unravel(matrix, {"a": STACK["a"][0], "b": {"c": STACK["b"]["c"][0]}}), STACK)


def test_sizes_products_and_differences():
    one = {"a": STACK["a"][1], "b": {"c": STACK["b"]["c"][1]}}
    assert tree.size(one) == 5
    assert float(tree.dot(one, one)) == 16 + 25 + 36 + 49 + 1
    assert float(np.abs(tree.ravel(tree.subtract(tree.broadcast(one, 2), one))).max()) == 0


def test_select_by_path():
    assert len(tree.select(STACK, "")) == 2
    assert tree.select(STACK, "^b/") == (STACK["b"]["c"],)
    assert tree.select(STACK, lambda path: path == "a") == (STACK["a"],)
    with pytest.raises(InputError, match="no layer matches 'z': choose from a, b/c"):
        tree.select(STACK, "z")


@pytest.mark.parametrize("chunk", ["auto", "all", 1, 2, 3, 5])
def test_over_clients_is_a_map(chunk):
    doubled = over_clients(lambda x, y: (2 * x["c"] + y, x), chunk)(STACK["b"], jnp.ones(3))
    assert doubled[0].tolist() == [1, 3, 5]
    equal(doubled[1], STACK["b"])


def test_a_model_splits_in_two_parts_and_joins_again():
    inside, outside = tree.split(STACK, "^b/")
    assert (inside["a"], outside["b"]["c"]) == (None, None)
    assert len(jax.tree.leaves(inside)) == len(jax.tree.leaves(outside)) == 1
    equal(tree.join(inside, outside), STACK)
    equal(tree.join(*reversed(tree.split(STACK, "nowhere"))), STACK)
    assert tree.size(tree.split(STACK, "")[1]) == 0


def test_squared_distance():
    one, other = (jax.tree.map(lambda x, i=i: x[i], STACK) for i in (0, 2))
    assert float(tree.squared_distance(one, other)) == 4 * 8**2 + 2**2


@pytest.mark.parametrize("use", [lambda: tree.select(STACK, "["), lambda: tree.split(STACK, "[")])
def test_a_pattern_of_layers_that_is_no_regular_expression_is_refused(use):
    with pytest.raises(InputError, match="'\\[' is no regular expression"):
        use()
