"""The virtual clock, beside a simulation of its events in continuous time."""

import heapq

import numpy as np
import pytest

from jaxfl.core.errors import InputError
from jaxfl.simulation import clock, participation


def simulate(durations, buffer, steps):
    """The steps of a server in continuous time: who has arrived, and when."""
    events = [(duration, client) for client, duration in enumerate(durations)]
    heapq.heapify(events)
    waiting, found = [], []
    while len(found) < steps:
        now, client = heapq.heappop(events)
        waiting.append(client)
        if len(waiting) == buffer:
            found.append((now, waiting))
            for one in waiting:
                heapq.heappush(events, (now + durations[one], one))
            waiting = []
    return found


@pytest.mark.parametrize("buffer", [1, 3, 7])
def test_the_schedule_is_that_of_events_in_continuous_time(buffer):
    durations = np.random.default_rng(buffer).lognormal(size=7)
    ids, times = clock.arrivals(durations, buffer, 40)
    expected = simulate(durations, buffer, 40)
    assert times.tolist() == [now for now, _ in expected]
    assert ids.tolist() == [arrived for _, arrived in expected]
    participation.schedule(ids)  # which refuses a client that is named twice


def test_clients_of_equal_speed_take_turns():
    ids, times = clock.arrivals(np.ones(4), 2, 5)
    assert ids.tolist() == [[0, 1], [2, 3], [0, 1], [2, 3], [0, 1]]
    assert times.tolist() == [1, 1, 2, 2, 3]


def test_a_longer_schedule_begins_with_the_shorter_one():
    durations = clock.log_normal(9, 1.0, seed=4)
    short, long = (clock.arrivals(durations, 2, rounds) for rounds in (5, 12))
    for one, other in zip(short, long, strict=True):
        np.testing.assert_array_equal(one, other[:5])


def test_a_synchronous_round_takes_as_long_as_its_slowest_client():
    rng = np.random.default_rng(0)
    durations = rng.lognormal(size=6)
    ids = rng.integers(6, size=(2, 8, 3))
    expected = [[sum(max(durations[c] for c in row) for row in one[: t + 1]) for t in range(8)]
                for one in ids]  # fmt: skip
    times = clock.waiting(ids, durations)
    np.testing.assert_allclose(times, expected, rtol=1e-12)
    later = clock.waiting(ids[:, 5:], durations, times[:, 4])
    np.testing.assert_array_equal(later, times[:, 5:])
    np.testing.assert_array_equal(clock.waiting(ids[1], durations), times[1])


def test_durations_have_median_one_and_the_given_spread():
    found = np.log(clock.log_normal(20_000, 0.5, seed=1))
    assert np.median(found) == pytest.approx(0, abs=0.02)
    assert found.std() == pytest.approx(0.5, abs=0.02)
    assert (clock.log_normal(5, 0.5, seed=1) != clock.log_normal(5, 0.5, seed=2)).all()


def test_durations_are_read_from_a_file_that_is_never_unpickled(tmp_path):
    file = tmp_path / "durations.npy"
    np.save(file, np.array([1, 2, 3]))
    assert clock.given_durations(str(file), 3).tolist() == [1.0, 2.0, 3.0]
    np.save(file, np.array([{}, {}]), allow_pickle=True)
    with pytest.raises(InputError, match="cannot be read: expected an array of numbers"):
        clock.given_durations(str(file), 2)
    with pytest.raises(InputError, match=r"expected a \.npy file that exists"):
        clock.given_durations(str(tmp_path / "other.npy"), 2)


@pytest.mark.parametrize(
    "wrong",
    [[1, 2], [1, 2, -1], [1, 2, np.inf], [1, 2, np.nan], [1, 2, 1e31], [[1, 2, 3]], ["a"] * 3],
)
def test_durations_that_do_not_fit_are_refused(wrong):
    with pytest.raises(
        InputError, match=r"expected a positive number of at most 1e\+30 for each of the 3"
    ):
        clock.given_durations(wrong, 3)


@pytest.mark.parametrize("buffer", [0, 4])
def test_a_buffer_that_no_cohort_has_is_refused(buffer):
    with pytest.raises(InputError, match="expected 1 to 3, the number of clients"):
        clock.arrivals(np.ones(3), buffer, 1)
