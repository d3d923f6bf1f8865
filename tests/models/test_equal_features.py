"""Models whose features have one size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import jaxfl
from jaxfl.core.errors import InputError
from jaxfl.models.equal_features import averages, equal_features


def test_means_of_neighbours_keep_a_constant_and_are_block_means_where_the_size_divides():
    for width, size in ((84, 32), (7, 5), (6, 6)):
        np.testing.assert_allclose(np.ones(width) @ averages(width, size), 1, rtol=1e-6)
    x = np.arange(12.0)
    np.testing.assert_allclose(x @ averages(12, 4), x.reshape(4, 3).mean(axis=1))


def test_models_share_features_and_head_and_the_smallest_is_as_it_was():
    models = {name: jaxfl.models.MODELS[name](10) for name in ("mlp", "cnn")}
    x = jnp.ones((2, 8, 8, 1))
    equal = equal_features(models, x[0], 10)
    assert equal["mlp"] is models["mlp"]
    for name, model in equal.items():
        params = model.init(jax.random.key(0), x)
        features = model.apply(params, x, method="features")
        assert features.shape == (2, 32)
        head = params["params"][model.head]
        np.testing.assert_allclose(
            model.apply(params, x),
            np.asarray(features @ head["kernel"]) + np.asarray(head["bias"]),
            atol=1e-5,
        )
        if name != "mlp":
            body = models[name].apply({"params": params["params"]["body"]}, x, method="features")
            np.testing.assert_allclose(features, body @ averages(body.shape[1], 32), atol=1e-5)


def test_a_model_that_differs_in_training_is_refused():
    class Dropping(nn.Module):
        @nn.compact
        def __call__(self, x, train):
            return nn.Dense(3)(nn.Dropout(0.5, deterministic=not train)(x))

        def features(self, x):
            return x

    models = {"small": jaxfl.models.mlp(3, hidden=(4,)), "large": Dropping()}
    with pytest.raises(InputError, match="features of large are 8, those of another model 4"):
        equal_features(models, jnp.ones(8), 3)
