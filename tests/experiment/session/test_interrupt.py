"""Ctrl-C and SIGTERM: what a signal stops, what is kept, and what is said."""

import dataclasses
import gc
import os
import signal
import time
from pathlib import Path

import pytest
from finished_runs import write_run
from kill import interrupt_after

from jaxfl.cli import COMMANDS, main
from jaxfl.cli.command_options import List
from jaxfl.core.errors import Terminated
from jaxfl.experiment import Config, compare, execute, resume, resume_comparison
from jaxfl.experiment.config import to_json
from jaxfl.experiment.session import checkpoints
from jaxfl.experiment.session.interrupt import hint, interruptible, stops_at_once

SHORT = Config(
    algorithm="local",
    rounds=2,
    local_steps=1,
    model="linear",
    clients=2,
    partition="iid",
    eval_every=1,
    score_after="none",
    keep_models="none",
    devices=1,
)


def collect_and_wait():
    gc.collect()
    time.sleep(5)


def send(number=signal.SIGINT):
    os.kill(os.getpid(), number)


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "kind"),
    [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated), (signal.SIGHUP, Terminated)],
)
def test_a_signal_in_a_callback_of_the_garbage_collector_is_not_lost(number, kind):
    """Python drops an exception that is raised there."""
    calls = []

    def callback(phase, information):
        if not calls:
            calls.append(phase)
            send(number)

    gc.callbacks.append(callback)
    try:
        with pytest.raises(kind) as stop, stops_at_once():
            collect_and_wait()
    finally:
        gc.callbacks.remove(callback)
    assert calls == ["start"]
    assert stop.type is kind


def test_handlers_are_put_back():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with stops_at_once(), interruptible():
        pass
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before


def test_an_ignored_signal_stays_ignored():
    """As Ctrl-C for a command behind `&` in a script, which goes to all that the shell began."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stops_at_once(), interruptible() as request:
            send()
            assert not request.is_set()
            send(signal.SIGTERM)
            assert request.is_set()
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)]
)
def test_a_command_that_is_stopped_exits_with_the_code_of_the_signal(
    number, code, monkeypatch, capsys
):
    monkeypatch.setitem(COMMANDS, List, lambda command, console: send(number))
    assert main(["list"]) == code
    assert capsys.readouterr().err == "jaxfl: interrupted\n"


@pytest.mark.slow
def test_a_run_that_is_stopped_in_its_last_stretch_is_finished_and_says_so(tmp_path):
    with pytest.raises(Terminated, match="x is finished"):
        execute(SHORT, tmp_path / "x", follow=interrupt_after(2, signal.SIGTERM))
    assert (tmp_path / "x/summary.json").exists()


@pytest.mark.slow(seconds=9)
def test_a_comparison_that_is_stopped_in_the_last_stretch_of_a_run_begins_no_other(tmp_path):
    out = tmp_path / "x"
    configs = [Config(**{**vars(SHORT), "algorithm": name}) for name in ("local", "fedavg")]
    with pytest.raises(Terminated, match=r"jaxfl resume .*x goes on"):
        compare(configs, out, follow=interrupt_after(2, signal.SIGTERM))
    assert (out / "local/summary.json").exists()
    assert not (out / "fedavg").exists()
    summaries = resume_comparison(out)
    assert list(summaries) == ["local", "fedavg"]
    assert (out / "comparison.json").exists()


def test_wherever_a_stop_comes_it_says_how_to_go_on(tmp_path):
    with pytest.raises(KeyboardInterrupt) as stop, hint(tmp_path, "config.json", "summary.json"):
        raise KeyboardInterrupt
    assert not stop.value.args  # nothing is written yet
    (tmp_path / "config.json").touch()
    with (
        pytest.raises(Terminated, match=r"jaxfl resume .* goes on"),
        hint(tmp_path, "config.json", "summary.json"),
    ):
        raise Terminated
    (tmp_path / "summary.json").touch()
    with (
        pytest.raises(KeyboardInterrupt, match="is finished"),
        hint(tmp_path, "config.json", "summary.json"),
    ):
        raise KeyboardInterrupt


def test_a_run_stopped_before_it_has_more_rounds_says_how_many_were_asked_for(
    tmp_path, monkeypatch
):
    """Its old summary is still there, while its program is compiled."""
    out = tmp_path / "x"
    write_run(out)
    config = dataclasses.replace(SHORT, rounds=1, checkpoint_every=1)
    (out / "config.json").write_text(to_json(config))
    (out / "checkpoints/000001").mkdir(parents=True)

    def follow(config, line):
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "find_checkpoint", lambda *arguments: None)
    with pytest.raises(KeyboardInterrupt, match=r"jaxfl resume .*x --rounds 4 goes on"):
        resume(out, rounds=4, follow=follow)


@pytest.mark.slow
def test_a_stop_while_the_last_files_are_written_says_how_to_go_on(tmp_path, monkeypatch):
    def write(*arguments):
        send()
        send()

    monkeypatch.setattr("jaxfl.experiment.session.run_directory.write_arrays", write)
    with pytest.raises(KeyboardInterrupt, match=r"jaxfl resume .*x goes on"):
        execute(SHORT, Path(tmp_path / "x"))
