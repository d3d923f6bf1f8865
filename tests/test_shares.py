"""Every slow test is in exactly one share, and all shares take about as long."""

import collections
import itertools
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import shares

ROOT = Path(__file__).parent.parent
# Its slow tests are a handful, each of them a unit of its own, and it is collected quickly.
FILE = "tests/models/test_models.py"
TIMES = {f"test{number}": 1 + number**2 % 37 for number in range(50)}


@pytest.mark.parametrize("number", [1, 2, 7, 20, 60])
def test_everything_is_in_exactly_one_share(number):
    share = shares.divide(TIMES, number)
    assert share.keys() == TIMES.keys()
    assert set(share.values()) == set(range(min(number, len(TIMES))))


@pytest.mark.parametrize("number", [2, 7, 20])
def test_shares_take_about_as_long(number):
    total = collections.Counter()
    for key, share in shares.divide(TIMES, number).items():
        total[share] += TIMES[key]
    assert max(total.values()) - min(total.values()) <= max(TIMES.values())


def test_shares_do_not_depend_on_the_order_of_the_tests():
    """Each process of a run divides for itself."""
    shuffled = list(TIMES.items())
    random.Random(0).shuffle(shuffled)
    assert shares.divide(dict(shuffled), 7) == shares.divide(TIMES, 7)


def test_a_share_is_named_by_its_place_and_their_number():
    assert shares.which("1/1") == (0, 1)
    assert shares.which("3/8") == (2, 8)
    for text in ("0/8", "9/8", "3", "3/", "-1/8", "3/8/1", "a/b", "", "1/0"):
        with pytest.raises(ValueError, match=r"takes I/N"):
            shares.which(text)


def item(nodeid, *marks):
    """What `shares.others` asks of a test of pytest."""
    markers = {mark.mark.name: mark.mark for mark in marks}
    return SimpleNamespace(nodeid=nodeid, get_closest_marker=markers.get)


@pytest.mark.parametrize("number", [1, 3, 8])
def test_every_slow_test_is_in_exactly_one_share_and_an_algorithm_in_one_only(number):
    slow, group = pytest.mark.slow, pytest.mark.xdist_group
    items = [item(f"quick{i}") for i in range(5)]
    items += [item(f"slow{i}", slow(seconds=7 * i)) for i in range(1, 9)]
    items += [item(f"{name}{i}", slow, group(name)) for name in "abc" for i in range(4)]
    items += [item("a_quick", group("a"))]
    left_out = [{one.nodeid for one in shares.others(items, i, number)} for i in range(number)]
    kept = [{one.nodeid for one in items} - names for names in left_out]
    for one in items:
        times = sum(one.nodeid in names for names in kept)
        assert times == (1 if one.get_closest_marker("slow") else number)
    for name in "abc":
        assert sum({f"{name}{i}" for i in range(4)} <= names for names in kept) == 1


def collected(*options):
    """The tests of `FILE` that pytest would run with these options."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *options, FILE], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 5), done.stdout + done.stderr  # 5: nothing collected
    return [line for line in done.stdout.splitlines() if line.startswith(FILE)]


@pytest.mark.slow(seconds=30)
def test_pytest_runs_the_quick_tests_and_one_share_of_the_slow_ones():
    quick, slow = collected(), collected("-m", "slow")
    assert len(slow) > 3
    parts = [collected("-m", "slow", "--slow-share", f"{place}/3") for place in (1, 2, 3)]
    assert all(parts)
    assert sorted(itertools.chain(*parts)) == sorted(slow)
    assert sorted(collected("--slow-share", "2/3")) == sorted(quick + parts[1])


@pytest.mark.slow
def test_a_share_that_does_not_exist_is_refused():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--slow-share", "9/8", FILE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4
    assert "--slow-share takes I/N" in done.stderr


def test_the_hash_of_a_commit_chooses_its_share(tmp_path):
    """The last lines of `.ci/run`, in repositories of one commit each."""
    script = (ROOT / ".ci" / "run").read_text()
    functions = 'pytest() { echo "$@"; }\nstep() { "$@"; }\n'
    script = functions + script[script.index("\nshares=") :]
    places = set()
    for number in range(12):
        folder = tmp_path / str(number)
        folder.mkdir()
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
        subprocess.run([*git, "init", "--quiet"], cwd=folder, check=True)
        commit = ["commit", "--quiet", "--allow-empty", "--message", str(number)]
        subprocess.run([*git, *commit], cwd=folder, check=True)
        program = ["bash", "-c", script]
        done = subprocess.run(program, cwd=folder, capture_output=True, text=True, check=True)
        place, shares_in_all = shares.which(done.stdout.partition("--slow-share ")[2].split()[0])
        assert shares_in_all == 28
        places.add(place)
    assert len(places) > 1  # each has one commit, so a count of commits would choose one share
