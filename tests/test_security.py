"""What the package must never do; and names that would be paths, given to the program.

Most of what the package must never do is forbidden by rules of ruff in pyproject.toml. The tests
here show that these rules hold, and read the source with `ast` for what a linter cannot see. Files
are written in three places: a directory given with `--out`, the data folder (`NAME.npz` by
`prepare`), and JAX's cache of compiled programs.
"""

import ast
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from finished_runs import write_run

import jaxfl
from jaxfl import experiment
from jaxfl.algorithms import ALGORITHMS
from jaxfl.cli import main
from jaxfl.core.errors import InputError
from jaxfl.data import list_data_sets, load
from jaxfl.experiment import Config
from jaxfl.experiment.store.finished_runs import load_finished

ROOT = Path(__file__).parent.parent
PACKAGE = Path(jaxfl.__file__).parent
# Calls that are unsafe whoever owns them. A linter does not know the type of the owner.
METHODS = {"unsafe_load", "load_module", "to_pickle", "read_pickle", "extractall"}
# Ruff finds `eval` and `exec`, and these two only as `builtins.compile` and `builtins.__import__`.
BUILTINS = {"compile", "__import__"}
# Where the package writes: nothing else may open for writing or change the file system.
WRITERS = {
    "experiment/store/files.py",
    "core/file_locks.py",
    "experiment/store/npz.py",
    "experiment/session/checkpoints.py",
    "data/write.py",
    "simulation/checkpoint.py",
    "simulation/processes.py",  # programs that cannot be read are removed
    "simulation/on_disk/clients.py",
    "simulation/on_disk/directory.py",
    "serve/state.py",
    "testing/results.py",  # a checkpoint in a temporary folder
}
WRITING = {
    "write_text",
    "write_bytes",
    "mkdir",
    "makedirs",
    "touch",
    "unlink",
    "rmdir",
    "rmtree",
    "rename",
    "tofile",
    "open_in_place",
}
WRITING |= {
    "save",
    "savez",
    "savez_compressed",
    "savefig",
    "copyfile",
    "symlink_to",
    "hardlink_to",
    "chmod",
}
# These calls write to memory, and `files.write_file` then writes the bytes.
IN_MEMORY = {"experiment/pictures/drawing.py": ["first.save", "figure.savefig"]}


@functools.cache
def sources():
    """The program of each module of the package."""
    files = sorted(PACKAGE.rglob("*.py"))
    return {str(file.relative_to(PACKAGE)): ast.parse(file.read_text()) for file in files}


def calls(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def unsafe(tree):
    """The names by which a module does what it must not do, of those that ruff does not find."""
    # A function imported by its own name may then be called by any name.
    found = [name for name in imported(tree) if name in {"numpy.load", "jax.numpy.load"}]
    found += [name for name in imported(tree) if name.split(".")[-1] in METHODS]
    for call in calls(tree):
        function = call.func
        if isinstance(function, ast.Name) and function.id in BUILTINS:
            found.append(function.id)
        if isinstance(function, ast.Attribute):
            owner = ast.unparse(function.value)
            if function.attr in METHODS:
                found.append(function.attr)
            if function.attr == "load" and owner in {"np", "numpy", "jnp"}:
                given = {word.arg: ast.unparse(word.value) for word in call.keywords}
                found += [] if given.get("allow_pickle") == "False" else ["load"]
        found += [
            "allow_pickle"
            for word in call.keywords
            if word.arg == "allow_pickle" and ast.unparse(word.value) != "False"
        ]
    return found


def written(tree):
    """By which calls a module writes files."""
    found = []
    for call in calls(tree):
        name = (
            call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        )
        texts = [ast.unparse(argument) for argument in call.args] + [
            ast.unparse(word.value) for word in call.keywords
        ]
        modes = {f"'{letter}{more}'" for letter in "wax" for more in ("", "b", "t", "+")}
        if (
            name in WRITING
            or (name == "open" and modes & set(texts))
            or ast.unparse(call.func) == "os.replace"
        ):
            found.append(ast.unparse(call.func))
    return found


def test_nothing_is_unpickled_or_run_in_a_way_that_ruff_does_not_see():
    found = {module: unsafe(tree) for module, tree in sources().items()}
    assert {module: names for module, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "text",
    [
        "from numpy import load as read",
        "from jax.numpy import load",
        "np.load(file)",
        "np.load(file, allow_pickle=True)",
        "np.load(file, allow_pickle=given)",
        "np.load(file, None, True)",
        "reader(file, allow_pickle=True)",
        "compile(text, 'x', 'eval')",
        "__import__(name)",
        "frame.to_pickle(file)",
        "archive.extractall(folder)",
    ],
)
def test_the_reading_of_the_source_finds_what_is_unsafe(text):
    assert unsafe(ast.parse(text))


def found_by_ruff(text):
    """The rules of pyproject.toml against unsafe code that a file of the package breaks."""
    ruff = shutil.which(
        "ruff", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    )
    if ruff is None:
        pytest.skip("ruff is not installed: pip install -e '.[dev]'")
    options = ["--select", "S,TID251", "--output-format", "json", "--no-cache"]
    command = [ruff, "check", *options, "--stdin-filename", "jaxfl/unsafe.py", "-"]
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    return [finding["code"] for finding in json.loads(done.stdout)]


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "import numpy as np, dill",
        "import joblib.hashing",
        "import cloudpickle",
        "import _pickle",
        "import marshal",
        "import shelve",
        "import yaml\n\nyaml.load(text)",
        "import pandas as pd\n\npd.read_pickle(file)",
        "import os\n\nos.system(command)",
        "from os import system",
        "from os import popen as p",
        "import os\n\nos.spawnl(0, command)",
        "import os\n\nos.execv(command, [])",
        "import os\n\nos.startfile(file)",
        "import subprocess as s",
        "eval('1')",
        "exec(text)",
        "import builtins\n\nbuiltins.compile(text, 'x', 'eval')",
        "import ctypes",
        "import code",
        "import codeop",
        "import runpy",
        "import numpy\n\nnumpy.lib.npyio.NpzFile(file, False, True)",
        "from numpy.lib.format import read_array",
        "run(command, shell=True)",
        "import importlib\n\nimportlib.import_module(name)",
        "from shutil import unpack_archive",
    ],
)
def test_ruff_finds_what_is_unsafe(text):
    assert found_by_ruff(text)


