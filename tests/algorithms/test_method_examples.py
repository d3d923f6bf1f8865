"""The examples in the docstrings of the methods: every factory has one, and all hold."""

import pytest
from examples import check_example, initial_state, one_round
from toys import shallow


@pytest.mark.long(every=8)
def test_every_method_has_an_example_that_holds(factory):
    """An example sees the names of its module, `task`, `initial_state` and `one_round`."""
    check_example(factory, task=shallow(), initial_state=initial_state, one_round=one_round)
