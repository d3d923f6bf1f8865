"""The programs in the README and in the documentation run as they are printed."""

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import deployed, linear, made, opposite_groups, run

from jaxfl.algorithms import ALGORITHMS, local
from jaxfl.cli import main
from jaxfl.core.errors import InputError
from jaxfl.core.types import Cohort
from jaxfl.models import MODELS
from jaxfl.uplink import ATTACKS

ROOT = Path(__file__).parents[2]
# Pages whose cells a build of the documentation runs, which prints their output.
NOTEBOOKS = (
    "docs/start.md",
    *(
        f"docs/tutorials/{name}.md"
        for name in (
            *("own_sites", "own_data", "own_model", "own_method", "own_attack"),
            "learned_hyperparameter",
        )
    ),
)
# The pages with programs that no build runs, and the tests of this file that run them.
TESTED = {
    "README.md": "test_from_python",
    "docs/guides/devices.md": "test_from_python",
    "docs/guides/architectures.md": "test_clients_with_models_of_two_architectures",
    "docs/guides/asynchronous.md": "test_the_short_programs_of_the_pages",
    "docs/guides/deployment.md": "tests/serve/test_runtimes.py",
    "docs/guides/many_clients.md": "test_the_short_programs_of_the_pages",
    "docs/guides/unreliable_clients.md": "tests/simulation/test_work.py",
    "docs/tutorials/coming_from.md": "test_the_short_programs_of_the_pages",
    "docs/tutorials/own_model.md": "test_names_of_your_own_on_the_command_line",
    "docs/tutorials/own_attack.md": "test_names_of_your_own_on_the_command_line",
    "docs/tutorials/own_method.md": "test_names_of_your_own_on_the_command_line",
    "docs/algorithms.md": "test_clusters_with_the_weights_of_a_quadratic_program",
    "docs/tracking.md": "tests/experiment/test_trackers.py",
    "docs/training.md": "tests/experiment/session/test_metric_option.py",
    # The names in it stand for a run of the reader's own.
    "docs/files.md": "tests/experiment/session/test_load.py",
    "docs/report.md": "tests/cli/test_report.py",  # pandas is not installed here
}


def programs(page):
    """The programs of a page that a build does not run."""
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


