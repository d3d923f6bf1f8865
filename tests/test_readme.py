"""The README's programs run as they are written."""

import re
from pathlib import Path

import numpy as np
from toys import deployed, linear, opposite_groups, run

PROGRAMS = re.findall(r"```python\n(.*?)```", (Path(__file__).parent.parent / "README.md").read_text(), re.DOTALL)


def test_from_python(capsys):
    names = {}
    exec(PROGRAMS[0], names)
    assert names["scores"].before.test.mean() > 0.95
    weights = np.asarray(names["info"].weights[-1])
    pairs = np.arange(10)[:, None] % 5 == np.arange(10)[None] % 5
    assert weights[~pairs].max() < 0.01
    assert weights[pairs].min() > 0.4
    exec(PROGRAMS[1], names)
    assert names["ids"].shape == (5, 10)
    assert len(names["state"].clients.model["params"]["Dense_0"]["bias"].sharding.device_set) > 1


def test_a_new_algorithm():
    names = {}
    exec(PROGRAMS[2], names)
    algorithm = names["halfway"](linear(), own=0.25)
    state, info, _ = run(algorithm, opposite_groups(), 2)
    np.testing.assert_allclose(info.weights.sum(axis=-1), 1, atol=1e-6)
    np.testing.assert_allclose(np.diagonal(info.weights[-1]), 0.25 + 0.75 / 6, atol=1e-6)
    assert deployed(algorithm, state, 6)["params"]["Dense_0"]["bias"].shape == (6, 2)
