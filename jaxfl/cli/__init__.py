"""The command line: `jaxfl run | compare | sweep | resume | report | predict | list | ...`.

May import `core`, `models`, `data`, `uplink`, `algorithms`, `simulation` and `experiment`. A new
command is a class in `options`, a function, and a line each in `NAMES` and `COMMANDS`; what it
computes goes to `experiment`, where Python reaches it too.
"""

import atexit
import contextlib
import dataclasses
import io
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, cast

import tyro
from jax.errors import JaxRuntimeError
from rich.console import Console

from jaxfl.cli import supervisor
from jaxfl.cli.arguments import (
    as_meant,
    check_all_read,
    check_command,
    check_complete,
    missing_value,
    take_fields,
    values,
    with_names,
)
from jaxfl.cli.command_options import (
    Cite,
    Compare,
    Describe,
    List,
    Predict,
    Prepare,
    Report,
    Resume,
    Run,
    SettingOptions,
    Sweep,
    Worth,
)
from jaxfl.cli.commands import COMMANDS, DEMONSTRATION
from jaxfl.cli.completion import completion
from jaxfl.cli.groups import Unreadable, registry, union
from jaxfl.cli.launch import asks_for_workers, launch_workers
from jaxfl.cli.output import (
    open_closed_streams,
    output_of_command,
    output_of_errors,
    output_of_run,
)
from jaxfl.cli.plugins import run_plugins
from jaxfl.cli.start import SETTING
from jaxfl.cli.worker import work
from jaxfl.core.errors import Diverged, InputError, RunWarning, check
from jaxfl.core.options import SEED
from jaxfl.core.text import visible
from jaxfl.core.version import VERSION
from jaxfl.experiment.config import load_config, preset
from jaxfl.experiment.config.composite import option, owners
from jaxfl.experiment.config.effects import check_typed, idle, replaced
from jaxfl.experiment.config.fields import DataOptions
from jaxfl.experiment.config.hints import hints, notes_of
from jaxfl.experiment.session.interrupt import exit_code, stops_at_once
from jaxfl.simulation import processes

# The words after `jaxfl`, in the order of its help, and the options behind each.
NAMES = {
    "run": Run,
    "resume": Resume,
    "compare": Compare,
    "describe": Describe,
    "sweep": Sweep,
    "prepare": Prepare,
    "list": List,
    "report": Report,
    "predict": Predict,
    "worth": Worth,
    "cite": Cite,
}

# Commands whose results are files, and whose output is a log
LONG = (Run, Resume, Compare, Sweep, Worth)


def main(arguments: Sequence[str] | None = None) -> int:
    """The program.

    Returns:
      The exit code: 2 after bad input (one line on standard error), 1 after divergence or if nobody
      reads the output or another process that runs with this one is lost, 130 after Ctrl-C and 143
      after SIGTERM, else 0.
    """
    open_closed_streams()
    if arguments is not None:
        return answer(arguments, is_program=False)
    arguments = sys.argv[1:]
    if not supervisor.is_one_of_several(arguments):
        return answer(arguments, is_program=True)
    supervisor.divide()
    try:
        code = answer(arguments, is_program=False)
    except Exception as error:
        # Of an operation outside a program, JAX makes it a ValueError.
        if isinstance(error, JaxRuntimeError | ValueError) and supervisor.says_lost(error):
            code = supervisor.tell_lost()
        else:
            # An error of our own: the others hear at once that this process has ended.
            traceback.print_exc()
            code = 1
    supervisor.tell_code(code)
    if code:
        supervisor.leave(code)
    return code


def answer(arguments: Sequence[str], is_program: bool) -> int:
    """Executes a command line and says in one line what is wrong with it.

    Args:
      arguments: the words after `jaxfl`.
      is_program: whether the process ends with it.

    Returns:
      The exit code, as `main`.
    """
    console = Console(file=cast(IO[str], output_of_command(sys.stdout)))
    error_file = cast(IO[str], output_of_errors(sys.stderr))
    errors = Console(file=error_file, soft_wrap=True, highlight=False)
    try:
        with stops_at_once():
            execute(list(arguments), console, errors)
        console.file.flush()
    except BrokenPipeError:  # as `| head -1` does
        return 1
    except InputError as error:
        errors.print(f"jaxfl: {visible(str(error))}", style="red", markup=False)
        return 2
    except Diverged as error:
        errors.print(f"jaxfl: {visible(str(error))}", style="red", markup=False)
        return 1
    except KeyboardInterrupt as stop:
        message = ": ".join(["interrupted", *map(str, stop.args)])
        errors.print(f"jaxfl: {visible(message)}", style="red", markup=False)
        if is_program:
            leave_at_once(exit_code(stop))
        return exit_code(stop)
    return 0


def execute(arguments: Sequence[str], console: Console, errors: Console) -> None:
    """Executes a command line.

    Args:
      arguments: the words after `jaxfl`.
      console: for what the command shows.
      errors: for warnings.
    """
    if arguments == ["--version"]:
        console.out(f"jaxfl {VERSION}", highlight=False)
        return
    if arguments[:1] == ["--completion"]:
        check(len(arguments) == 2, "--completion takes one value: bash, fish or zsh")
        console.out(completion(arguments[1], NAMES), highlight=False, end="")
        return
    command = parse(arguments or ["--help"])
    if isinstance(command, LONG):
        console.file = cast(IO[str], output_of_run(sys.stdout))
    with one_line_warnings(errors):
        if asks_for_workers(command):
            launch_workers(command, console, main)
        elif isinstance(command, Resume) and command.worker:
            work(command, console)
        else:
            COMMANDS[type(command)](command, console)


