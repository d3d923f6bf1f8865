"""Locks: one process writes, workers share, and nobody takes what another one has."""

import contextlib
import errno
import fcntl
import os
import socket
import threading
import time

import pytest

from jaxfl.core.errors import InputError, RunWarning
from jaxfl.core.file_locks import claim, holder
from jaxfl.experiment.store import files, locks


@pytest.mark.parametrize("name", ["locked", "shared", "alone", "append"])
def test_no_link_is_followed(tmp_path, name):
    other, run = tmp_path / "notes", tmp_path / "run"
    run.mkdir()
    other.write_text("keep")
    for path in (run / files.LOCK, locks.beside(run), run / files.TRIALS):
        path.symlink_to(other)

    def append(run):
        files.append_lines(run / files.TRIALS, [{}])
        return contextlib.nullcontext()

    write = getattr(locks, name, append)
    with pytest.raises(InputError, match="it is a link, which is not followed"), write(run):
        pass
    assert other.read_text() == "keep"


def test_a_file_system_without_locks_is_said_and_used(tmp_path, monkeypatch):
    def flock(file, operation):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)
    with (
        pytest.warns(RunWarning, match=r"\.lock cannot be locked \(Function not imple"),
        locks.locked(tmp_path),
    ):
        pass
    assert not list(tmp_path.iterdir())


def test_a_claim_is_of_one_and_says_of_whom(tmp_path):
    path = tmp_path / "run" / files.LOCK
    with claim(path) as first, claim(path) as second:
        assert (first, second) == (True, False)
        who = f"{socket.gethostname()}, process {os.getpid()}"
        assert holder(path) == who
        with (
            pytest.raises(InputError, match=rf"wait for its end \({who}\), or choose"),
            locks.locked(path.parent),
        ):
            pass
    assert not path.exists()
    assert holder(path) == ""
    path.write_text("[red]no host[/red]\n")  # by another program
    assert holder(path) == ""


def test_workers_share_a_directory_and_the_last_one_removes_the_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "PATIENCE", 0.1)

    def refused(lock):
        with pytest.raises(InputError, match="another process writes"), lock(tmp_path):
            pass

    with locks.shared(tmp_path):
        with locks.shared(tmp_path):
            refused(locks.locked)
        refused(locks.locked)
        with locks.shared(tmp_path):
            pass
    assert not list(tmp_path.iterdir())
    with locks.locked(tmp_path):
        refused(locks.shared)
    for name in (files.LOCK, f"{files.LOCK}-1"):
        (tmp_path / name).write_text("host 12\n")  # of processes that were killed
    with locks.shared(tmp_path):
        refused(locks.locked)
    with locks.locked(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_a_worker_waits_for_another_one_that_is_removing_the_lock(tmp_path):
    entered, left = threading.Event(), threading.Event()

    def remove():
        with locks.locked(tmp_path):
            entered.set()
            time.sleep(0.2)
            left.set()

    thread = threading.Thread(target=remove)
    thread.start()
    assert entered.wait(60)
    with locks.shared(tmp_path):
        assert left.is_set()
    thread.join()


def test_workers_need_locks(tmp_path, monkeypatch):
    def flock(file, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with (
        pytest.raises(InputError, match=r"\.lock cannot be locked \(No locks available\), an"),
        locks.shared(tmp_path),
    ):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "local"),
    [
        ("rw,nolock,local_lock=all", "local_lock=all"),
        ("rw,localflock", "localflock"),
        ("rw,vers=4.2,local_lock=none", None),
    ],
)
def test_locks_that_other_hosts_do_not_see_are_told(tmp_path, monkeypatch, recwarn, options, local):
    shared = tmp_path / "on disk"
    shared.mkdir()
    mounts = tmp_path / "mounts"
    place = str(shared).replace(" ", "\\040")
    mounts.write_text(f"root / ext4 rw 0 0\nserver:/home {place} nfs {options} 0 0\n")
    monkeypatch.setattr(locks, "MOUNTS", mounts)
    with locks.shared(shared / "runs"), locks.shared(tmp_path):
        pass
    words = [str(one.message) for one in recwarn if one.category is RunWarning]
    assert len(words) == (local is not None)
    if local:
        assert f"other hosts do not see (it is mounted with {local}): start workers on" in words[0]
