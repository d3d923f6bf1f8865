"""Texts that end with -1: what stands behind the end of a text changes nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxfl.core.errors import InputError
from jaxfl.models import bert, llama, lstm, textcnn, transformer

TEXT = np.array([[7, 3, 0, 5, 2, 4]])
MODELS = (bert, llama, lstm, textcnn, transformer)


@pytest.mark.parametrize("make", MODELS)
def test_a_text_that_is_filled_up_has_the_logits_of_the_text_alone(make):
    model = make(3, (9,), **({"length": 20} if make is transformer else {}))
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.asarray(TEXT))
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), shapes)
    alone = model.apply(params, jnp.asarray(TEXT))
    longer = np.pad(TEXT, ((0, 0), (0, 9)), constant_values=-1)
    found = model.apply(params, jnp.asarray(longer))
    np.testing.assert_allclose(found, alone, rtol=1e-4, atol=1e-4)
    # The last id of the text is read.
    other = model.apply(params, jnp.asarray(np.where(longer == 4, 0, longer)))
    assert np.abs(other - alone).max() > 1e-3


def test_an_encoder_that_sees_the_next_id_does_not_predict_it():
    with pytest.raises(InputError, match="bert sees the whole text"):
        bert(9, (9,), positions=True)