def test_ruff_finds_nothing_where_nothing_is_unsafe():
    assert found_by_ruff("import json\n\njson.loads(text)\n") == []


def test_no_rule_about_unsafe_code_is_switched_off():
    """By a comment in the package; pyproject.toml names the exceptions of the other folders."""
    comment = re.compile(r"#\s*(?:ruff:\s*)?noqa(?!:)|#\s*(?:ruff:\s*)?noqa:.*\b(?:S\d|TID)")
    assert comment.search("x  # noqa")
    assert comment.search("x  # noqa: E501, S301")
    assert not comment.search("x  # noqa: E731")
    for module in sources():
        assert not comment.search((PACKAGE / module).read_text()), module


def test_few_modules_write_files():
    found = {module: written(tree) for module, tree in sources().items() if module not in WRITERS}
    assert {module: names for module, names in found.items() if names} == IN_MEMORY


def test_the_reading_of_the_source_finds_what_writes():
    for module in WRITERS:
        assert written(sources()[module])
    for text in (
        "open(f, 'w')",
        "file.open('ab')",
        "open(f, mode='x')",
        "p.write_text(t)",
        "np.save(f, x)",
    ):
        assert written(ast.parse(text)), text
    assert not written(ast.parse("open(f); f.open('rb')"))


PATHS = [
    "../../etc/passwd",
    "a/b",
    "..",
    ".",
    "",
    "a\0b",
    "/etc/passwd",
    "~/x",
    "..\\x",
    "a/../../x",
    "NAME/../x",
]


@pytest.fixture
def inside(tmp_path, monkeypatch):
    """A working directory two folders down. No name may reach the good data above and beside it."""
    monkeypatch.delenv("JAXFL_DATA_DIR", raising=False)
    down = tmp_path / "x" / "work"
    (down / "data").mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "x", down):
        np.savez(folder / "secret.npz", x_train=np.ones((40, 4)), y_train=np.arange(40) % 2)
    np.savez(down / "data" / "mine.npz", x_train=np.ones((40, 4)), y_train=np.arange(40) % 2)
    monkeypatch.chdir(down)
    return tmp_path


