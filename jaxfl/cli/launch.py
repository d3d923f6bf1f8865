"""Starts workers that share a comparison or a search, and follows them."""

import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TypeGuard

import jax
from rich.console import Console

from jaxfl import experiment
from jaxfl.cli.command_options import Compare, LaunchOptions, Resume, Sweep
from jaxfl.cli.commands import configs_of, show_comparison
from jaxfl.cli.progress import Follower, SearchFollower
from jaxfl.cli.search import check_as_it_began, is_search, show_search, trials_of
from jaxfl.cli.start import directory, settle
from jaxfl.cli.worker import check_one_process, check_workers
from jaxfl.core.errors import check
from jaxfl.experiment.config import load_configs, resolve
from jaxfl.experiment.config.hints import check_fields
from jaxfl.experiment.config.rules import metrics_of
from jaxfl.experiment.session.interrupt import hint
from jaxfl.experiment.store import files, locks
from jaxfl.experiment.store.finished_runs import load_finished
from jaxfl.experiment.store.read_records import read_plan
from jaxfl.experiment.studies import sweep
from jaxfl.experiment.studies.compare import ENDS, comparison_to_resume
from jaxfl.experiment.studies.workers import watch, watch_search
from jaxfl.experiment.tables.formats import print_scores

Command = Compare | Resume | Sweep
# Executes the words after `jaxfl` and returns the exit code.
Program = Callable[[Sequence[str]], int]
# A GPU of NVIDIA is such a file on Linux.
GPUS = "nvidia[0-9]*"
DEVICES = Path("/dev")
VISIBLE = "CUDA_VISIBLE_DEVICES"


def asks_for_workers(command: object) -> TypeGuard[Command]:
    """Whether a command starts workers; its options about them are checked first.

    Raises:
      InputError: options of workers that are not started.
    """
    if not isinstance(command, LaunchOptions):
        return False
    starts = command.workers is not None
    check(
        starts or command.gpus_per_worker is None,
        "--gpus-per-worker is about workers: give --workers, how many",
    )
    is_worker = isinstance(command, Resume) and command.worker
    check(
        not (starts and is_worker),
        "--worker is one worker and --workers starts several: give one of the two",
    )
    return starts


def launch_workers(command: Command, console: Console, program: Program) -> None:
    """`jaxfl compare`, `jaxfl sweep` and `jaxfl resume` with `--workers`.

    Args:
      command: what to do.
      console: where to print.
      program: the command line, which each worker executes.
    """
    check_fields(command, "workers", "gpus_per_worker")
    count = command.workers or 0
    if not isinstance(command, Sweep):
        check_one_process(command)
    shares = _shares_of_gpus(command.gpus_per_worker, count)
    # This process computes no run, and an accelerator is for the workers.
    jax.config.update("jax_platforms", "cpu")
    settle(command, command.devices or "auto", console)
    # Before its workers are within, another command must not plan something else there.
    with _planned(command) as out, locks.shared(out):
        if count == 0:
            text = f"{out} is ready for workers: jaxfl resume {out} --worker starts one"
            return console.print(text, markup=False, highlight=False, soft_wrap=True)
        logs = out.absolute() / files.LOGS
        began = time.time()
        first, last = sweep.ENDS if is_search(out) else ENDS
        option = f"--workers {count}"
        if command.gpus_per_worker is not None:
            option += f" --gpus-per-worker {command.gpus_per_worker}"
        with (
            hint(out, first, last, option=option),
            _follower(out, console) as follow,
            _start(program, _words(command, out), shares, logs) as is_working,
        ):
            follow(is_working)
        # A search without any score is given up.
        advice = f"; jaxfl resume {out} {option} goes on" if (out / first).exists() else ""
        check(
            (out / last).exists(),
            f"no worker is at work, and {out} is not finished{_reason(logs, began)}: see {logs}"
            f"{advice}",
        )
        _show(command, out, console)


@contextlib.contextmanager
def _planned(command: Command) -> Iterator[Path]:
    """The directory of a comparison or a search that workers can share."""
    if isinstance(command, Resume):
        check_workers(command)
        if is_search(command.directory):
            check_as_it_began(command)
            sweep.search_to_resume(command.directory)
        else:
            comparison_to_resume(command.directory)
        yield command.directory
        return
    with directory(command.out, "sweep" if isinstance(command, Sweep) else "compare") as out:
        if isinstance(command, Sweep):
            options = {"overwrite": command.overwrite, "show_test": command.show_test}
            sweep.plan_search(*trials_of(command), out, **options)
        else:
            options = {"overwrite": command.overwrite, "equal_budget": command.equal_budget}
            experiment.plan(configs_of(command), out, **options)
        yield out


