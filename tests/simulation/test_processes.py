"""Processes: the devices of each, how they join, and that no two devices wait for each other."""

import os
import subprocess
import sys

import children
import pytest

import jaxfl
from jaxfl.simulation import processes
from jaxfl.simulation.processes import devices_of_process


def test_users_find_all_public_names_in_the_mesh():
    for name in ("check_backend", "is_main_process", "join_processes", "prepare_host"):
        assert getattr(jaxfl.mesh, name) is getattr(processes, name)


@pytest.mark.parametrize(
    ("hosts", "environment", "devices"),
    [
        # One process a node uses all its devices.
        (["a", "b"], {}, [None, None]),
        (["a", "b"], {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, [None, None]),
        # Several share them.
        (["a"] * 4, {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, [[0], [1], [2], [3]]),
        (["a", "b", "a", "b"], {}, [[0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 6, 7], [4, 5, 6, 7]]),
        # The scheduler has dealt them out.
        (["a", "a"], {"CUDA_VISIBLE_DEVICES": "3"}, [None, None]),
        (["a", "a"], {"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_GPUS_PER_TASK": "2"}, [None, None]),
        (["a", "a"], {"CUDA_VISIBLE_DEVICES": ""}, [None, None]),
        (["a", "a"], {"ROCR_VISIBLE_DEVICES": "0,1"}, [[0], [1]]),
    ],
)
def test_the_devices_of_a_host_are_shared_by_its_processes(hosts, environment, devices):
    dealt = [devices_of_process(hosts, number, environment, 8) for number in range(len(hosts))]
    assert dealt == devices


@pytest.mark.slow(seconds=20)
def test_processes_that_a_cluster_started_find_each_other(tmp_path):
    """With the variables that SLURM sets for two tasks on one node."""
    out = tmp_path / "run"
    words = [
        "run",
        "fedavg",
        "--join",
        "cluster",
        "--clients",
        "5",
        "--rounds",
        "1",
        "--local-steps",
        "1",
    ]
    words += ["--model", "linear", "--devices", "1", "--out", str(out)]
    running = []
    for process in ("0", "1"):
        said = {
            "SLURM_JOB_ID": str(os.getpid()),
            "SLURM_STEP_NODELIST": "localhost",
            "SLURM_STEP_NUM_NODES": "1",
            "SLURM_NTASKS": "2",
            "SLURM_PROCID": process,
            "SLURM_LOCALID": process,
        }
        command = [sys.executable, "-m", "jaxfl", *words]
        running.append(
            subprocess.Popen(
                command, env=os.environ | said, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        )
    ended = children.end(running, 200)
    assert [process.returncode for process in running] == [0, 0], ended
    assert (out / "summary.json").exists()
    assert b"written to" in ended[0][0]
    assert b"written to" not in ended[1][0]  # the first process alone writes


@pytest.mark.slow(seconds=40)
def test_collective_operations_in_a_branch_do_not_keep_two_devices_waiting(tmp_path):
    """The second run takes its programs from the cache, and aborted in four of five cases."""
    words = [
        "run",
        "fedsem",
        "--rounds",
        "4",
        "--devices",
        "2",
        "--keep",
        "models=none",
        "--overwrite",
    ]
    limits = "warn_stuck_timeout_seconds=5 --xla_cpu_collective_call_terminate_timeout_seconds=8"
    flags = f"--xla_cpu_collective_call_{limits}"
    clean = os.environ | {"XLA_FLAGS": flags, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for _ in range(2):
        ended = subprocess.run(
            [sys.executable, "-m", "jaxfl", *words, "--out", str(tmp_path / "run")],
            env=clean,
            capture_output=True,
        )
        assert ended.returncode == 0, ended.stderr[-500:]