def files(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def refused(arguments, capsys):
    """The program's one line of refusal."""
    assert main([*arguments]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    return shown.err


@pytest.mark.long(every=5)
@pytest.mark.parametrize(
    "name", [*PATHS, "../secret", "../../secret", "data/../secret", "{here}/secret"], ids=repr
)
def test_the_name_of_a_data_set_is_no_path(name, inside, capsys):
    name, before = name.format(here=Path.cwd()), files(inside)
    given = ["--data-dir", "data"]
    for command in (["run", "local"], ["compare"], ["sweep", "local", "--over", "lr=1"]):
        assert "unknown data set" in refused(
            [*command, "--dataset", name, *given, "--out", "new"], capsys
        )
    assert "unknown data set" in refused(["describe", "--dataset", name, *given], capsys)
    config = {"algorithm": "local", "dataset": name, "data_dir": "data"}
    Path("c.json").write_text(json.dumps(config))
    assert "unknown data set" in refused(["run", "--config", "c.json", "--out", "new"], capsys)
    Path("c.json").unlink()
    if name != "a/b":
        assert "is not the name of a data set" in refused(
            ["prepare", name, "--data-dir", "data"], capsys
        )
    with pytest.raises(InputError):
        load(name, "data")
    assert files(inside) == before


def test_a_slash_in_a_name_is_a_hyphen_in_its_file(inside, capsys):
    """As in `movielens/1m-ratings`; other sets of TensorFlow Datasets are found by their file."""
    np.savez("data/a-b.npz", x_train=np.ones((40, 4)), y_train=np.arange(40) % 2)
    assert main(["prepare", "a/b", "--data-dir", "data"]) == 0
    assert str(Path("data/a-b.npz")) in capsys.readouterr().out.replace("\n", "")
    assert "mine" in list_data_sets("data")


@pytest.mark.long
@pytest.mark.parametrize("name", PATHS, ids=repr)
def test_no_other_name_is_a_path(name, inside, capsys):
    before = files(inside)
    if name:
        assert "unknown algorithm" in refused(["run", name, "--out", "new"], capsys)
    assert "unknown algorithm" in refused(["compare", "--algorithms", name, "--out", "new"], capsys)
    assert "unknown algorithm" in refused(["sweep", name, "--over", "lr=1", "--out", "new"], capsys)
    for option in ("partition", "model", "augment", "attack"):
        assert f"unknown {option}" in refused(
            ["run", "local", f"--{option}", name, "--out", "new"], capsys
        )
    for fields in (
        {"algorithm": name},
        *({"algorithm": "local", option: name} for option in ("model", "partition")),
    ):
        Path("c.json").write_text(json.dumps(fields))
        assert "jaxfl: " in refused(["run", "--config", "c.json", "--out", "new"], capsys)
        Path("c.json").unlink()
    with pytest.raises(InputError, match="unknown algorithm"):
        experiment.compare([Config(algorithm=name)], Path("new"))
    assert files(inside) == before


def test_the_directories_of_a_comparison_are_named_by_registered_algorithms():
    assert all(name.isidentifier() for name in ALGORITHMS)


def test_a_config_cannot_name_where_to_write(inside, capsys):
    before = files(inside)
    for field in ("out", "overwrite", "config", "coordinator"):
        Path("c.json").write_text(json.dumps({"algorithm": "local", field: "../elsewhere"}))
        assert "unknown field" in refused(["run", "--config", "c.json"], capsys)
        Path("c.json").unlink()
    assert files(inside) == before


@pytest.mark.parametrize(
    "name", ["../../secret_run", "../secret_run", ".", "..", "{root}/secret_run"]
)
def test_a_comparison_leads_nowhere_else(name, inside, capsys):
    """Its names choose among its own subdirectories."""
    name = name.format(root=inside)
    write_run(inside / "secret_run", {"algorithm": "secret"})
    write_run(inside / "x" / "secret_run", {"algorithm": "secret"})
    write_run("table/fedavg")
    rows = [
        {"algorithm": "fedavg", "directory": "fedavg", "run": name},
        {"algorithm": name, "directory": name, "run": name},
    ]
    Path("table/comparison.json").write_text(json.dumps(rows))
    before = files(inside)
    assert set(load_finished([Path("table")])) == {"fedavg"}
    assert main(["report", "table"]) == 0
    assert "secret" not in capsys.readouterr().out
    assert files(inside) == before


def test_what_a_summary_says_is_no_path_and_no_markup(inside, capsys):
    """A run made elsewhere names its algorithm: it is shown and written as text, or refused."""
    for number, name in enumerate(
        ("../../x", "[link=file:///etc]x[/link]", "a|b", "\x1b[31mred", "")
    ):
        write_run(f"run{number}", {"algorithm": name})
        assert "is no run of jaxfl" in refused(["report", f"run{number}", "--out", "new"], capsys)
    assert not Path("new").exists()


def test_a_link_in_the_place_of_a_file_is_replaced_not_followed(inside):
    write_run("run")
    Path("new").mkdir()
    for name in ("comparison.json", ".comparison.json.part", "comparison.md", "comparison.png"):
        Path("new", name).symlink_to(inside / "secret.npz")
    secret = (inside / "secret.npz").read_bytes()
    assert main(["report", "run", "--out", "new", "--overwrite"]) == 0
    assert (inside / "secret.npz").read_bytes() == secret
    assert not any(path.is_symlink() for path in Path("new").iterdir())
    assert not os.path.lexists("new/.comparison.json.part")