@contextlib.contextmanager
def _follower(out: Path, console: Console) -> Iterator[Callable[[Callable[[], bool]], None]]:
    """What shows the work of workers: a function of whether one of them may still write."""
    if is_search(out):
        metrics = read_plan(out / files.PLAN)["config"].get("metric", ())
        with SearchFollower(console, metrics) as follow_search:
            yield lambda is_working: watch_search(out, is_working, follow=follow_search)
        return
    configs = load_configs(out / files.CONFIGS)
    measure = metrics_of(configs[0], resolve(configs[0]).source)[0]
    with Follower(configs, console) as follow:
        yield lambda is_working: watch(out, measure, is_working, follow=follow)


def _show(command: Command, out: Path, console: Console) -> None:
    """Prints what workers have found."""
    if is_search(out):
        show_search(out, console)
    elif isinstance(command, Compare):
        show_comparison(command, configs_of(command), load_finished([out]), out, console)
    else:
        print_scores(load_finished([out]), console)
        console.print(f"written to {out}", markup=False, highlight=False)


def _words(command: Command, out: Path) -> list[str]:
    """The command line of a worker."""
    words = ["resume", str(out.absolute()), "--worker"]
    for path in command.plugin:
        words += ["--plugin", str(path.absolute())]
    if isinstance(command, Resume) and command.devices is not None:
        words += ["--devices", str(command.devices)]
    if not isinstance(command, Sweep) and command.track is not None:
        words += ["--track", command.track]
    return words


def _reason(logs: Path, began: float) -> str:
    """What the last worker of those that began since then has said in the end."""
    lines = []
    for log in sorted(logs.glob("*"), key=lambda log: log.stat().st_mtime):
        if log.suffix in (".log", ".out") and log.stat().st_mtime >= began - 1:
            lines += filter(str.strip, log.read_text(errors="replace").splitlines())
    return f" ({lines[-1].strip().removeprefix('jaxfl: '):.300})" if lines else ""


def _shares_of_gpus(each: int | None, count: int) -> list[str | None]:
    """The GPUs that each worker of this machine sees, as CUDA_VISIBLE_DEVICES has them.

    Raises:
      InputError: there are fewer.
    """
    if each is None:
        return [None] * count
    visible = os.environ.get(VISIBLE)
    names = [str(number) for number in range(len(list(DEVICES.glob(GPUS))))]
    if visible is not None:
        names = [name for name in visible.split(",") if name]
    check(
        len(names) >= each * count,
        f"{count} workers with {each} GPUs each are asked for, and this machine has {len(names)}: "
        "start fewer, or leave out --gpus-per-worker",
    )
    return [",".join(names[place * each : (place + 1) * each]) for place in range(count)]


@contextlib.contextmanager
def _start(
    program: Program, words: list[str], shares: list[str | None], logs: Path
) -> Iterator[Callable[[], bool]]:
    with processes(run_worker, [(program, words, share, logs) for share in shares]) as workers:
        yield lambda: any(worker.is_alive() for worker in workers)


def run_worker(program: Program, words: list[str], gpus: str | None, logs: Path) -> None:
    """A worker, in a process of its own; what it prints is in a file.

    Args:
      program: the command line.
      words: its arguments.
      gpus: the GPUs that it sees; None: as the process that has started it.
      logs: the directory of the file.
    """
    files.lead_output(logs / f"{socket.gethostname()}-{os.getpid()}.log")
    if gpus is not None:
        os.environ[VISIBLE] = gpus
    sys.exit(program(words))


@contextlib.contextmanager
def processes(
    function: Callable[..., None], arguments: Sequence[tuple]
) -> Iterator[list[BaseProcess]]:
    """Within, new processes execute a function; at the end they are waited for.

    An interruption of this process, Ctrl-C or SIGTERM, is passed on to them as SIGTERM.

    Args:
      function: which a new Python process can import.
      arguments: of each process.
    """
    spawn = multiprocessing.get_context("spawn")
    workers: list[BaseProcess] = []
    try:
        for each in arguments:
            workers.append(spawn.Process(target=_apart, args=(function, each)))
            workers[-1].start()
        yield workers
        for worker in workers:
            worker.join()
    except BaseException:
        _stop(workers)
        raise


def _apart(function: Callable[..., None], arguments: tuple) -> None:
    """Executes a function where Ctrl-C at the terminal does not reach it."""
    os.setpgrp()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    function(*arguments)


def _end_with_parent() -> None:
    """Stops this process if the one that has started it is killed, and can tell it nothing."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _stop(workers: Sequence[BaseProcess]) -> None:
    """Stops processes, which may end their rounds before; at once if it is interrupted itself."""
    for _ in range(2):
        for worker in workers:
            worker.terminate()
        try:
            for worker in workers:
                worker.join()
            return
        except KeyboardInterrupt:
            continue
