"""The promises of docs/determinism.md that no other test checks.

Each sentence of that page must name a test that exists.
"""

import ast
import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import children
import jax
import numpy as np
import pytest
from toys import equal, full, jit, made, make_rounds, opposite_groups, quick_key, run

import jaxfl
from jaxfl.experiment import Config, gather, resolve

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "determinism.md").read_text()
SENTENCES = re.findall(
    r"^- (.*?)(?=\n- |\n\n|\Z)", PAGE.partition("\n## Not promised")[0], re.MULTILINE | re.DOTALL
)
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


@functools.cache
def defined_in(file):
    return {
        node.name
        for node in ast.parse((ROOT / file).read_text()).body
        if isinstance(node, ast.FunctionDef)
    }


@pytest.mark.parametrize("sentence", SENTENCES, ids=[sentence[:40] for sentence in SENTENCES])
def test_a_sentence_names_its_tests(sentence):
    assert re.search(r"`tests/[\w/]+\.py::test_\w+`", sentence)


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED)), ids=lambda part: part)
def test_a_named_test_exists(file, name):
    assert name in defined_in(file)


def test_the_page_has_sentences():
    assert len(SENTENCES) >= 10
    assert len(NAMED) == len(re.findall(r"::test_", PAGE))


def results(directory):
    """All numbers that a run has written, except times."""
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    arrays = {}
    for file in ("clients.npz", "graph.npz", "models.npz"):
        with np.load(directory / file, allow_pickle=False) as held:
            arrays |= {f"{file}/{name}": held[name] for name in held}
    return [line | {"seconds": None} for line in lines], arrays


@pytest.mark.slow(seconds=45)
def test_two_processes_that_know_nothing_of_each_other_get_the_same_bits(tmp_path):
    """Each process compiles its own programs, as shipped.

    The processes have different hashes in Python, and thus different orders of sets.
    """
    options = [
        "pfedgraph",
        "--rounds",
        "1",
        "--local-steps",
        "3",
        "--model",
        "linear",
        "--participation",
        "0.5",
    ]
    program = "import sys, jaxfl.cli; sys.exit(jaxfl.cli.main())"
    running = []
    for number in (1, 2):
        clean = {
            name: value
            for name, value in os.environ.items()
            if name not in {"XLA_FLAGS", "JAXFL_DATA_DIR"}
        }
        clean |= {
            "JAX_DISABLE_MOST_OPTIMIZATIONS": "0",
            "PYTHONHASHSEED": str(number),
            "XDG_CACHE_HOME": str(tmp_path / f"cache{number}"),
        }
        command = [
            sys.executable,
            "-c",
            program,
            "run",
            *options,
            "--out",
            str(tmp_path / str(number)),
        ]
        running.append(
            subprocess.Popen(command, env=clean, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        )
    errors = [said for _, said in children.end(running)]
    assert [process.returncode for process in running] == [0, 0], errors
    lines, arrays = results(tmp_path / "1")
    other_lines, other_arrays = results(tmp_path / "2")
    assert lines == other_lines
    assert len(arrays) > 8
    equal(arrays, other_arrays)


@pytest.mark.slow(seconds=4)
def test_rounds_one_by_one_are_rounds_in_one_scan_bit_for_bit():
    """Therefore the number of evaluations of a run changes no bit of its rounds."""
    algorithm = made(jaxfl.algorithms.pfedgraph)
    data = opposite_groups()
    key = quick_key(0)
    start = jit(algorithm.init)(jax.random.fold_in(key, 10**6), data.train)
    whole, (info, _) = make_rounds(algorithm, full(6), exact=True)(key, data, start, 0, 3)
    state, one_by_one, _ = run(algorithm, data, 3, exact=True)
    equal(whole, state)
    equal(info, one_by_one)


@pytest.mark.parametrize("partition", ["pathological", "dirichlet", "iid", "shards", "nodes"])
def test_who_holds_what_depends_on_the_seed_alone(partition):
    """In a run with several seeds, each seed gets the partition of a run with this seed alone."""
    several = Config(partition=partition, seed=3, seeds=2)
    alone = Config(
        partition=partition,
        seed=4,
        algorithm="local",
        rounds=7,
        lr=0.5,
        batch_size=9,
        participation=0.3,
    )
    both = gather(resolve(several)).parts
    (one,) = gather(resolve(alone)).parts
    equal(both[1], one)
    assert any(not np.array_equal(a, b) for a, b in zip(both[0], one, strict=True))


@pytest.mark.slow
def test_the_cohorts_depend_on_the_seed_and_the_round_alone():
    key = quick_key(3)
    data = opposite_groups()
    half = jaxfl.participation.uniform(6, 0.5)
    drawn = []
    for factory in (jaxfl.algorithms.local, jaxfl.algorithms.fedavg):
        algorithm = made(factory)
        start = jit(algorithm.init)(key, data.train)
        drawn.append(make_rounds(algorithm, half)(key, data, start, 0, 4)[1][1])
        drawn.append(make_rounds(algorithm, half)(key, data, start, 2, 2)[1][1])
    equal(drawn[0], drawn[2])
    equal(drawn[1], drawn[3])
    equal(drawn[0][2:], drawn[1])
    assert len({tuple(ids) for ids in np.asarray(drawn[0])}) > 1
