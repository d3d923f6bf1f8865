import jax
import jax.numpy as jnp
import pytest
from toys import equal

from jaxfl.training.flat_bits import flat


@pytest.mark.parametrize("shape", [(), (3, 2), (0, 4)])
def test_the_random_numbers_are_those_of_the_key(shape):
    key = jax.random.key(5)

    def draw(key):
        first, second = jax.random.split(jax.random.fold_in(key, 7))
        return (
            jax.random.truncated_normal(first, -2, 2, shape),
            jax.random.bits(second, shape, jnp.uint8),
            jax.random.permutation(second, 9),
        )

    equal(draw(flat(key)), draw(key))
    keys = jax.random.split(key, 3)
    equal(jax.vmap(lambda key: draw(flat(key)))(keys), jax.vmap(draw)(keys))


def test_other_keys_stay_as_they_are():
    old = jax.random.PRNGKey(0)
    other = jax.random.key(0, impl="rbg")
    assert flat(old) is old
    assert flat(other) is other