def cells(page):
    """The programs of a page that a build runs."""
    pattern = r"^```\{code-cell\} ipython3\n(?::tags:.*?\n\n)?(.*?)^```"
    return re.findall(pattern, (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


HALFWAY = cells("docs/tutorials/own_method.md")[0]


def test_every_page_with_a_program_is_run_by_a_test_or_by_a_build():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    built = (ROOT / "docs/methods", ROOT / "docs/_build")  # written by a build
    pages = [page for page in pages if not any(folder in page.parents for folder in built)]
    names = {str(page.relative_to(ROOT)) for page in pages}
    assert {name for name in names if programs(name)} == set(TESTED)
    assert {name for name in names if cells(name)} == set(NOTEBOOKS)


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_every_link_to_a_page_names_a_file():
    built = ("methods/", "../methods/", "../api/")
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        if {"methods", "_build"} & {folder.name for folder in page.parents}:
            continue
        for target in re.findall(r"\]\(([\w./-]+\.(?:md|rst|png|svg))[#)]", page.read_text()):
            if not target.startswith(built):
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"


@pytest.mark.slow(seconds=9)
def test_from_python(capsys):
    names = {}
    exec(programs("README.md")[0], names)
    assert names["scores"].deployed.test.mean() > 0.95
    weights = np.asarray(names["info"].weights[-1])
    pairs = np.arange(10)[:, None] % 5 == np.arange(10)[None] % 5
    assert weights[~pairs].max() < 0.01
    assert weights[pairs].min() > 0.4
    exec(programs("docs/guides/devices.md")[0], names)
    assert names["ids"].shape == (5, 10)
    assert (
        len(names["state"].clients.memory.model["params"]["Dense_0"]["bias"].sharding.device_set)
        > 1
    )


@pytest.mark.slow(seconds=12)
def test_clients_with_models_of_two_architectures():
    names = {}
    exec(programs("docs/guides/architectures.md")[0], names)
    weights = np.asarray(names["info"].weights["small"][-1])
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-5)


def test_the_short_programs_of_the_pages():
    names = {}
    exec(programs("docs/guides/many_clients.md")[0], names)
    cohort = names["participation"](jax.random.key(0), 0)
    assert cohort.shape == (100,)
    assert len(set(cohort.tolist())) == 100
    exec(programs("docs/guides/asynchronous.md")[0], names)
    cohort = names["participation"](jax.random.key(0), 499)
    assert sorted(cohort.tolist()) == sorted(names["ids"][499].tolist())
    exec(programs("docs/tutorials/coming_from.md")[0], names)
    models = {"bias": jnp.array([[0.0], [4.0], [100.0]])}
    mean = names["aggregate"](models, jnp.array([3, 1, 5]), jnp.array([True, True, False]))
    np.testing.assert_allclose(mean["bias"], [1.0])


@pytest.mark.slow
def test_clients_on_disk_as_the_guide_has_them(tmp_path, monkeypatch):
    """With fewer clients and a smaller model."""
    monkeypatch.chdir(tmp_path)
    names = {}
    for program in programs("docs/guides/many_clients.md")[1:]:
        small = program.replace("100_000", "200").replace("lenet(10)", "linear(10)")
        exec(small, names)
    assert names["ids"].shape == (2, 100)
    assert names["scores"].shape == (100,)
    assert np.isfinite(names["scores"]).all()
    number, state = names["checkpoint"].restore(Path("checkpoint"), names["state"])
    assert number == 2
    assert (state.clients == names["state"].clients).all()


@pytest.mark.parametrize(
    ("page", "kind", "table", "name"),
    [
        ("own_model", "models", MODELS, "net"),
        ("own_method", "algorithms", ALGORITHMS, "halfway"),
        ("own_attack", "attacks", ATTACKS, "half"),
    ],
)
def test_names_of_your_own_on_the_command_line(page, kind, table, name, capsys):
    names = {}
    before = dict(table)
    if page == "own_method":
        exec(HALFWAY, names)
    try:
        # The program that adds the name; others on the page are tests of one's own.
        (program,) = [
            one for one in programs(f"docs/tutorials/{page}.md") if f'["{name}"] =' in one
        ]
        exec(program, names)
        assert main(["list", kind]) == 0
    finally:
        table.clear()
        table.update(before)
    assert re.search(rf"\b{name}\b", capsys.readouterr().out)


@pytest.mark.slow(seconds=20)
@pytest.mark.parametrize("page", NOTEBOOKS)
def test_the_cells_of_a_page_run(page, tmp_path, monkeypatch):
    # Of the extra `docs`.
    for library in ("equinox", "haiku") if "own_model" in page else ():
        pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    # The commands are those of our own pages.
    names = {"shell": functools.partial(subprocess.run, shell=True, check=True)}  # noqa: S604
    for cell in cells(page):
        # The lines that a notebook gives to the shell
        exec(re.sub(r"^!((?:.*\\\n)*.*)$", r"shell(r'''\1''')", cell, flags=re.MULTILINE), names)
    assert not list(tmp_path.iterdir()), "the page removes the files that it writes"


def test_a_new_method():
    names = {}
    exec(HALFWAY, names)
    algorithm = names["halfway"](linear(), own=0.25)
    state, info, _ = run(algorithm, opposite_groups(), 2)
    np.testing.assert_allclose(info.weights.sum(axis=-1), 1, atol=1e-6)
    np.testing.assert_allclose(np.diagonal(info.weights[-1]), 0.25 + 0.75 / 6, atol=1e-6)
    assert deployed(algorithm, state, 6)["params"]["Dense_0"]["bias"].shape == (6, 2)
    with pytest.raises(InputError, match="own of halfway is 2: expected"):
        names["halfway"](linear(), own=2)


@pytest.mark.slow(seconds=90)
def test_the_steps_for_a_new_method_work_as_told(tmp_path):
    """A copy of the repository gets the method of the tutorial by the steps of CONTRIBUTING.md."""
    ignored = shutil.ignore_patterns("__pycache__", "_build")
    for folder in ("jaxfl", "tests", "docs", "experiments", "benchmarks", ".github", ".ci"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    for file in ("pyproject.toml", "README.md", "CONTRIBUTING.md", "CITATION.cff", "LICENSE"):
        shutil.copy(ROOT / file, tmp_path)
    # Step 1.
    (tmp_path / "jaxfl/algorithms/halfway.py").write_text(HALFWAY)
    # Step 2.
    listing = tmp_path / "jaxfl/algorithms/__init__.py"
    text = listing.read_text()
    imported = "from jaxfl.algorithms.ifca import ifca\n"
    assert text.count(imported) == text.count("        ifca,\n") == 1
    text = text.replace(imported, f"from jaxfl.algorithms.halfway import halfway\n{imported}")
    text = text.replace("        ifca,\n", "        halfway,\n        ifca,\n")
    listing.write_text(text)
    # Step 3, whose block is indented.
    page = (ROOT / "CONTRIBUTING.md").read_text().split("## A new method")[1]
    (commands,) = re.findall(r"   ```bash\n(.*?)   ```", page, re.DOTALL)
    assert [line.split()[0] for line in commands.splitlines()] == ["ruff", "pytest", "pytest"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    programs = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    environment |= {"PYTHONPATH": str(tmp_path), "PATH": programs}

    def told(command):
        ended = subprocess.run(
            ["/bin/sh", "-ec", command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert ended.returncode == 0, (ended.stdout + ended.stderr)[-3000:]
        return ended.stdout

    quick, slow = re.findall(r"(\d+) passed", told(commands))
    assert (int(quick) >= 5, int(slow) >= 10) == (True, True)
    assert "halfway" in told("python -m jaxfl list algorithms")
    # No other file need name the method: the committed pages may lack it.
    files = "docs/test_docs.py docs/test_tuning.py cli/test_cite.py "
    files += "experiment/session/test_availability.py"
    words = "page or table or index or built or venue or guide"
    told(f"cd tests; pytest -q {files} -k '{words}'")


@pytest.mark.slow
def test_clusters_with_the_weights_of_a_quadratic_program():
    names = {}
    exec(programs("docs/algorithms.md")[0], names)
    key = jax.random.key(0)
    task = linear()
    data = opposite_groups()
    cohort = Cohort(jnp.arange(6), data.train, data.val)
    state, _, _ = run(made(local, steps=20), data, 5, key=key)
    initial = task.problem.init(jax.random.fold_in(key, 10**6))  # as `run` has it
    weights = names["weights_of"](key, state.clients.memory, initial, cohort, clusters=2)
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-6)
    same = np.arange(6)[:, None] % 2 == np.arange(6) % 2
    np.testing.assert_allclose(weights[same], 1 / 3, atol=1e-6)


@pytest.mark.slow
def test_a_hierarchy_of_servers_in_a_line():
    names = {}
    exec(programs("docs/algorithms.md")[1], names)
    weights, line, server_of = (names[name] for name in ("weights", "line", "server_of"))
    shares = np.asarray(weights[2]) @ np.eye(3)[server_of]
    np.testing.assert_allclose(shares, line[server_of], atol=1e-6)
    assert (np.asarray(weights[0])[server_of[:, None] != server_of[None]] == 0).all()
    names["algorithm"].init(jax.random.key(0), opposite_groups(clients=10).train)
