"""The demonstration, progress without a terminal, formats of pictures, answers to Ctrl-C."""

import io
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from rich.console import Console

from jaxfl.cli import main, parse
from jaxfl.cli.progress import Follower, SearchFollower
from jaxfl.core.errors import RunWarning
from jaxfl.experiment import Config
from jaxfl.experiment.config import preset
from jaxfl.experiment.session.interrupt import answer, interruptible
from jaxfl.experiment.session.run_program import wait_for


class NeverReady:
    """An array whose computation does not end."""

    def is_ready(self):
        return False


def two_interruptions(asked):
    """A function that interrupts this process; the first time is only a wish to stop."""
    sent = []

    def interrupt():
        assert asked.is_set() == bool(sent)
        assert len(sent) < 2
        sent.append(signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    return interrupt


SHORT = ["--rounds", "2", "--local-steps", "1", "--model", "linear", "--clients", "5"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["--rounds", "3"], ["--algorithms", "all"], ["--seed", "1"]])
def test_a_comparison_without_options_of_the_data_is_the_demonstration(words):
    command = parse(["compare", *words])
    assert command.preset == "demo"
    options = preset("demo").options
    assert {name: getattr(command, name) for name in options} == options


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["--clients", "5"],
        ["--partition=:classes=3"],
        ["--partition", "iid"],
        ["--val", "0"],
    ],
)
def test_an_option_of_the_data_takes_the_place_of_all_data_of_the_demonstration(words):
    command = parse(["compare", *words])
    assert (command.preset, command.max_examples, command.seeds) == (None, None, 1)


def test_options_change_the_demonstration_where_it_is_named():
    command = parse(["compare", "--preset", "demo", "--clients", "20"])
    assert (command.clients, command.max_examples) == (20, 30)


@pytest.mark.slow
def test_other_commands_do_not_take_the_demonstration():
    assert parse(["run", "local"]).max_examples is None
    assert parse(["describe"]).max_examples is None
    assert parse(["sweep"]).classes_per_client == 2


def test_without_a_terminal_each_evaluation_is_a_plain_line():
    file = io.StringIO()
    config = Config(algorithm="pfedgraph", rounds=4)
    with Follower([config], Console(file=file, width=20)) as follow:
        follow(config, None)
        for number in (2, 4):
            line = {"round": number, "seconds": 1.0, "deployed": {"mean": 0.5}}
            follow(config, line | {"measure": "accuracy"})
    assert file.getvalue().splitlines() == [
        "pfedgraph: compiling",
        "pfedgraph: round 2 of 4, accuracy 50.0, 1.0 s",
        "pfedgraph: round 4 of 4, accuracy 50.0, 1.0 s",
    ]
    assert follow.configs == {"pfedgraph": config}


def test_on_a_terminal_each_run_is_one_live_line_with_its_whole_name():
    file = io.StringIO()
    configs = [Config(algorithm="pfedgraph", label=f"pfedgraph:alpha=0.{n}") for n in (1, 2)]
    console = Console(file=file, width=80, force_terminal=True, color_system=None)
    with Follower(configs, console) as follow:
        line = {"round": 10, "seconds": 1.0, "deployed": {"mean": 0.5}, "measure": "accuracy"}
        follow(configs[0], None)
        follow(configs[0], line)
    rows = file.getvalue().splitlines()
    assert any("pfedgraph:alpha=0.1" in row and "accuracy 50.0" in row for row in rows), rows
    assert any("pfedgraph:alpha=0.2" in row and "waiting" in row for row in rows), rows


def test_a_live_line_says_what_is_waited_for():
    configs = [Config(algorithm=name, rounds=4) for name in ("fedavg", "local")]
    line = {"round": 4, "seconds": 1.0, "deployed": {"mean": 0.5}, "measure": "accuracy"}
    with Follower(configs, Console(file=io.StringIO(), force_terminal=True)) as follow:

        def states():
            return [task.fields["state"] for task in follow.progress.tasks]

        assert states() == ["reading data", "waiting"]
        follow(configs[0], None)
        assert states() == ["compiling", "waiting"]
        follow(configs[0], line)
        assert states() == ["accuracy 50.0, writing files", "waiting"]
        follow(configs[1], None)
        assert states() == ["accuracy 50.0", "compiling"]
        follow(configs[1], line)
    assert states() == ["accuracy 50.0", "accuracy 50.0"]


def test_a_search_says_how_far_it_is():
    file = io.StringIO()
    with SearchFollower(Console(file=file)) as follow:
        follow(0, 4, None)
        follow(4, 4, 0.5)
    assert file.getvalue().splitlines() == [
        "0 of 4 trials done, compiling",
        "4 of 4 trials done, best validation score 0.5000",
    ]


@pytest.mark.slow(seconds=12)
@pytest.mark.pictures
def test_a_report_draws_the_pictures_of_runs_in_the_formats_asked_for(capsys):
    words = ["--algorithms", "fedavg", "pfedgraph", *SHORT, "--out", "x"]
    assert main(["compare", *words]) == 0
    one = ["report", "x/pfedgraph", "--format", "pdf", "gif", "--out"]
    assert main([*one, "y", "--no-title", "--panels"]) == 0
    pictures = {file.name for file in Path("y").iterdir() if file.suffix == ".pdf"}
    assert {"curves.pdf", "graph.pdf", "partition.pdf", "comparison.pdf"} <= pictures
    assert {"graph-matrix.pdf", "graph-network.pdf", "curves-loss.pdf"} <= pictures
    assert Path("y/graph.gif").read_bytes().startswith(b"GIF")
    assert main([*one, "y"]) == 2
    assert "choose another --out, or add --overwrite" in capsys.readouterr().err
    assert main(["report", "x", "--format", "svg", "--out", "z"]) == 0
    assert "<svg" in Path("z/graphs.svg").read_text()
    assert sorted(path.name for path in Path("z/fedavg").iterdir()) == [
        *("curves.svg", "graph.svg", "partition.svg"),
    ]


def test_an_unknown_format_is_refused(capsys):
    assert main(["describe", "--out", "x.bmp"]) == 2
    assert "unknown format 'bmp': choose from csv, pdf, png, svg" in capsys.readouterr().err


@pytest.mark.slow(seconds=4)
def test_a_report_of_many_runs_takes_runs_to_highlight():
    assert main(["run", "local", *SHORT, "--out", "x"]) == 0
    words = ["report", "x", "--highlight", "local", "--format", "png", "pdf", "--out", "y"]
    assert main(words) == 0
    assert Path("y/comparison.pdf").exists()
    assert Path("y/comparison.png").exists()


def test_a_wish_to_stop_is_answered_once():
    asked = threading.Event()
    tell = answer(asked)
    tell()
    asked.set()
    with pytest.warns(RunWarning, match="stopping after the rounds under way; Ctrl-C again"):
        tell()
    tell()  # pytest turns a second warning into an error


def test_a_second_interruption_ends_the_wait_for_the_devices_at_once():
    with pytest.raises(KeyboardInterrupt), interruptible() as asked:
        wait_for(NeverReady(), two_interruptions(asked))


@pytest.mark.slow
def test_after_a_second_interruption_the_process_does_not_wait_for_the_devices():
    code = """
import atexit, sys, time
import jaxfl.cli as cli
from jaxfl.cli.command_options import List

def interrupted(command, console):
    raise KeyboardInterrupt

atexit.register(time.sleep, 60)  # as JAX waits for what it computes
cli.COMMANDS[List] = interrupted
sys.argv = ["jaxfl", "list"]
sys.exit(cli.main())
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert ended.returncode == 130
    assert ended.stderr == "jaxfl: interrupted\n"
