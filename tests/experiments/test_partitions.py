"""Methods on five partitions: what is kept of a run, and the page that is made of it."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from experiments.partitions import main, record, side_by_side
from jaxfl.core.errors import InputError
from jaxfl.core.types import Pool
from jaxfl.experiment import Config, gather, resolve

DOCS = Path(__file__).parents[2] / "docs"


def test_the_score_at_equal_gradients_is_that_of_the_last_evaluation_within_the_budget():
    config = Config(rounds=4, local_steps=5, seeds=1)
    found = {
        "accuracy": np.array([[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8]]),
        "batches": np.array([[5.0, 10.0, 15.0, 20.0], [9.0, 18.0, 27.0, 36.0]]),
        "worst": np.zeros(2),
        "weights": None,
    }
    kept = record(found, config, {"cheap": [None], "dear": [None]})
    assert (kept["cheap"]["accuracy"], kept["cheap"]["equal"]) == ([0.4], [0.4])
    assert (kept["dear"]["accuracy"], kept["dear"]["equal"]) == ([0.8], [0.6])


def test_the_graph_that_is_kept_is_that_of_the_part_that_clients_mix():
    config = Config(rounds=1, local_steps=1, seeds=1)
    pairs = np.kron(np.eye(2), np.full((2, 2), 0.5))
    found = {
        "accuracy": np.zeros((1, 1)),
        "batches": np.ones((1, 1)),
        "worst": np.zeros(1),
        "weights": {"body": pairs[None], "head": np.eye(4)[None]},
    }
    kept = record(found, config, {"pairs": [np.array([0, 0, 1, 1])]})
    assert kept["pairs"]["weights"] == pairs.tolist()
    assert kept["pairs"]["graph"]["group_agreement"] == [1.0]


@pytest.mark.slow
def test_partitions_side_by_side_hold_the_examples_of_each():
    config = resolve(Config(clients=3, seeds=2, partition="iid")).config
    alone = [
        gather(resolve(replace(config, **options))).federation
        for options in ({"partition": "quantity"}, {"concept": "rotation", "concept_groups": 2})
    ]
    together = side_by_side(alone)
    for place, one in enumerate(alone):
        rows = slice(2 * place, 2 * place + 2)
        for part in ("train", "val", "test"):
            joined = jax.tree.map(lambda x, rows=rows: np.asarray(x)[rows], getattr(together, part))
            own = getattr(one, part)
            weights = own.weights if isinstance(own, Pool) else own.mask
            n = weights.shape[2]
            np.testing.assert_array_equal(joined.mask[:, :, :n], weights)
            assert not joined.mask[:, :, n:].any()
            x = np.asarray(own.x)
            if part == "test" and place == 0:  # a pool is copied to each client
                x = np.broadcast_to(x[:, None], joined.x[:, :, :n].shape)
            np.testing.assert_array_equal(joined.x[:, :, :n], x)


def test_the_page_is_up_to_date():
    spec = importlib.util.spec_from_file_location("partitions_page", DOCS / "partitions.py")
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    text = (DOCS / "results" / "partitions.md").read_text()
    assert page.page(text) == text, "run python docs/partitions.py"


@pytest.mark.parametrize("rounds", [-2, 0, 5])
def test_rounds_that_end_between_two_evaluations_are_refused(rounds, tmp_path):
    with pytest.raises(InputError, match=rf"--rounds is {rounds}: expected a multiple of 2"):
        main(("local",), rounds=rounds, out=tmp_path)
