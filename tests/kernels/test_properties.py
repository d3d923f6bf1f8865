"""The claims of claims_graphs.py and claims_models.py on data from hypothesis: a test for each."""

import ast
import functools
import importlib
from pathlib import Path

import jax
import numpy as np
import pytest
from claims import Clients
from claims_graphs import TABLE as GRAPHS
from claims_models import TABLE as MODELS
from draws import clients, draws, extreme, general, moderate, seeds
from hypothesis import assume, given
from hypothesis import strategies as st

import jaxfl.algorithms.steps.admm
import jaxfl.kernels

TABLE = GRAPHS + MODELS
# The mathematics of ADMM clients is claimed beside that of the server.
MODULES = [
    Path(jaxfl.algorithms.steps.admm.__file__),
    *Path(jaxfl.kernels.__file__).parent.glob("[!_]*.py"),
]
MATHEMATICS = {
    file.stem: importlib.import_module(
        f"jaxfl.algorithms.steps.{file.stem}"
        if file.stem == "admm"
        else f"jaxfl.kernels.{file.stem}"
    )
    for file in MODULES
}


def over(holds):
    """A test of all kernels for which the condition holds."""
    chosen = [kernel for kernel in TABLE if holds(kernel)]
    return pytest.mark.parametrize("kernel", chosen, ids=[kernel.name for kernel in chosen])


def claim(word):
    return over(lambda kernel: word in kernel.claims.split())


@functools.cache
def compiled(of):
    return jax.jit(of)


def result(kernel, clients):
    return np.asarray(compiled(kernel.of)(clients), np.float64)


def drawn(kernel):
    """Data for a kernel's claims; "general" if it breaks ties by the order of rows."""
    return general if "general" in kernel.claims.split() else moderate


def equal(kernel, found, expected):
    scale = max(1.0, np.abs(expected).max(initial=0))
    np.testing.assert_allclose(found, expected, rtol=0, atol=kernel.tolerance * scale)


def relabel(kernel, out, order):
    if kernel.follows == "rows":
        return out[order]
    if kernel.follows == "pairs":
        return out[order][:, order]
    if kernel.follows == "columns":
        return out[:, np.concatenate([order, np.arange(len(order), out.shape[1])])]
    return out


def check_simplex(out, zero=False):
    """Rows are on the probability simplex, or all zeros if `zero` allows that."""
    assert out.ndim == 2
    assert out.min() >= 0
    total = out.sum(axis=1)
    np.testing.assert_allclose(total, np.where(zero & (total == 0), 0, 1), rtol=0, atol=2e-5)


def test_every_public_function_of_the_kernels_is_in_the_table():
    public = {
        f"{module.stem}.{node.name}"
        for module in MODULES
        for node in ast.parse(module.read_text()).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }
    assert {kernel.name.split(":")[0] for kernel in TABLE} == public


@over(lambda kernel: kernel.decades < 30)
def test_a_smaller_domain_stands_in_the_docstring(kernel):
    module, function = kernel.name.split(":")[0].split(".")
    assert f"1e{kernel.decades}" in getattr(MATHEMATICS[module], function).__doc__


@pytest.mark.long
@over(lambda kernel: True)
def test_any_size_gives_finite_and_feasible_results(kernel):
    """And the claims about one result: simplex, nonnegative, cosines, symmetric, between."""
    claims = kernel.claims.split()

    @draws
    @given(clients(extreme(kernel.decades)))
    def check(some):
        out = result(kernel, some)
        assert np.isfinite(out).all(), out
        if "simplex" in claims:
            check_simplex(out)
        if "simplex_or_zero" in claims:
            check_simplex(out, zero=True)
        if "nonnegative" in claims:
            assert out.min() >= 0
        if "cosines" in claims:
            assert np.abs(out).max() <= 1
            # A model near the smallest number, 1e-38, may count as zero.
            largest, own = np.abs(some.models).max(axis=1), np.diagonal(out)
            np.testing.assert_allclose(own[largest > 1e-37], 1, atol=1e-5)
            assert not own[largest == 0].any()
        if "symmetric" in claims:
            equal(kernel, out, out.T)
        if "between" in claims:  # of the least and the largest of all models
            slack = 1e-5 * np.abs(some.models).max()
            assert (out >= some.models.min(axis=0) - slack).all()
            assert (out <= some.models.max(axis=0) + slack).all()

    check()


@pytest.mark.long
@over(lambda kernel: True)
def test_relabelled_clients_relabel_the_result(kernel):
    @draws
    @given(clients(drawn(kernel)), seeds)
    def check(some, seed):
        order = np.random.default_rng(seed).permutation(len(some.ids))
        found = result(kernel, Clients(*(x[order] for x in some)))
        equal(kernel, found, relabel(kernel, result(kernel, some), order))

    check()


@pytest.mark.long(every=8)
@claim("twins")
def test_clients_with_equal_models_have_equal_results(kernel):
    """Two clients with one model have equal rows, in pairs also columns.

    "zero_alone": unless the model is zero.
    """

    @draws
    @given(clients(drawn(kernel)))
    def check(some):
        some.models[-1] = some.models[0]
        assume(some.models[0].any() or "zero_alone" not in kernel.claims)
        same = some._replace(sizes=np.ones_like(some.sizes), reported=np.ones_like(some.reported))
        out = result(kernel, same)
        equal(kernel, out[-1], out[0])
        if kernel.follows == "pairs":
            equal(kernel, out[:, -1], out[:, 0])

    check()


@pytest.mark.slow
@over(lambda kernel: kernel.degree is not None)
def test_the_unit_of_the_models_matters_as_claimed(kernel):
    """f(a x) = a^degree f(x)."""

    @draws
    @given(clients(drawn(kernel)), st.floats(0.1, 10))
    def check(some, factor):
        found = result(kernel, some._replace(models=some.models * np.float32(factor)))
        equal(kernel, found, factor**kernel.degree * result(kernel, some))

    check()


@claim("own_scale")
def test_the_length_of_each_model_does_not_matter(kernel):
    @draws
    @given(clients(drawn(kernel)), seeds)
    def check(some, seed):
        factors = (
            np.random.default_rng(seed).uniform(0.1, 10, size=(len(some.ids), 1)).astype(np.float32)
        )
        equal(
            kernel,
            result(kernel, some._replace(models=some.models * factors)),
            result(kernel, some),
        )

    check()


@pytest.mark.slow
@claim("shift")
def test_only_differences_of_models_matter(kernel):
    @draws
    @given(clients(drawn(kernel)), seeds)
    def check(some, seed):
        shift = (
            np.random.default_rng(seed).normal(size=(1, some.models.shape[1])).astype(np.float32)
        )
        equal(
            kernel, result(kernel, some._replace(models=some.models + shift)), result(kernel, some)
        )

    check()
