"""The process that waits for the one that computes: its exit code, and what it says."""

import os
import signal
import subprocess
import sys
import time

import pytest

PROGRAM = """
import os, signal, sys, time
from jaxfl.cli import supervisor
supervisor.divide()
supervisor.tell_directory("runs/mine")
"""
LOST = "jaxfl: another process has ended or cannot be reached"
LOG = "os.write(2, b'F0101 the JAX distributed service detected fatal errors\\n')\n"


def program(code):
    return [sys.executable, "-c", PROGRAM + code]


@pytest.mark.slow(seconds=30)
@pytest.mark.parametrize(
    ("code", "status", "lines"),
    [
        ("print('mine', file=sys.stderr)", 0, ["mine"]),
        ("os.write(2, b'a log\\n')", 0, ["a log"]),
        ("sys.exit(2)", 2, []),
        (LOG + "os.abort()", 1, [LOST]),
        (LOG + "supervisor.tell_lost(); os.abort()", 1, [LOST]),
        # It has given its reason, and is aborted while it leaves.
        (LOG + "print('why', file=sys.stderr); supervisor.tell_code(2); os.abort()", 2, ["why"]),
        ("supervisor.tell_join('nobody'); " + LOG + "os.abort()", 2, ["jaxfl: nobody"]),
        ("os.kill(os.getpid(), 9)", 137, ["jaxfl: this process was ended by signal 9"]),
        (
            "os.write(2, b'a bug\\n'); os.abort()",
            134,
            ["a bug", "jaxfl: this process was ended by signal 6"],
        ),
    ],
)
def test_exit_codes_and_lines(code, status, lines):
    ended = subprocess.run(program(code), capture_output=True, text=True, timeout=100)
    assert ended.returncode == status
    said = ended.stderr.splitlines()
    assert len(said) == len(lines)
    for line, start in zip(said, lines, strict=True):
        assert line.startswith(start)
    if LOST in lines:
        assert "jaxfl resume runs/mine, which goes on" in said[-1]


FAILING = """
import sys
from jax.errors import JaxRuntimeError
from jaxfl import cli

def answer(*arguments, **options):
    raise {error}("UNKNOWN: Gloo AllGather failed: Connection closed by peer")

cli.answer = answer
sys.argv = ["jaxfl", "run", "fedavg", "--join", "cluster"]
sys.exit(cli.main())
"""


@pytest.mark.slow(seconds=20)
@pytest.mark.parametrize("error", ["JaxRuntimeError", "ValueError"])
def test_each_error_by_which_jax_says_that_a_process_is_lost_is_one_line(error):
    words = [sys.executable, "-c", FAILING.format(error=error)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith(LOST)


@pytest.mark.slow(seconds=10)
def test_the_child_of_a_process_that_is_killed_ends_whatever_that_has_not_read():
    code = (
        "os.kill(os.getppid(), signal.SIGSTOP)\n"
        "supervisor.tell_code(0)\n"
        "print('told', flush=True)\n"
        "time.sleep(60)"
    )
    with subprocess.Popen(
        program(code), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout.readline() == "told\n"
        running.kill()
        # Until the child has closed them.
        assert running.communicate(timeout=30) == ("", "")


@pytest.mark.slow(seconds=10)
@pytest.mark.parametrize("repeats", [1, 3])
def test_a_command_that_has_ended_is_ended_by_a_signal(repeats):
    code = "print(os.getpid(), flush=True)\ntime.sleep(60)"
    with subprocess.Popen(
        program(code), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        running.stdout.readline()
        for _ in range(repeats):
            running.send_signal(signal.SIGTERM)
            time.sleep(0.05)
        _, said = running.communicate(timeout=20)
    assert running.returncode == 128 + signal.SIGTERM
    assert said == ""


@pytest.mark.slow(seconds=10)
def test_an_error_of_one_process_is_not_said_to_be_anothers():
    code = """
from jaxfl import cli
def fail(*arguments, **options): raise ValueError("mine")
cli.answer = fail
supervisor.divide = lambda: None
sys.argv = ["jaxfl", "run", "--join", "cluster"]
sys.exit(cli.main())
"""
    ended = subprocess.run(program(code), capture_output=True, text=True, timeout=100)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "ValueError: mine"
    assert LOST not in ended.stderr


@pytest.mark.slow(seconds=10)
def test_a_signal_that_both_processes_get_counts_once_and_the_child_ends_with_the_other():
    code = """
count = 0
def note(number, frame):
    global count
    count += 1
signal.signal(signal.SIGTERM, note)
print(os.getpid(), flush=True)
while not count:
    time.sleep(0.01)
time.sleep(0.3)
print(count, flush=True)
time.sleep(100)
"""
    with subprocess.Popen(program(code), stdout=subprocess.PIPE, text=True) as running:
        said = running.stdout
        child = int(said.readline())
        for process in (child, running.pid):
            os.kill(process, signal.SIGTERM)
        assert said.readline() == "1\n"
        running.kill()
        began = time.monotonic()
        # The child has the other end of the pipe.
        assert said.read() == ""
        assert time.monotonic() - began < 20
