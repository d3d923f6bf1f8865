"""How a run is cut into segments, and how few programs it compiles."""

import dataclasses
from itertools import pairwise

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxfl.experiment import Config, build, execute, gather, resolve
from jaxfl.experiment.session import make_program, run_program
from jaxfl.experiment.session.run_program import (
    longest_call,
    of_two_lengths,
    segments,
    stops,
)

SMALL = Config(
    algorithm="pfedgraph",
    rounds=9,
    local_steps=2,
    model="linear",
    clients=6,
    partition="iid",
    eval_every=4,
    checkpoint_every=3,
    devices=1,
)


@given(
    st.integers(1, 60),
    st.integers(1, 12),
    st.integers(1, 12),
    st.integers(0, 20),
    st.integers(1, 12) | st.none(),
)
def test_stretches_have_at_most_two_lengths_and_no_fewer_pieces_exist(
    rounds, one, other, done, longest
):
    both = {*stops(rounds, one), *stops(rounds, other)}
    breaks = [done, *sorted(stop for stop in both if stop > done)]
    cut = of_two_lengths(breaks, longest)
    lengths = [end - start for start, end in pairwise(cut)]
    assert set(breaks) <= set(cut)
    assert min(lengths, default=1) > 0
    assert len(set(lengths)) <= 2
    whole = [end - start for start, end in pairwise(breaks)]
    limit = longest or max(whole, default=1)
    assert max(lengths, default=1) <= limit
    if len(set(whole)) > 2 or max(whole, default=1) > limit:
        fewest = min(
            sum(sum(divmod(one, length)) for one in whole) for length in range(1, limit + 1)
        )
        assert len(lengths) == fewest
    else:
        assert cut == breaks


@pytest.mark.parametrize(
    ("changes", "cohort", "longest"),
    [
        ({"devices": 1}, 6, None),
        ({}, 6, 3),
        ({}, 3, 6),
        ({"seeds": 2}, 6, 1),
        # 12 batches of 16, twice
        ({"local_steps": None, "local_epochs": 2, "batch_size": 16}, 6, 6),
        ({"local_steps": 500}, 6, 1),
    ],
)
def test_on_several_devices_of_a_cpu_a_call_has_few_steps(changes, cohort, longest):
    """Else its memory would grow with the number of rounds."""
    options = {"rounds": 20, "eval_every": 7, "devices": 2, "local_steps": 50} | changes
    resolved = resolve(dataclasses.replace(SMALL, checkpoint_every=None, **options))
    built = build(resolved, gather(resolved))
    assert longest_call(built, cohort) == longest


@pytest.mark.slow
def test_a_run_on_several_devices_has_the_short_calls(tmp_path, monkeypatch):
    """Of two rounds and of one, and the results of long calls to the bit."""
    several = dataclasses.replace(SMALL, devices=2, checkpoint_every=None)
    execute(several, tmp_path / "long")
    found = []

    def segments_of(*given):
        found.extend(segments(*given))
        return found

    monkeypatch.setattr(make_program, "segments", segments_of)
    monkeypatch.setattr(run_program, "STEPS", 24)
    execute(several, tmp_path / "short")
    assert found == [(0, 2), (2, 4), (4, 6), (6, 8), (8, 9)]
    with (
        np.load(tmp_path / "long/models.npz") as one,
        np.load(tmp_path / "short/models.npz") as other,
    ):
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])


@pytest.fixture
def compiled(monkeypatch):
    """The names of the programs that are compiled from now on."""
    names = []
    original = jax.stages.Lowered.compile

    def compile(lowered, *options):
        names.append(lowered._lowering._name)
        return original(lowered, *options)

    monkeypatch.setattr(jax.stages.Lowered, "compile", compile)
    return names


@pytest.mark.slow
def test_checkpoints_between_evaluations_cost_one_program_and_change_nothing(tmp_path, compiled):
    execute(SMALL, tmp_path / "often")
    assert len([name for name in compiled if "advance" in name]) == 2
    execute(dataclasses.replace(SMALL, checkpoint_every=None), tmp_path / "once")
    for file in ("models.npz", "clients.npz", "graph.npz"):
        with np.load(tmp_path / "often" / file) as one, np.load(tmp_path / "once" / file) as other:
            assert set(one) == set(other)
            for name in one:
                np.testing.assert_array_equal(one[name], other[name])
