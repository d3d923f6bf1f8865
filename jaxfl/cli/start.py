"""How commands that run something start: processes, devices, options, and a directory."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from jaxfl.cli import supervisor
from jaxfl.cli.command_options import ProcessOptions, Resume, SettingOptions
from jaxfl.core.errors import check
from jaxfl.experiment.config.hints import check_fields
from jaxfl.experiment.store import files
from jaxfl.experiment.trackers import check_library
from jaxfl.simulation import processes

# Seconds that a process waits for the others that run with it, and how they are started.
JOIN_TIMEOUT = 300.0
JOIN = "HOST:PORT:processes=NUMBER,process=NUMBER"
CLUSTER = "cluster"
SETTING = [field.name for field in dataclasses.fields(SettingOptions)]


def settle(command: SettingOptions | Resume, devices: int | str, console: Console) -> None:
    """What has to be settled before JAX starts: processes, devices, and its cache."""
    check_library(getattr(command, "track", None))
    processes.prepare_host(None if isinstance(devices, str) else devices)
    if isinstance(command, ProcessOptions):
        join(command)
    processes.check_backend()
    # Before one of them waits for a directory that another one has chosen.
    is_open = getattr(command, "out", "") is None
    processes.check_alike({"the command": type(command).__name__, "having an --out": is_open})
    console.quiet = not processes.is_main_process()
    processes.keep_programs()


def join(command: ProcessOptions) -> None:
    """Joins the processes; JAX would end this one by `abort` where they do not find each other."""
    check_fields(command, "processes", "process", "join_timeout")
    given = (command.processes, command.process)
    if command.join is None:
        check(
            given == (None, None) and command.join_timeout is None,
            f"--join has no value: expected {JOIN}, or cluster",
        )
        return
    if command.join == CLUSTER:
        check(
            given == (None, None),
            "--join cluster takes the processes from the cluster: leave out processes= and "
            "process=",
        )
    else:
        check(None not in given, f"--join is {command.join}: expected {JOIN}, or cluster")
    coordinator = None if command.join == CLUSTER else command.join
    timeout = float(command.join_timeout or JOIN_TIMEOUT)
    supervisor.tell_join(
        f"the processes did not find each other within {timeout:g} s: start each with the same "
        f"--join {JOIN} but for the number of its process, from 0, or give a longer timeout="
    )
    processes.join_processes(coordinator, *given, timeout=timeout)
    supervisor.tell_join("")


def setting(command: SettingOptions) -> dict[str, Any]:
    """The fields of a command that describe the run."""
    return {name: getattr(command, name) for name in SETTING}


@contextlib.contextmanager
def directory(out: Path | None, name: str) -> Iterator[Path]:
    """The given directory, or a new one under `runs` with the time in its name."""
    given = contextlib.nullcontext(out) if out is not None else None
    with given or files.new_directory(f"runs/{datetime.now():%Y%m%d-%H%M%S}-{name}") as path:
        supervisor.tell_directory(str(path))
        yield path


def plugins(paths: Sequence[Path]) -> tuple[str, ...]:
    """The plug-ins of a command line, as config.json has them."""
    return tuple(str(path.absolute()) for path in paths)
