"""How commands that run something start: processes, devices, options, and a directory."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from jaxfl.cli import supervisor
from jaxfl.cli.options import Resume, SettingOptions
from jaxfl.core.errors import check
from jaxfl.experiment.config.hints import check_fields
from jaxfl.experiment.store import files
from jaxfl.experiment.trackers import check_library
from jaxfl.simulation import processes

# Seconds that a process waits for the others that run with it.
JOIN_TIMEOUT = 300.0
SETTING = [field.name for field in dataclasses.fields(SettingOptions)]


def settle(command: SettingOptions | Resume, devices: int | str, console: Console) -> None:
    """What has to be settled before JAX starts: processes, devices, and its cache."""
    check_library(getattr(command, "track", None))
    processes.prepare_host(None if isinstance(devices, str) else devices)
    process_options = [
        getattr(command, name, None) for name in ("coordinator", "processes", "process")
    ]
    cluster = getattr(command, "cluster", False)
    seconds = getattr(command, "join_timeout", None)
    several = cluster or any(value is not None for value in process_options)
    if seconds is not None:
        check_fields(command, "join_timeout")
        check(
            several,
            "--join-timeout is for several processes: give --coordinator, --processes and "
            "--process, or --cluster, too",
        )
    timeout = JOIN_TIMEOUT if seconds is None else float(seconds)
    if cluster:
        check(
            process_options == [None] * 3,
            "--cluster takes --coordinator, --processes and --process from the cluster: give it "
            "alone, or leave it out",
        )
        _join(timeout)
    elif several:
        check(
            None not in process_options,
            "several processes need --coordinator, --processes and --process: give all three, or "
            "--cluster alone",
        )
        _join(timeout, *process_options)
    processes.check_backend()
    console.quiet = not processes.is_main_process()
    processes.keep_programs()


def _join(timeout: float, *options: Any) -> None:
    """Joins the processes; JAX would end this one by `abort` where they do not find each other."""
    supervisor.tell_join(
        f"the processes did not find each other within {timeout:g} s: start each with the same "
        "--coordinator HOST:PORT of process 0 and --processes, and its own --process from 0, or "
        "give a longer --join-timeout"
    )
    processes.join_processes(*options, timeout=timeout)
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
