"""The command line starts workers, and shows what they have done."""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kill import content, same

from jaxfl.cli import launch, main
from jaxfl.experiment.store import files


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["resume", ".", "--worker"], "holds no comparison or search that workers could share"),
        (
            ["resume", ".", "--workers", "2"],
            "holds no comparison or search that workers could share",
        ),
        (["resume", ".", "--worker", "--workers", "2"], "--worker is one worker and --workers"),
        (["compare", "--workers", "-1"], "--workers is -1"),
        (["compare", "--workers", "2", "--join", "cluster"], "a worker is one process"),
        (["compare", "--gpus-per-worker", "1"], "give --workers, how many"),
        (
            ["compare", "--workers", "2", "--gpus-per-worker", "400"],
            "2 workers with 400 GPUs each are asked for, and this machine has",
        ),
    ],
)
def test_what_workers_cannot_do_is_refused_in_one_line(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("\n") == 1
    assert not list(tmp_path.iterdir())


OPTIONS = ["--rounds", "2", "--local-steps", "1", "--model", "linear", "--clients", "4"]
OPTIONS += ["--partition", "iid", "--devices", "1"]


@pytest.mark.slow(seconds=30)
def test_two_workers_are_started_and_their_files_are_those_of_one_process(
    tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    names = ("local", "fedavg", "fedprox")
    words = ["compare", *names, *OPTIONS, "--keep", "checkpoints=1", "--out"]
    assert main([*words, "one"]) == 0
    capfd.readouterr()
    assert main([*words, "x", "--workers", "2"]) == 0
    shown = capfd.readouterr().out
    for name in names:
        assert f"{name}: round 2 of 2, accuracy" in shown
        assert same(content(tmp_path / "x" / name), content(tmp_path / "one" / name))
    assert "test accuracy in %" in shown
    assert "written to x" in shown
    rows = [json.loads(Path(out, "comparison.json").read_text()) for out in ("x", "one")]
    for row in (*rows[0], *rows[1]):
        del row["seconds"], row["compile_seconds"]
    assert rows[0] == rows[1]
    logs = [log.read_text() for log in (tmp_path / "x" / files.LOGS).iterdir()]
    assert len(logs) == 2
    assert sum(log.count("round 1 of 2") for log in logs) == len(names)  # each run once
    assert main(["resume", "x", "--worker"]) == 0
    assert "written to x" in capfd.readouterr().out
    assert main(["resume", "x", "--workers", "2"]) == 2
    assert "is finished" in capfd.readouterr().err


@pytest.mark.slow(seconds=10)
@pytest.mark.parametrize(
    ("words", "table"),
    [
        (["compare", "local", "fedavg"], "comparison.json"),
        (["sweep", "fedprox", "--over", "mu=0.1,1"], "sweep.json"),
    ],
)
def test_without_a_worker_the_directory_is_ready_for_some(
    words, table, tmp_path, monkeypatch, capsys
):
    """As jobs of a cluster take it, each a worker."""
    monkeypatch.chdir(tmp_path)
    assert main([*words, *OPTIONS, "--workers", "0", "--out", "x"]) == 0
    assert "x is ready for workers: jaxfl resume x --worker starts one" in capsys.readouterr().out
    assert not Path("x", table).exists()
    assert not list(Path("x").glob("*/metrics.jsonl"))
    assert main(["resume", "x", "--worker"]) == 0
    assert "written to x" in capsys.readouterr().out
    assert Path("x", table).exists()


@pytest.mark.slow(seconds=30)
def test_two_workers_search_and_their_files_are_those_of_one_process(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    words = ["sweep", "fedprox", *OPTIONS, "--over", "batch_size=4,8,16", "mu=0.1,1", "--out"]
    assert main([*words, "one"]) == 0
    alone = capfd.readouterr().out
    assert main([*words, "x", "--workers", "2"]) == 0
    shown = capfd.readouterr().out
    assert "6 of 6 trials done" in shown
    results = [text[text.index("\nfedprox") :] for text in (shown, alone)]
    assert results[0] == results[1].replace("one", "x")
    for name in ("search.json", "sweep.json", "best.json"):
        assert Path("x", name).read_bytes() == Path("one", name).read_bytes()
    assert {path.name for path in Path("x").iterdir()} == {
        *(path.name for path in Path("one").iterdir()),
        files.LOGS,
    }
    assert main(["resume", "x", "--worker"]) == 0
    assert "written to x" in capfd.readouterr().out
    assert main(["resume", "x", "--workers", "2"]) == 2
    assert "is finished" in capfd.readouterr().err


@pytest.mark.slow(seconds=10)
def test_another_command_replaces_no_comparison_whose_workers_are_about_to_start(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    words = ["compare", "local", *OPTIONS, "--overwrite", "--out", "x"]

    @contextlib.contextmanager
    def start(*_):
        assert main(words) == 2
        yield lambda: False

    monkeypatch.setattr(launch, "_start", start)
    assert main([*words, "--workers", "2"]) == 2
    other, own = capsys.readouterr().err.splitlines()
    assert other.startswith("jaxfl: another process writes the run in x: wait for its end (")
    assert own.startswith("jaxfl: no worker is at work, and x is not finished")
    assert not list(Path("x").glob(".*"))


LAUNCHER = """
import time
from jaxfl.cli import launch
if __name__ == "__main__":
    with launch.processes(time.sleep, [(600,)]) as workers:
        print(workers[0].pid, flush=True)
        time.sleep(600)
"""


@pytest.mark.slow(seconds=10)
def test_workers_end_when_their_launcher_is_killed(tmp_path):
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    with subprocess.Popen(
        [sys.executable, tmp_path / "launcher.py"], stdout=subprocess.PIPE, text=True
    ) as launcher:
        worker = int(launcher.stdout.readline())
        time.sleep(5)  # until it executes its function
        os.kill(worker, 0)
        launcher.kill()
    deadline = time.monotonic() + 60
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.kill(worker, 0)
            time.sleep(0.1)
        pytest.fail("the worker goes on")


def start_nothing(*arguments):
    """Workers that never begin and never end."""
    return contextlib.nullcontext(lambda: True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("watch", "words"),
    [
        ("watch", ["compare", "local", *OPTIONS]),
        ("watch_search", ["sweep", "local", *OPTIONS, "--over", "lr=0.1,0.2"]),
    ],
)
def test_an_interruption_says_how_workers_go_on(watch, words, tmp_path, monkeypatch, capsys):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launch, "_start", start_nothing)
    monkeypatch.setattr(launch, watch, stop)
    assert main([*words, "--workers", "2", "--out", "x"]) == 130
    assert "jaxfl: interrupted: jaxfl resume x --workers 2 goes on" in capsys.readouterr().err


@pytest.mark.slow
def test_the_complaint_of_a_worker_is_shown(tmp_path, monkeypatch, capsys):
    def fail(*arguments):
        logs = Path("x", files.LOGS)
        logs.mkdir()
        (logs / "host-1.log").write_text("jaxfl: the disk is full\n")
        return contextlib.nullcontext(lambda: False)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launch, "_start", fail)
    assert main(["compare", "local", *OPTIONS, "--workers", "2", "--out", "x"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "no worker is at work, and x is not finished (the disk is full): see" in said
    assert "jaxfl resume x --workers 2 goes on" in said


@pytest.mark.slow
def test_a_search_without_a_score_does_not_go_on(tmp_path, monkeypatch, capsys):
    def give_up(*arguments):
        Path("x", files.PLAN).unlink()
        return contextlib.nullcontext(lambda: False)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launch, "_start", give_up)
    monkeypatch.setattr(launch, "watch_search", lambda *arguments, **options: None)
    words = ["sweep", "local", *OPTIONS, "--over", "lr=0.1"]
    assert main([*words, "--workers", "2", "--out", "x"]) == 2
    said = capsys.readouterr().err
    assert "no worker is at work, and x is not finished: see" in said
    assert "goes on" not in said
