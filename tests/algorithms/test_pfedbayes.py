"""pFedBayes: its divergence is SciPy's integral, and its rounds equal NumPy with the same draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from toys import deployed, federation, jit, quadratic, quick_key, run

from jaxfl.algorithms import pfedbayes
from jaxfl.core.streams import stream
from jaxfl.kernels.gaussian import FLOOR, Gaussian, deviation, divergence


def test_the_divergence_is_the_integral():
    assert deviation(jnp.array(-1e4)) > 0
    q = Gaussian(jnp.array([0.3, -1.0]), jnp.array([-1.0, 0.5]))
    p = Gaussian(jnp.zeros(2), jnp.array([0.2, 1.0]))
    expected = 0.0
    for i in range(2):
        a, b = (stats.norm(g.mean[i], deviation(g.rho[i])) for g in (q, p))
        expected += quad(lambda x, a=a, b=b: a.pdf(x) * (a.logpdf(x) - b.logpdf(x)), -9, 9)[0]
    np.testing.assert_allclose(divergence(q, p), expected, rtol=1e-5)


def test_rounds_equal_numpy_from_the_same_draws():
    """Adam, with the gradient of |theta - x|^2 / 2 at a drawn theta plus zeta / n KL(q || w)."""
    x = np.array([[1.0, 0, 0], [0, 2.0, -1]])
    sizes = [20, 5]
    zeta = 3.0
    rate = 0.02
    beta = 0.7
    steps = 4
    xs = [np.tile(row, (n, 1)).astype(np.float32) for row, n in zip(x, sizes, strict=True)]
    data = federation(xs, [np.zeros(n, np.int32) for n in sizes])
    algorithm = pfedbayes(quadratic(steps=steps), zeta=zeta, rho=0.5, rate=rate, beta=beta)
    start = jit(algorithm.init)(quick_key(0), data.train)
    key = quick_key(3)
    state, info, _ = run(algorithm, data, 2, state=start, key=key)

    def sigmoid(r):
        return 1 / (1 + np.exp(-r))

    shared = np.array([np.asarray(start.server.mean["w"], np.float64), np.full(3, 0.5)])
    own = np.stack([shared, shared])
    for number in range(2):
        _, round_key = jax.random.split(jax.random.fold_in(key, number))
        fit_key = stream(round_key, "fit")
        copies = []
        # 16 and 4 of the examples are for training.
        for i, n in enumerate((16, 4)):
            _, step_key = jax.random.split(jax.random.fold_in(fit_key, i))
            params = np.stack([own[i], shared])
            m = 0
            v = 0
            for step in range(steps):
                draw_key = jax.random.split(jax.random.fold_in(step_key, step))[0]
                noise = np.asarray(jax.random.normal(jax.random.split(draw_key, 1)[0], (3,)))
                (mean, rho), (w_mean, w_rho) = params
                s = np.log1p(np.exp(rho)) + FLOOR
                t = np.log1p(np.exp(w_rho)) + FLOOR
                off = mean + s * noise - x[i]
                k = zeta / n
                gradient = np.array(
                    [
                        [
                            off + k * (mean - w_mean) / t**2,
                            (off * noise + k * (s / t**2 - 1 / s)) * sigmoid(rho),
                        ],
                        [
                            zeta * (w_mean - mean) / t**2,
                            zeta * (1 / t - (s**2 + (mean - w_mean) ** 2) / t**3) * sigmoid(w_rho),
                        ],
                    ]
                )
                m = 0.9 * m + 0.1 * gradient
                v = 0.999 * v + 0.001 * gradient**2
                power = step + 1
                adam = (m / (1 - 0.9**power)) / (np.sqrt(v / (1 - 0.999**power)) + 1e-8)
                params = params - rate * np.stack([adam[0], gradient[1]])
            own[i] = params[0]
            copies.append(params[1])
        shared = (1 - beta) * shared + beta * np.mean(copies, axis=0)
    np.testing.assert_allclose(state.clients.memory.model.mean["w"], own[:, 0], atol=1e-5)
    np.testing.assert_allclose(state.clients.memory.model.rho["w"], own[:, 1], atol=1e-5)
    np.testing.assert_allclose([state.server.mean["w"], state.server.rho["w"]], shared, atol=1e-5)
    np.testing.assert_allclose(deployed(algorithm, state, 2)["w"], own[:, 0], atol=1e-5)
    assert info.up.tolist() == info.down.tolist() == [[6, 6]] * 2


@pytest.mark.slow
def test_the_shared_gaussian_moves_as_far_whatever_the_number_of_examples():
    """Clients whose every example is repeated ten times: their copies of w are pulled as strongly.

    The paper's objective weighs the divergence by zeta and the examples by 1 each, and both q and w
    descend along it. The pull on w is that of zeta KL(q || w) alone.
    """
    moved = []
    for repeats in (1, 10):
        xs = [np.tile(np.array([[4.0, 0, 0]], np.float32), (20 * repeats, 1))]
        data = federation(xs, [np.zeros(len(xs[0]), np.int32)])
        algorithm = pfedbayes(quadratic(steps=50), zeta=1.0, rho=-1.0, rate=0.01)
        start = jit(algorithm.init)(quick_key(0), data.train)
        state, _, _ = run(algorithm, data, 4, state=start)
        q = np.asarray(state.clients.memory.model.mean["w"][0])
        w = np.asarray(state.server.mean["w"])
        begin = np.asarray(start.server.mean["w"])
        moved.append(np.linalg.norm(w - begin) / np.linalg.norm(q - begin))
    assert min(moved) > 0.5
    np.testing.assert_allclose(moved[0], moved[1], rtol=0.1)
