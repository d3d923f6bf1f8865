"""What a user's editor says: pyright over a right program, and over one with wrong names."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYRIGHT = shutil.which("pyright")
RIGHT = """
import jax
import jax.numpy as jnp
import jaxfl
from jaxfl.core.types import Algorithm, Info, State
from jaxfl.kernels.similarity import similarities
from jaxfl.simulation.evaluation import Evaluation

source = jaxfl.data.load("digits")
parts = jaxfl.data.pathological(source.y_train, clients=10, seed=0, classes_per_client=2)
federation = jaxfl.data.federate(source, parts, val=0.1, test="own")
model = jaxfl.models.mlp(source.classes)
example = source.x_train[0]
task = jaxfl.classification(model, example, scale=source.scale, steps=50, chunk="all")
algorithm: Algorithm = jaxfl.algorithms.pfedgraph(task, alpha=0.8, prior="none")
participation = jaxfl.participation.full(10)
rounds = jaxfl.make_rounds(algorithm, participation)
evaluate = jaxfl.make_evaluate(algorithm, task)
key = jax.random.key(0)
start: State = algorithm.init(key, federation.train)
state, (info, ids) = rounds(key, federation, start, 0, length=20)
scores = evaluate(key, federation, state, ids=jnp.arange(10))
info.loss[-1].mean()
first = scores.deployed
first.test.mean() - first.val.mean()
near = similarities(jnp.ones((2, 3)), "cosine", snap=0.9)
jaxfl.kernels.simplex.collaboration_rows(near, jnp.ones(2), 0.8, "code")
"""
WRONG = """
jaxfl.data.federate(source, parts, vall=0.1)  # wrong
jaxfl.data.federate(source, parts, test="mine")  # wrong
jaxfl.data.from_arrays(example, example, owner=example)  # wrong
jaxfl.data.pathological(source.y_train, client=10, seed=0)  # wrong
jaxfl.classification(model, example, stepz=3)  # wrong
jaxfl.classification(model, example, compute="bf16")  # wrong
jaxfl.regression(model, example, optimiser=jaxfl.sgd(0.1))  # wrong
jaxfl.algorithms.pfedgraph(task, alfa=0.8)  # wrong
jaxfl.algorithms.pfedgraph(task, prior="sizes")  # wrong
jaxfl.algorithms.pfedgraph(task).rounds  # wrong
jaxfl.algorithms.pfedgrph(task)  # wrong
jaxfl.make_rounds(task, participation)  # wrong
jaxfl.make_evaluate(algorithm, task, after="trainde")  # wrong
rounds(key, federation, start, 0)  # wrong
rounds(key, federation, start, 0, lenght=20)  # wrong
rounds(key, federation, start, 0, 20)[1][0].losses  # wrong
evaluate(key, federation, start)  # wrong
evaluate(key, federation, start, ids, rounds=3)  # wrong
scores.befor  # wrong
first.tset  # wrong
one: Evaluation = first  # wrong
other: Info = state  # wrong
similarities(near, 3)  # wrong
jaxfl.models.lenet(10, conv="patch")  # wrong
jaxfl.kernels.simplex.collaboration_rows(near, jnp.ones(2), 0.8, "cod")  # wrong
"""


@pytest.mark.slow(seconds=30)
@pytest.mark.skipif(PYRIGHT is None, reason="pyright is in the dev extra")
def test_pyright_finds_wrong_names_in_a_program_and_no_error_in_a_right_one(tmp_path):
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(RIGHT + WRONG)
    found = {name: lines_with_errors(tmp_path / f"{name}.py") for name in ("right", "wrong")}
    lines = (RIGHT + WRONG).splitlines()
    assert [lines[line] for line in found["right"]] == []
    wrong = [line for line, text in enumerate(lines) if text.endswith("# wrong")]
    assert [lines[line] for line in found["wrong"]] == [lines[line] for line in wrong]


def lines_with_errors(program):
    """The numbers of the lines, from 0, in which pyright finds errors."""
    finished = subprocess.run(
        [PYRIGHT, "--outputjson", "--pythonpath", sys.executable, program],
        env={"PYTHONPATH": str(ROOT), "PATH": str(Path(PYRIGHT).parent)},
        cwd=program.parent,
        capture_output=True,
        text=True,
        timeout=300,
    )
    said = json.loads(finished.stdout)["generalDiagnostics"]
    errors = [one for one in said if one["severity"] == "error"]
    return sorted({one["range"]["start"]["line"] for one in errors})
