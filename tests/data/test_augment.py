import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxfl
from jaxfl.data.augment import crop_flip, reflect_crop_flip
from jaxfl.training.objectives import data_loss


@pytest.mark.parametrize(
    ("augment", "mode"), [(crop_flip, "constant"), (reflect_crop_flip, "reflect")]
)
def test_each_result_is_a_shifted_and_maybe_mirrored_image(augment, mode):
    """Against every crop that there is, by brute force; both mirrors and many shifts occur."""
    rng = np.random.default_rng(0)
    images = rng.integers(1, 256, (64, 7, 7, 2)).astype(np.uint8)
    changed = np.asarray(augment(jax.random.key(1), jnp.asarray(images), pad=2))
    padded = np.pad(images, ((0, 0), (2, 2), (2, 2), (0, 0)), mode=mode)
    found = []
    for before, after in zip(padded, changed, strict=True):
        crops = {(i, j): before[i : i + 7, j : j + 7] for i in range(5) for j in range(5)}
        found += [
            (i, j, flip)
            for (i, j), crop in crops.items()
            for flip in (False, True)
            if (after == (crop[:, ::-1] if flip else crop)).all()
        ]
    assert len(found) == 64
    assert {flip for *_, flip in found} == {False, True}
    assert {i for i, *_ in found} == {j for _, j, _ in found} == set(range(5))


@pytest.mark.slow
def test_training_sees_changed_images_and_evaluation_the_given_ones():
    """A linear model that is trained on inputs turned to zeros learns nothing from them."""
    from toys import deployed, federation

    x = np.ones((20, 3), np.float32)
    data = federation([x] * 2, [2 * np.ones(20, np.float32)] * 2)
    options = {"steps": 3, "batch_size": 4, "optimizer": jaxfl.sgd(0.1)}
    for augment, kernels in ((None, True), (lambda key, x: 0 * x, False)):
        task = jaxfl.regression(jaxfl.models.linear(1), jnp.zeros(3), augment=augment, **options)
        algorithm = jaxfl.algorithms.local(task)
        state = algorithm.init(jax.random.key(0), data.train)
        after = jaxfl.make_rounds(algorithm, jaxfl.participation.full(2))(
            jax.random.key(0), data, state, 0, 1
        )[0]
        learned = deployed(algorithm, after, 2)["params"]["Dense_0"]["kernel"]
        assert bool((jnp.abs(learned) > 0.01).all()) == kernels
        gradient = task.gradient(data_loss(task.problem))
        asked = gradient(jax.random.key(0), deployed(algorithm, state, 2), data.val, jnp.arange(2))
        assert bool((jnp.abs(asked.grads["params"]["Dense_0"]["kernel"]) > 0.01).all())
