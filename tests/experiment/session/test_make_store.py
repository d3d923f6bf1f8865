"""How a `--store` is made: whole or not at all, by one process at a time, and checked later."""

import errno
import json
import os
import shutil
import sys
import threading

import jax
import numpy as np
import pytest

from jaxfl.core.errors import InputError
from jaxfl.data.ridge import ridge
from jaxfl.experiment.session.stored_data import digest_stored, open_stored
from jaxfl.experiment.store import locks

ORIGIN = {"dataset": "ridge", "seed": 0}


@pytest.fixture(scope="module")
def federation():
    return jax.device_get(ridge(0, dim=2).federation)


@pytest.fixture(scope="module")
def store(federation, tmp_path_factory):
    directory = tmp_path_factory.mktemp("made") / "store"
    open_stored(directory, ORIGIN, lambda: federation)
    return directory


def never():
    raise AssertionError("the data are made again")


class Killed(BaseException):
    """The process ends here."""


def test_a_store_that_was_cut_off_at_any_file_is_made_anew(federation, store, tmp_path):
    """As SIGKILL would before each operation on a file; what is left is looked at then."""
    operations = ("open", "os.rename", "os.mkdir", "os.rmdir")
    state = {"count": -1}

    def hook(event, arguments):
        if state["count"] < 0 or event not in operations:
            return
        if not str(arguments[0]).startswith(str(tmp_path)):
            return
        if event == "open" and not set(str(arguments[1])) & set("wxa+"):
            return
        state["count"] -= 1
        if state["count"] < 0:
            raise Killed

    sys.addaudithook(hook)
    for number in range(100):
        directory = tmp_path / str(number) / "store"
        directory.parent.mkdir()
        state["count"] = number
        try:
            open_stored(directory, ORIGIN, lambda: federation)
        except Killed:
            pass
        else:
            break
        finally:
            state["count"] = -1
        assert digest_stored(open_stored(directory, ORIGIN, lambda: federation)) == (
            digest_stored(open_stored(store, ORIGIN, never))
        )
    assert 10 < number < 99


def test_makers_of_one_store_wait_for_each_other(federation, tmp_path):
    directory = tmp_path / "store"
    times = []

    def make():
        times.append(1)
        return federation

    # A lock of flock is that of an open file, so that two threads stand for two processes.
    threads = [
        threading.Thread(target=open_stored, args=(directory, ORIGIN, make)) for _ in range(2)
    ]
    with locks.alone(directory):
        for thread in threads:
            thread.start()
        threads[0].join(0.2)
        assert not times
    for thread in threads:
        thread.join()
    assert times == [1]
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


DAMAGE = {
    "train/x.npy": lambda file: file.write_bytes(file.read_bytes()[:-1] + b"!"),
    "train/y.npy": lambda file: np.save(file, 2 * np.load(file)),
    "val/weights.npy": lambda file: np.save(file, np.ones(len(np.load(file.parent / "y.npy")))),
    "federation.json": lambda file: file.unlink(),
    "test/x.npy": lambda file: file.unlink(),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_new_run_names_the_file_of_a_store_that_has_changed(name, store, tmp_path):
    shutil.copytree(store, tmp_path / "x")
    (tmp_path / "x/notes.txt").write_text("not of jaxfl")
    open_stored(tmp_path / "x", ORIGIN, never)
    DAMAGE[name](tmp_path / "x" / name)
    with pytest.raises(InputError, match=f"{name} is not what was written there: remove"):
        open_stored(tmp_path / "x", ORIGIN, never)


def test_a_store_without_digests_is_refused(store, tmp_path):
    shutil.copytree(store, tmp_path / "x")
    (tmp_path / "x/origin.json").write_text(json.dumps(ORIGIN))
    with pytest.raises(InputError, match="holds no data that jaxfl run wrote"):
        open_stored(tmp_path / "x", ORIGIN, never)


def test_a_store_that_cannot_be_written_names_its_option(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot write to .*file .* another directory with --st"):
        open_stored(tmp_path / "file/store", ORIGIN, never)

    def fail():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(InputError, match=r"\(No space left on device\): .* a place with --store"):
        open_stored(tmp_path / "store", ORIGIN, fail)
