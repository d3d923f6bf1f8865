"""The page of `jaxfl report --html`."""

from pathlib import Path

from rich.console import Console

from jaxfl import mesh
from jaxfl.cli.options import Report
from jaxfl.experiment.studies.page import check_page, is_search, write_page


def is_of_search(command: Report, file: Path) -> bool:
    """Whether the page is of a search, which has no table of runs; the options are checked first.

    Raises:
      InputError: the page cannot be written, see `check_page`.
    """
    check_page(file, command.overwrite)
    mesh.check_backend()
    return any(map(is_search, command.directories))


def write_html(command: Report, file: Path, console: Console) -> None:
    """Writes the page and says where it is."""
    options = {"highlight": command.highlight, "by": command.by, "against": command.against}
    write_page(command.directories, file, overwrite=command.overwrite, **options)
    console.print(f"written to {file}", markup=False, highlight=False)
