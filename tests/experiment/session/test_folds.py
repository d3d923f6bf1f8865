"""Runs with folds: each fold is a run of its own data, and all are paired by seed and fold."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import close

import jaxfl
from jaxfl.cli import main
from jaxfl.core.errors import InputError
from jaxfl.data import federate
from jaxfl.data.partition import iid
from jaxfl.experiment import Config, resolve
from jaxfl.experiment.session.build import build
from jaxfl.experiment.session.gather import Data, gather
from jaxfl.experiment.session.run import execute
from jaxfl.experiment.session.run_program import START, one_seed
from jaxfl.experiment.session.seeds import Seeds

OPTIONS = {
    "clients": 3,
    "partition": "iid",
    "test": "own",
    "max_examples": 40,
    "model": "linear",
    "rounds": 2,
    "local_steps": 2,
    "score_after": "none",
}
WORDS = [word for name, value in OPTIONS.items() for word in (f"--{name}", str(value))]


def test_the_clients_of_a_run_are_those_of_each_fold_of_each_seed():
    data = gather(resolve(Config(**OPTIONS, seeds=2, folds=3)))
    source = jaxfl.data.load("digits")
    for place, (seed, fold) in enumerate([(s, f) for s in range(2) for f in range(3)]):
        parts = [rows[:40] for rows in iid(source.y_train, 3, seed)]
        alone = federate(source, parts, test="own", fold=(fold, 3))
        for of_run, of_fold in zip(data.federation, alone, strict=True):
            for client in range(3):
                counts = np.asarray(of_fold.mask[client]) > 0
                in_run = np.asarray(of_run.mask[place, client]) > 0
                assert in_run.sum() == counts.sum() > 0
                for name in ("x", "y"):
                    whole = np.asarray(getattr(of_run, name)[place])[client][in_run]
                    part = np.asarray(getattr(of_fold, name)[client])[counts]
                    np.testing.assert_array_equal(whole, part)


def test_the_folds_of_a_seed_follow_each_other_and_have_its_random_numbers():
    assert Seeds(4, 6, 3).numbers == [4, 4, 4, 5, 5, 5]
    assert Seeds(4, 2).numbers == [4, 5]


@pytest.mark.slow
def test_a_run_of_folds_is_scored_kept_and_predicted_by_fold(tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["run", "local", *WORDS, "--seeds", "2", "--folds", "3", "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "±: standard deviation over 3 folds of 2 seeds" in " ".join(text.split())
    run = jaxfl.load(out)
    assert len(run.summary["final"]["seeds"]) == 6
    scores = run.clients["deployed_test"][:, -1]
    means = [one["deployed"]["mean"] for one in run.summary["final"]["seeds"]]
    np.testing.assert_allclose(scores.mean(axis=1), means, rtol=1e-6)
    seen = []
    for fold in range(3):
        x, y, _ = run.test(1, seed=1, fold=fold)
        seen += x.reshape(len(x), -1).tolist()
        # The score of the fold is that of its model on its examples.
        accuracy = np.mean(run.predict(1, x, seed=1, fold=fold) == y)
        np.testing.assert_allclose(scores[3 + fold, 1], accuracy, rtol=1e-6)
    rows = iid(jaxfl.data.load("digits").y_train, 3, 1)[1][:40]
    expected = jaxfl.data.load("digits").x_train[rows].reshape(40, -1)
    assert sorted(seen) == sorted(expected.tolist())
    first = run.predict(1, x)
    np.testing.assert_array_equal(first, run.predict(1, x, seed=0, fold=0))
    with pytest.raises(InputError, match="fold is 3: expected one of 0, 1, 2"):
        run.predict(1, x, fold=3)
    np.savez(tmp_path / "new.npz", x=x)
    words = ["predict", str(out), "--input", str(tmp_path / "new.npz"), "--client", "1"]
    assert main([*words, "--fold", "2", "--seed", "1"]) == 0
    printed = capsys.readouterr().out.split()
    assert printed == list(map(str, run.predict(1, x, seed=1, fold=2)))


@pytest.mark.slow
def test_a_fold_is_the_run_that_it_would_be_alone(tmp_path):
    """The rounds of fold 1, in Python, with the key that the run derives from its seed."""
    config = Config(algorithm="fedavg", **OPTIONS)
    execute(dataclasses.replace(config, folds=2), tmp_path / "run")
    models = jax.tree.map(lambda x: x[1], jaxfl.load(tmp_path / "run").models)
    resolved = resolve(config)
    parts = [rows[:40] for rows in iid(resolved.source.y_train, 3, 0)]
    federation = federate(resolved.source, parts, test="own", fold=(1, 2))
    built = build(resolved, Data(resolved.source, [parts], federation))
    init, advance, deploy, _ = one_seed(built, built.algorithm, "none")
    seed = np.uint32(0)
    state, _ = advance(2, seed, federation, init(seed, federation), START)
    close(models, deploy(federation, state, jnp.arange(3)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": "global"}, "--folds is given without --test own, as a fold tests a client"),
        ({"test_fraction": 0.3}, "both --folds and --test-fraction are given: a fold is the part"),
        ({"store": "s", "keep_models": "none"}, "--store is given without --folds 1, as it runs"),
        ({"folds": 0}, "--folds is 0: expected a whole number from 1 to 1,000"),
        ({"folds": 41}, "client 0, 1, 2 holds fewer examples than the 41 folds"),
    ],
)
def test_folds_that_do_not_fit_are_refused_in_one_line(options, message):
    with pytest.raises(InputError, match=message) as refusal:
        gather(resolve(Config(**(OPTIONS | {"folds": 2} | options))))
    assert "\n" not in str(refusal.value)


def test_the_test_protocol_that_data_choose_may_be_none_for_folds():
    """Digits have no owners, so that their clients are tested on the whole test set."""
    options = {name: value for name, value in OPTIONS.items() if name != "test"}
    with pytest.raises(InputError, match="--folds is given without --test own"):
        resolve(Config(**options, folds=2))


@pytest.mark.slow
def test_each_fold_is_described(capsys):
    words = ["describe", "--clients", "3", "--partition", "iid", "--test", "own", "--folds", "4"]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "4, each example tests once; the counts are of fold 0" in text
    # Of 479 examples a quarter tests, and of the other 359 a fifth validates.
    lines = [line.replace("│", " ").split()[:4] for line in text.splitlines()]
    assert ["0", "288", "71", "120"] in lines
