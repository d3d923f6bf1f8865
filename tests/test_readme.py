"""The programs in the README and in docs/algorithms.md run as they are printed."""

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

from jaxfl.algorithms import local
from jaxfl.errors import InputError
from jaxfl.types import Cohort

ROOT = Path(__file__).parent.parent
PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_from_python(capsys):
    names = {}
    exec(PROGRAMS[0], names)
    assert names["scores"].before.test.mean() > 0.95
    weights = np.asarray(names["info"].weights[-1])
    pairs = np.arange(10)[:, None] % 5 == np.arange(10)[None] % 5
    assert weights[~pairs].max() < 0.01
    assert weights[pairs].min() > 0.4
    exec(PROGRAMS[1], names)
    assert names["hospitals"].train.mask.shape[0] == 7
    exec(PROGRAMS[2], names)
    assert names["ids"].shape == (5, 10)
    assert len(names["state"].clients.model["params"]["Dense_0"]["bias"].sharding.device_set) > 1


def test_a_new_method():
    names = {}
    exec(PROGRAMS[3], names)
    algorithm = names["halfway"](linear(), own=0.25)
    state, info, _ = run(algorithm, opposite_groups(), 2)
    np.testing.assert_allclose(info.weights.sum(axis=-1), 1, atol=1e-6)
    np.testing.assert_allclose(np.diagonal(info.weights[-1]), 0.25 + 0.75 / 6, atol=1e-6)
    assert deployed(algorithm, state, 6)["params"]["Dense_0"]["bias"].shape == (6, 2)
    with pytest.raises(InputError, match="own of halfway is 2: expected"):
        names["halfway"](linear(), own=2)


@pytest.mark.slow(seconds=90)
def test_the_steps_for_a_new_method_work_as_told(tmp_path):
    """A copy of the repository gets the README's method by the steps of CONTRIBUTING.md."""
    ignored = shutil.ignore_patterns("__pycache__", "_build")
    for folder in ("jaxfl", "tests", "docs", "experiments", "benchmarks", ".github"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    for file in ("pyproject.toml", "README.md", "CONTRIBUTING.md", "CITATION.cff", "LICENSE"):
        shutil.copy(ROOT / file, tmp_path)
    # Step 1.
    (tmp_path / "jaxfl/algorithms/halfway.py").write_text(PROGRAMS[3])
    # Step 2.
    listing = tmp_path / "jaxfl/algorithms/__init__.py"
    text = listing.read_text()
    imported = "from jaxfl.algorithms.heurfedamp import heurfedamp\n"
    assert text.count(imported) == text.count("        heurfedamp,\n") == 1
    text = text.replace(imported, f"from jaxfl.algorithms.halfway import halfway\n{imported}")
    text = text.replace("        heurfedamp,\n", "        halfway,\n        heurfedamp,\n")
    listing.write_text(text)
    # Step 3, whose block is indented.
    page = (ROOT / "CONTRIBUTING.md").read_text().split("## A new method")[1]
    (commands,) = re.findall(r"   ```bash\n(.*?)   ```", page, re.DOTALL)
    assert [line.split()[0] for line in commands.splitlines()] == ["ruff", "pytest", "python"]
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

    assert int(re.search(r"(\d+) passed", told(commands)).group(1)) >= 20
    assert "## halfway" in (tmp_path / "docs/methods.md").read_text()
    assert "halfway" in told("python -m jaxfl list algorithms")


def test_clusters_with_the_weights_of_a_quadratic_program():
    names = {}
    exec(
        re.findall(r"```python\n(.*?)```", (ROOT / "docs/algorithms.md").read_text(), re.DOTALL)[0],
        names,
    )
    key = jax.random.key(0)
    task = linear()
    data = opposite_groups()
    cohort = Cohort(jnp.arange(6), data.train, data.val)
    state, _, _ = run(made(local, steps=20), data, 5, key=key)
    initial = task.problem.init(jax.random.fold_in(key, 10**6))  # as `run` has it
    weights = names["weights_of"](key, state.clients, initial, cohort, clusters=2)
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-6)
    same = np.arange(6)[:, None] % 2 == np.arange(6) % 2
    np.testing.assert_allclose(weights[same], 1 / 3, atol=1e-6)
