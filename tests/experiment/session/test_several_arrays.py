"""Runs of data whose inputs are several arrays, by a model of one's own."""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import pytest

import jaxfl
from jaxfl.cli import main
from jaxfl.core.errors import InputError
from jaxfl.models import MODELS

RNG = np.random.default_rng(0)
WORDS = RNG.integers(0, 9, (120, 3))
AGE = RNG.normal(size=(120, 2))
Y = (AGE[:, 0] > 0).astype(int)


class Both(nn.Module):
    """The mean of embedded words beside numbers, and a dense layer."""

    outputs: int
    vocabulary: dict

    @nn.compact
    def __call__(self, x):
        words = nn.Embed(self.vocabulary["words"][0], 4)(x["words"]).mean(axis=1)
        return nn.Dense(self.outputs)(jnp.concatenate([words, x["age"]], axis=1))


@pytest.fixture
def options(tmp_path, monkeypatch):
    """The options of a run of such data in the present folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(MODELS, "both", Both)
    arrays = {"x_train/words": WORDS, "x_train/age": AGE, "vocabulary/words": np.array([9])}
    np.savez("both.npz", **arrays, y_train=Y)
    data = ["--dataset", "both", "--data-dir", ".", "--clients", "3", "--rounds", "2"]
    return [*data, "--local-steps", "20", "--lr", "0.1"]


@pytest.mark.slow(seconds=15)
def test_a_run_learns_from_several_arrays_and_predicts(options, capsys):
    assert main(["run", "fedavg", "--model", "both", *options, "--out", "run"]) == 0
    run = jaxfl.load("run")
    x, y, _ = run.test(1)
    # The client's own rows of both arrays, side by side.
    for words, age, label in zip(x["words"], x["age"], y, strict=True):
        rows = np.flatnonzero(np.isclose(AGE, age).all(axis=1))
        assert WORDS[rows].tolist() == [words.tolist()]
        assert Y[rows].tolist() == [label]
    assert np.mean(run.predict(1, x) == y) > 0.8
    np.savez("new.npz", **{"x/words": x["words"], "x/age": x["age"], "y": y})
    capsys.readouterr()
    assert main(["predict", "run", "--client", "1", "--input", "new.npz"]) == 0
    assert f"accuracy: {np.mean(run.predict(1, x) == y):.4f}" in capsys.readouterr().out
    for wrong, words in (
        (x["age"], "the inputs are one array: expected a dict of the arrays age, words"),
        ({"age": x["age"]}, "the inputs are age: expected a dict of the arrays age, words"),
        (x | {"words": x["words"][:1]}, "have different numbers of examples"),
        (x | {"words": x["words"] + 9}, r"the inputs words hold ids outside -1 to \[8\]"),
        (x | {"age": x["words"]}, r"the inputs age have shape .* expected \(B, 2\)"),
    ):
        with pytest.raises(InputError, match=words):
            run.predict(1, wrong)


@pytest.mark.parametrize(
    ("further", "words"),
    [
        (
            [],
            "the data are the arrays age, words, and models of the library take one: give a",
        ),
        (["--model", "mlp"], "and models of the library take one: give a model of your own"),
        (["--model", "both", "--augment", "crop_flip"], "--augment and --pixels are of one array"),
        (["--model", "both", "--concept", "rotation"], "not examples of several arrays"),
    ],
)
def test_what_is_of_one_array_is_refused_in_one_line(options, further, words, capsys):
    assert main(["run", "fedavg", *options, *further, "--out", "run"]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
