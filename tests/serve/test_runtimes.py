"""The app of docs/guides/deployment.md on Flower's runtimes, as processes of their own."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower: pip install 'jaxfl[flower]'")

ROOT = Path(__file__).parents[2]
APP = ROOT / "docs" / "guides" / "flower"
BIN = Path(sys.executable).parent


def environment(home):
    return os.environ | {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(home / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "PYTHONPATH": str(ROOT),
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "DIGITS_MEMORIES": str(home / "memories"),
    }


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(happens, seconds):
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.5)


class Processes:
    """Processes of a test, which end with it."""

    def __init__(self, home):
        self.home, self.open = home, []

    def start(self, *command):
        log = self.home / f"{len(self.open)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                command,
                cwd=APP,
                env=environment(self.home),
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.open.append(process)
        return process, log

    def kill(self, process):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def processes(tmp_path):
    found = Processes(tmp_path)
    yield found
    for process in found.open:
        found.kill(process)


def simulated():
    """The lines that the app prints without messages."""
    done = subprocess.run(
        [sys.executable, "simulated.py"],
        cwd=APP,
        env=os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def superlink(processes, *options):
    port = free_port()
    processes.start("flower-superlink", "--insecure", "--port", str(port), *options)

    def listens():
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", port)) == 0

    wait_for(listens, 60)
    connection = f'[superlink.test]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    (processes.home / "config.toml").write_text(connection)
    return port


@pytest.mark.slow(seconds=60)
def test_scores_on_the_simulation_runtime_are_those_of_make_rounds(processes):
    pytest.importorskip("ray", reason="needs pip install 'flwr[simulation]'")
    superlink(processes, "--simulation")
    config = ("federation", "simulation-config", "@none/default", "test", "--num-supernodes", "4")
    process, log = processes.start("flwr", *config)
    assert process.wait(60) == 0, log.read_text()
    process, log = processes.start("flwr", "run", ".", "test", "--stream")
    assert process.wait(500) == 0, log.read_text()
    lines = log.read_text().splitlines()
    assert simulated() == lines[-len(simulated()) :]


@pytest.mark.slow(seconds=120)
def test_a_node_that_is_killed_in_a_round_has_not_reported_and_the_others_go_on(processes):
    port = superlink(processes)
    nodes = [
        processes.start(
            "flower-supernode",
            "--insecure",
            *("--superlink", f"127.0.0.1:{port}"),
            *("--port", str(free_port())),
            *("--node-config", f'"partition-id={client}"'.strip('"')),
        )[0]
        for client in (0, 1)
    ]
    server = processes.home / "server"
    options = f'rounds=3 timeout=60.0 directory="{server}"'
    run, log = processes.start("flwr", "run", ".", "test", "--stream", "--run-config", options)
    wait_for(lambda: (server / "rounds" / "000000.npz").exists(), 400)
    processes.kill(nodes[1])
    wait_for(lambda: (server / "rounds" / "000002.npz").exists(), 400)
    assert run.wait(200) == 0, log.read_text()
    logs = [np.load(server / "rounds" / f"{number:06}.npz") for number in range(3)]
    assert [one["reported"].tolist() for one in logs] == [
        [True, True, False, False],
        [True, False, False, False],
        [True, False, False, False],
    ]
    scores = np.load(server / "scores" / "000003.npz")
    assert scores["ids"].tolist() == [0]
    assert scores["test"][0] > 0.8
