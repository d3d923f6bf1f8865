"""`import jaxfl`: what it needs, what it gives."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

import jaxfl

ROOT = Path(__file__).parent.parent
# Libraries of the command line, the pictures, the checkpoints, and single data sets.
LATE = {
    "sklearn",
    "matplotlib",
    "rich",
    "tyro",
    "orbax",
    "tensorflow_datasets",
    "plotly",
    "flwr",
}
NEEDED = (
    "import jax, flax.linen, optax, numpy, jaxopt, jaxtyping"  # flax itself loads parts of rich
)


def python(*lines):
    """The output of a program in a fresh process, which sees this checkout."""
    path = f"import sys; sys.path.insert(0, {str(ROOT)!r})"
    done = subprocess.run(
        [sys.executable, "-c", "\n".join([path, *lines])],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_importing_jaxfl_loads_no_library_of_the_command_line_or_of_pictures():
    """No more of them than the libraries that jaxfl needs load themselves."""
    loaded = python(
        NEEDED,
        "before = set(sys.modules)",
        "import jaxfl",
        "print(*sorted(set(sys.modules) - before), sep='\\n')",
    )
    assert "jaxfl.algorithms.fedavg" in loaded
    assert [name for name in loaded if name.split(".")[0] in LATE] == []


@pytest.mark.slow
def test_importing_jaxfl_works_where_these_libraries_cannot_be_imported():
    """After flax is loaded, since flax itself imports rich."""
    loaded = python(
        NEEDED,
        f"late = {sorted(LATE)}",
        "there = [name for name in sys.modules if name.split('.')[0] in late]",
        "sys.modules.update(dict.fromkeys([*late, *there]))",  # None: the import fails
        "import jaxfl",
        "print(jaxfl.__file__)",
    )
    assert loaded == [str(ROOT / "jaxfl" / "__init__.py")]


@pytest.mark.slow
@pytest.mark.parametrize("library", ["scipy.stats", "matplotlib"])
def test_the_command_line_starts_without_the_slowest_libraries(library):
    lines = (
        "from jaxfl.cli import main",
        "main(['--version'])",
        f"print({library!r} in sys.modules)",
    )
    assert python(*lines) == [f"jaxfl {importlib.metadata.version('jaxfl')}", "False"]


@pytest.mark.parametrize("name", jaxfl.__all__)
def test_a_public_name_is_there(name):
    assert hasattr(jaxfl, name)


def test_public_names_are_sorted_and_without_underscore():
    assert jaxfl.__all__ == sorted(jaxfl.__all__)
    assert [name for name in jaxfl.__all__ if name.startswith("_")] == ["__version__"]


def test_the_version_is_that_of_the_installed_package():
    assert jaxfl.__version__ == importlib.metadata.version("jaxfl")


@pytest.mark.slow
def test_a_copy_of_the_source_that_is_not_installed_has_an_unknown_version():
    loaded = python(
        "import importlib.metadata as metadata",
        "installed = metadata.version",
        "def version(name):",
        "    if name == 'jaxfl': raise metadata.PackageNotFoundError(name)",
        "    return installed(name)",
        "metadata.version = version",
        "import jaxfl",
        "from jaxfl.experiment.session.history import versions",
        "print(jaxfl.__version__, versions()['jaxfl'])",
    )
    assert loaded == ["unknown unknown"]


def test_type_checkers_may_read_the_annotations():
    assert (Path(jaxfl.__file__).parent / "py.typed").exists()


def test_modules_that_programs_import_by_short_names_are_those_of_the_rooms():
    from jaxfl.objectives import data_loss
    from jaxfl.ragged import ragged
    from jaxfl.types import Cohort, State

    from jaxfl.training import objectives

    assert data_loss is objectives.data_loss
    assert (Cohort, State) == (jaxfl.types.Cohort, jaxfl.types.State)
    assert callable(ragged)
    from jaxfl import checkpoint

    assert checkpoint.__name__ == "jaxfl.simulation.checkpoint"


def test_serving_without_flower_says_what_to_install():
    said = python(
        "sys.modules['flwr'] = None",
        "import jaxfl",
        "try:",
        "    jaxfl.serve",
        "except jaxfl.errors.InputError as error:",
        "    print(error)",
    )
    assert said == [
        "jaxfl.serve sends messages by Flower, which is not installed: pip install 'jaxfl[flower]'"
    ]
