"""`jaxfl worth`."""

from rich.console import Console

from jaxfl import experiment
from jaxfl.cli.command_options import Worth
from jaxfl.core.errors import InputError, check
from jaxfl.experiment.store.finished_runs import load_finished
from jaxfl.experiment.studies.shapley import shapley_values
from jaxfl.experiment.studies.worth_tables import shapley_section, worth_sections, write_worth
from jaxfl.experiment.tables.formats import print_sections
from jaxfl.simulation import processes


def worth(command: Worth, console: Console) -> None:
    """`jaxfl worth`."""
    loaded = {}
    for label, run in load_finished(list(command.directories)).items():
        if run.directory is None or run.config is None:
            raise InputError(f"{label} has no config.json that this version can read: leave it out")
        loaded[label] = experiment.load(run.directory)
        file = run.directory / "worth.csv"
        check(command.overwrite or not file.exists(), f"{file} exists: add --overwrite")
    processes.check_backend()
    processes.keep_programs()
    for label, run in loaded.items():
        found = experiment.leave_one_out(run)
        print_sections(worth_sections(found, label), console)
        values = None
        if command.shapley:
            values = shapley_values(run)
            print_sections([shapley_section(run, values, label)], console)
        files = " and ".join(map(str, write_worth(found, label, values)))
        console.print(f"written to {files}", markup=False, highlight=False)
