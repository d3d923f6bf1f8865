import jax
import pytest

from jaxfl.algorithms import ALGORITHMS

jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(params=sorted(ALGORITHMS))
def factory(request):
    """Every algorithm of the registry."""
    return ALGORITHMS[request.param]


def pytest_collection_modifyitems(items):
    """All tests of an algorithm run in one process: what one of them compiled, the others need not compile again."""
    for item in items:
        if "factory" in item.fixturenames:
            item.add_marker(pytest.mark.xdist_group(item.callspec.params["factory"]))