def leave_at_once(code: int) -> None:
    """Lets the process end without waiting for what the devices compute, as JAX would at the end.

    Args:
      code: the exit code.
    """

    def leave() -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code)

    atexit.register(leave)  # what is registered last is called first


@contextlib.contextmanager
def one_line_warnings(errors: Console) -> Iterator[None]:
    """Within, each warning of a run is one line on standard error, and is said once."""
    said: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
        if issubclass(category, RunWarning):
            line = f"jaxfl: {visible(str(message))}"
            if line in said:
                return
            said.add(line)
            if hasattr(sys.stderr, "rich_proxied_file"):  # a live display puts it above itself
                print(line, file=sys.stderr)
            else:
                errors.print(line, style="yellow", markup=False)
        elif "reading persistent compilation cache" in str(message) and processes.drop_programs():
            show(
                "the cache of compiled programs could not be read, and has been emptied", RunWarning
            )
        else:
            before(message, category, *where)

    before = warnings.showwarning
    with warnings.catch_warnings():
        warnings.simplefilter("always", RunWarning)
        warnings.showwarning = show
        yield


def parse(
    arguments: Sequence[str],
) -> Run | Resume | Compare | Describe | List | Predict | Prepare | Report | Sweep | Worth | Cite:
    """The command with its options; they start from those of `--config` or `--preset`, if given."""
    arguments = with_names(as_meant(arguments))
    check_command(arguments[0], NAMES)
    for many in ("--hyper", "--algorithms", "--over", "--defend", "--keep"):
        check(
            arguments.count(many) < 2,
            f"{many} is given twice: give it once, with all its values behind it",
        )
    if hasattr(NAMES.get(arguments[0]), "plugin"):
        run_plugins(values("--plugin", arguments))
    arguments, fields = take_fields(arguments, NAMES.get(arguments[0], Cite))
    given = {word.split("=")[0].replace("_", "-") for word in arguments}
    given |= {option(name) for name in fields}
    check_typed(SettingOptions, given)
    files, presets = values("--config", arguments), values("--preset", arguments)
    check(not (files and presets), "both --config and --preset are given: choose one")
    start: dict[str, Any] = {}  # the values from which the options start
    if arguments[:1] == ["run"] and files:
        config = load_config(Path(files[-1]))
        start = {name: getattr(config, name) for name in SETTING}
    seeds = {name for name, notes in notes_of(DataOptions).items() if SEED in notes}
    about_data = given & {option(name) for name in hints(DataOptions) if name not in seeds}
    if arguments[:1] == ["compare"] and not presets and not about_data:
        presets = [DEMONSTRATION]
    if presets:
        start = preset(presets[-1]).scored_options
    start |= {k: v for k, v in replaced(SettingOptions, given).items() if k in start}
    data = {name: value for name, value in start.items() if name in hints(DataOptions)}
    defaults = {}
    if start:
        defaults = {Run: Run(**start), Compare: Compare(**start), Describe: Describe(**data)}
    command = read(arguments, defaults)
    before = {name: start[name] for name in hints(type(command)) if owners(name) and name in start}
    command = dataclasses.replace(command, **before | fields)
    if presets == [DEMONSTRATION]:
        command = dataclasses.replace(command, preset=DEMONSTRATION)
    if start:
        # Options from there that have no effect together with the options given are left out.
        idle_names = [name for name in idle(command) if option(name) not in given]
        defaults = type(command)()
        neutral_values = {name: getattr(defaults, name) for name in idle_names}
        command = dataclasses.replace(command, **neutral_values)
    return command


def read(arguments: Sequence[str], defaults: dict[type, Any]) -> Any:
    """The command of a command line, as the parser reads it.

    Args:
      arguments: the command line.
      defaults: instances of commands from which their options start.

    Raises:
      InputError: it cannot be read.
    """
    output = output_of_command(sys.stdout)
    try:
        # The parser prints the help, and draws a box of its errors.
        with (
            contextlib.redirect_stdout(cast(IO[str], output)),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            options, unread = tyro.cli(
                union(NAMES, defaults),
                prog="jaxfl",
                description="Personalized federated learning on collaboration graphs, in JAX.\n\n"
                "jaxfl COMMAND --help lists the options of a command.\n"
                "jaxfl --completion SHELL prints what bash, fish or zsh needs to complete them.\n"
                "jaxfl --version prints the version.",
                args=arguments,
                config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes),
                registry=registry(NAMES.values()),
                return_unknown_args=True,
            )
    except Unreadable as error:
        raise InputError(str(error)) from None
    except SystemExit as stopped:
        if not stopped.code:  # it has shown its help
            output.flush()
            raise
        raise InputError(missing_value(arguments, NAMES)) from None
    check_all_read(unread, arguments, NAMES)
    check_complete(options.keywords, arguments[0], options.func)
    return options()
