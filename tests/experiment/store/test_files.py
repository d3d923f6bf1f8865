"""Locks of directories, and directories that no other process uses."""

import errno
import fcntl

import pytest

from jaxfl.core.errors import RunWarning
from jaxfl.experiment.store import files


def test_a_lock_that_was_removed_by_its_owner_is_taken_again(tmp_path, monkeypatch):
    """The owner removes the file between the opening and the locking of it by another process."""
    lock = fcntl.flock
    calls = []

    def flock(file, operation):
        if not calls:
            (tmp_path / files.LOCK).unlink()
        calls.append(file)
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with files.locked(tmp_path):
        assert len(calls) == 2
        assert (tmp_path / files.LOCK).exists()


def test_a_file_system_without_locks_is_said_and_used(tmp_path, monkeypatch):
    def flock(file, operation):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)
    with (
        pytest.warns(RunWarning, match=r"\.lock cannot be locked \(Function not imple"),
        files.locked(tmp_path),
    ):
        pass
    assert not list(tmp_path.iterdir())


def test_runs_that_start_in_the_same_second_have_directories_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with files.new_directory("runs/now") as first, files.new_directory("runs/now") as second:
        assert (str(first), str(second)) == ("runs/now", "runs/now-2")
        (second / "file").touch()
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["now-2"]
