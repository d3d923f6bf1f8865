"""Several processes that run together on this machine, and what they say where one is missing."""

import os
import signal
import socket
import subprocess
import sys
import time

import children
import numpy as np
import pytest

from jaxfl.experiment import Config
from jaxfl.experiment.config import to_json

WORDS = ["--clients", "5", "--local-steps", "1", "--model", "linear", "--devices", "1"]
RUN = ["run", "fedavg", "--rounds", "2", *WORDS]
LONG = ["run", "fedavg", "--rounds", "100000", *WORDS, "--eval-every", "20"]
DIFFER = "the processes that run together differ in"
LOST = "another process has ended or cannot be reached"


def free_port():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def start(
    words, processes, *, numbers=None, folders=None, program=("-m", "jaxfl"), env=None, timeout=300
):
    """The processes of one run, each in a folder of its own if folders are given."""
    coordinator = f"localhost:{free_port()}"
    together = f"{coordinator}:processes={processes},timeout={timeout}"
    return [
        subprocess.Popen(
            [sys.executable, *program, *words, "--join", f"{together},process={number}"],
            cwd=folders[number] if folders else None,
            env=os.environ | (env or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in (numbers or range(processes))
    ]


def end(running, timeout=300):
    """Exit codes and what each process wrote to standard error."""
    texts = [said for _, said in children.end(running, timeout)]
    return [process.returncode for process in running], texts


def same(one, other):
    with np.load(one / "clients.npz") as x, np.load(other / "clients.npz") as y:
        assert set(x) == set(y)
        for name in x:
            np.testing.assert_allclose(x[name], y[name], atol=1e-5, err_msg=name)


@pytest.mark.slow(seconds=90)
def test_processes_on_disks_of_their_own_give_what_one_gives_and_one_goes_on(tmp_path):
    processes = 3
    folders = [tmp_path / str(number) for number in range(processes)]
    for folder in folders:
        folder.mkdir()
    words = [*RUN, "--keep", "checkpoints=1", "--out", "run"]
    codes, texts = end(start(words, processes, folders=folders))
    assert codes == [0] * processes, texts
    assert [sorted(folder.iterdir()) for folder in folders[1:]] == [[]] * (processes - 1)
    alone = [sys.executable, "-m", "jaxfl"]
    subprocess.run([*alone, *words], cwd=tmp_path, check=True, capture_output=True)
    same(tmp_path / "run", folders[0] / "run")
    # Another number of processes goes on with it.
    for folder in (tmp_path, folders[0]):
        more = [*alone, "resume", "run", "--rounds", "3"]
        subprocess.run(more, cwd=folder, check=True, capture_output=True)
    same(tmp_path / "run", folders[0] / "run")


@pytest.mark.slow(seconds=20)
def test_a_missing_process_is_one_line(tmp_path):
    out = tmp_path / "run"
    words = [*RUN, "--out", str(out)]
    codes, texts = end(start(words, 3, numbers=[0, 1], timeout=3))
    assert codes == [2, 2]
    for text in texts:
        (line,) = text.splitlines()
        assert line.startswith("jaxfl: the processes did not find each other within 3 s: start")
    assert not out.exists()


@pytest.mark.slow(seconds=20)
def test_processes_with_other_options_and_data_end_with_one_line_each(tmp_path):
    folders = [tmp_path / "0", tmp_path / "1"]
    options = {"clients": 5, "rounds": 2, "local_steps": 1, "model": "linear", "devices": 1}
    options |= {"dataset": "mine", "data_dir": ".", "partition": "iid"}
    for number, folder in enumerate(folders):
        folder.mkdir()
        x = np.full((40, 3), number, np.float32)
        np.savez(folder / "mine.npz", x_train=x, y_train=np.arange(40) % 2)
        (folder / "config.json").write_text(to_json(Config(lr=number + 0.5, **options)))
    words = ["run", "--config", "config.json", "--out", "run"]
    codes, texts = end(start(words, 2, folders=folders))
    assert codes == [2, 2], texts
    for text in texts:
        (line,) = text.splitlines()
        assert line.startswith(f"jaxfl: {DIFFER} --lr, the data: start each with the same options")
    assert not (folders[0] / "run").exists()


@pytest.mark.slow(seconds=20)
def test_a_process_that_is_refused_before_the_run_ends_the_others_with_a_way_to_begin(tmp_path):
    out = tmp_path / "run"
    out.mkdir()
    (out / "config.json").write_text("{}")
    codes, texts = end(start([*RUN, "--out", str(out)], 2))
    assert codes == [2, 1]
    assert [len(text.splitlines()) for text in texts] == [1, 1]
    assert "already holds a run (config.json): choose another --out" in texts[0]
    assert texts[1].startswith(f"jaxfl: {LOST}")
    assert texts[1].endswith(", or as before if it holds no run\n")


@pytest.mark.slow(seconds=20)
def test_a_process_without_a_directory_does_not_wait_for_one_that_has_it(tmp_path):
    folders = [tmp_path / "0", tmp_path / "1"]
    for number, folder in enumerate(folders):
        folder.mkdir()
        words = ["--out", "run"] if number else []
        code = f"import sys; from jaxfl.cli import main; sys.argv[1:] += {words}; sys.exit(main())"
        (folder / "program.py").write_text(code)
    codes, texts = end(start(RUN, 2, folders=folders, program=("program.py",)))
    assert codes == [2, 2], texts
    assert all(text.startswith(f"jaxfl: {DIFFER} having an --out: start each") for text in texts)


@pytest.mark.slow(seconds=30)
def test_a_process_that_waits_for_more_processes_than_there_are_ends_with_one_line(tmp_path):
    folders = [tmp_path / "0", tmp_path / "1"]
    for number, folder in enumerate(folders):
        folder.mkdir()
        code = (
            "import sys; from jaxfl.cli import main; "
            f"sys.argv[-1] = sys.argv[-1].replace('processes=2', 'processes={2 + number}'); "
            "sys.exit(main())"
        )
        (folder / "program.py").write_text(code)
    words = [*RUN, "--out", "run"]
    codes, texts = end(start(words, 2, folders=folders, program=("program.py",), timeout=8))
    assert codes == [2, 2], texts
    (line,) = texts[1].splitlines()
    assert line.startswith("jaxfl: process 2 of 3 has not come within 8 s: start each with the")


@pytest.mark.slow(seconds=20)
def test_processes_with_other_numbers_of_devices_end_with_one_line_each(tmp_path):
    """As two hosts do that have other numbers of cores."""
    folders = [tmp_path / "0", tmp_path / "1"]
    for number, folder in enumerate(folders):
        folder.mkdir()
        (folder / "config.json").write_text(to_json(Config(devices=number + 1, rounds=1)))
    words = ["run", "--config", "config.json", "--out", "run"]
    codes, texts = end(start(words, 2, folders=folders))
    assert codes == [2, 2], texts
    for text in texts:
        (line,) = text.splitlines()
        assert line == (
            "jaxfl: the processes that run together have 1, 2 devices: give each the same number "
            "(by --devices on a CPU, by CUDA_VISIBLE_DEVICES on GPUs)"
        )
    assert not (folders[0] / "run").exists()


@pytest.mark.slow(seconds=60)
@pytest.mark.parametrize("victim", [0, 1])
def test_the_others_end_with_one_line_when_a_process_is_killed_and_resume_goes_on(tmp_path, victim):
    out = tmp_path / "run"
    running = start([*LONG, "--keep", "checkpoints=20", "--out", str(out)], 2)
    deadline = time.monotonic() + 200
    while not list(out.glob("checkpoints/0*")) and time.monotonic() < deadline:
        time.sleep(0.5)
    running[victim].kill()
    began = time.monotonic()
    codes, texts = end(running, timeout=100)
    assert time.monotonic() - began < 60
    assert codes[victim] == -signal.SIGKILL
    assert codes[1 - victim] == 1
    (line,) = texts[1 - victim].splitlines()
    assert line.startswith(f"jaxfl: {LOST}")
    assert f"jaxfl resume {out}, which goes on from the newest checkpoint" in line
    newest = max(int(path.name) for path in out.glob("checkpoints/0*"))
    words = ["resume", str(out), "--rounds", str(newest + 1)]
    # The run had not ended: it has its rounds still to do.
    config = (out / "config.json").read_text()
    (out / "config.json").write_text(config.replace("100000", str(newest + 1)))
    codes, texts = end(start(words[:2], 2))
    assert codes == [0, 0], texts


@pytest.mark.slow(seconds=60)
def test_a_signal_to_one_of_the_two_processes_of_each_stops_all_with_a_checkpoint(tmp_path):
    out = tmp_path / "run"
    running = start([*LONG, "--out", str(out)], 2)
    deadline = time.monotonic() + 200
    while not (out / "metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.5)
    time.sleep(1)
    running[0].terminate()
    codes, texts = end(running)
    assert codes == [143, 130], texts
    assert "jaxfl resume" in texts[0]
    assert list(out.glob("checkpoints/0*"))


# Process 1 takes long to compile, which gloo would not wait for at a first operation.
SLOW = """
import sys, time
from jaxfl.cli import main
from jaxfl.experiment.session import run

make = run.make_program

def slowly(*arguments):
    if sys.argv[-1] == "1":
        time.sleep(35)
    return make(*arguments)

run.make_program = slowly
sys.exit(main())
"""


@pytest.mark.slow(seconds=120)
def test_processes_that_compile_for_different_times_keep_no_programs(tmp_path):
    """A program from the cache has lost the order of its collective operations."""
    cache = {"XDG_CACHE_HOME": str(tmp_path), "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "jax")}
    for turn in ("first", "second"):
        words = [*RUN, "--out", str(tmp_path / turn)]
        program = ("-m", "jaxfl") if turn == "first" else ("-c", SLOW)
        codes, texts = end(start(words, 2, program=program, env=cache))
        assert codes == [0, 0], texts
    assert not list(tmp_path.glob("jax/*"))
    same(tmp_path / "first", tmp_path / "second")
