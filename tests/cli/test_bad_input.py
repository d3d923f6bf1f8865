"""Bad input on the command line: one line of error, exit code 2, no traceback, nothing written.

A table of arguments and of words that the line must hold. The files that the rows name are made
once, by `FILES`.
"""

import io
import json
import re
import sys
import typing
from itertools import pairwise
from pathlib import Path

import jax
import numpy as np
import pytest
from finished_runs import LINE, SCORES, SUMMARY, write_run

from jaxfl.algorithms import ALGORITHMS
from jaxfl.cli import main
from jaxfl.cli.commands import COMMANDS
from jaxfl.core.options import takes_numbers
from jaxfl.experiment.config import Setting
from jaxfl.experiment.config.composite import FIELDS, KEEP, divided, option, typed
from jaxfl.experiment.config.fields import SEED
from jaxfl.experiment.config.hints import marked, notes_of
from jaxfl.experiment.config.notes import PATH

HUGE = "1" + 30 * "0"
DEEP = 100_000 * "["
LONG = "a." + 300 * "b"  # no system has files with such names


def npz(name, **changes):
    """A good data set of 40 examples with changes; an array that is changed to None is left out."""
    rng = np.random.default_rng(0)
    arrays = {"x_train": rng.random((40, 4), np.float32), "y_train": np.arange(40) % 4}
    arrays |= {"x_test": rng.random((8, 4), np.float32), "y_test": np.arange(8) % 4} | changes
    np.savez(name, **{key: array for key, array in arrays.items() if array is not None})


def with_value(value):
    x = np.random.default_rng(0).random((40, 4))
    x[3, 2] = value
    return x


def prepare():
    """All files that the table names, in the working directory."""
    sets = {
        "good": {},
        "nan": {"x_train": with_value(np.nan)},
        "one": {
            "x_train": np.zeros((1, 4)),
            "y_train": np.zeros(1, int),
            "y_test": np.zeros(8, int),
        },
        "one_class": {"y_train": np.zeros(40, int), "y_test": np.zeros(8, int)},
        "no_x": {"x_train": None},
        "numbers": {"y_train": np.linspace(0, 1, 40), "y_test": np.linspace(0, 1, 8)},
        "few_each": {"owners": np.arange(40)},
        "words_few": {
            "x_train": np.ones((40, 4), np.int32),
            "x_test": np.ones((8, 4), np.int32),
            "vocabulary": np.array([1]),
        },
        "tiny": {
            "x_train": np.zeros((40, 3, 3, 1), np.uint8),
            "x_test": np.zeros((8, 3, 3, 1), np.uint8),
        },
    }
    for name, changes in sets.items():
        npz(f"{name}.npz", **changes)
    Path("torn.npz").write_bytes(Path("good.npz").read_bytes()[:99])
    Path("folder.npz").mkdir()
    for name, x in {
        "text": np.full((20, 13), "a"),
        "flat": np.zeros(20),
        "missing": np.full((20, 13), np.nan),
        "infinite": np.full((20, 13), np.inf),
    }.items():
        Path("hearts", name).mkdir(parents=True)
        np.savez(
            f"hearts/{name}/heart_disease.npz", x=x, y=np.arange(20) % 2, hospital=np.arange(20) % 2
        )
    configs = {
        "text": "rounds: 3",
        "nothing": "",
        "null": "null",
        "list": "[1, 2]",
        "torn": '{"algorithm": "fedavg", ',
        "deep": DEEP,
        "deep_hyper": '{"algorithm": "fedavg", "hyper": ' + 100_000 * '{"a": ',
        "nameless": '{"rounds": 3}',
        "number": '{"algorithm": 1}',
        "path": '{"algorithm": "../../x"}',
        "field": '{"algorithm": "fedavg", "round": 3}',
        "private": '{"algorithm": "fedavg", "__class__": 3}',
        "type": '{"algorithm": "fedavg", "rounds": "three"}',
        "true": '{"algorithm": "fedavg", "rounds": true}',
        "float": '{"algorithm": "fedavg", "rounds": 2.0}',
        "null_rounds": '{"algorithm": "fedavg", "rounds": null}',
        "nan": '{"algorithm": "fedavg", "lr": NaN}',
        "inf": '{"algorithm": "fedavg", "lr": 1e400}',
        "huge": f'{{"algorithm": "fedavg", "lr": 1{400 * "0"}}}',
        "digits": f'{{"algorithm": "fedavg", "rounds": 1{5000 * "0"}}}',
        "negative": '{"algorithm": "fedavg", "rounds": -1}',
        "choice": '{"algorithm": "fedavg", "test": "none"}',
        "devices": '{"algorithm": "fedavg", "devices": "three"}',
        "set": '{"algorithm": "fedavg", "dataset": "../good"}',
        "set_list": '{"algorithm": "fedavg", "dataset": ["digits"]}',
        "zero_byte": '{"algorithm": "fedavg", "dataset": "a\\u0000b"}',
        "zero_folder": '{"algorithm": "fedavg", "dataset": "a", "data_dir": "a\\u0000\\nb"}',
        "hyper_list": '{"algorithm": "pfedgraph", "hyper": [1]}',
        "hyper_name": '{"algorithm": "pfedgraph", "hyper": {"alhpa": 1}}',
        "hyper_object": '{"algorithm": "pfedgraph", "hyper": {"alpha": {"a": 1}}}',
        "steps": '{"algorithm": "fedavg", "local_steps": 1, "local_epochs": 1}',
        "malicious": '{"algorithm": "fedavg", "attack": "gauss", "attack_ratio": 0.2, '
        '"malicious": [1]}',
        "ids": '{"algorithm": "fedavg", "attack": "gauss", "malicious": ["one"]}',
        "label_number": '{"algorithm": "fedavg", "label": 3}',
        "label": '{"algorithm": "fedavg", "label": "a\\nb"}',
    }
    for name, text in configs.items():
        Path(f"{name}.json").write_text(text)
    Path("bytes.json").write_bytes(b"\xff\xfe\x00")
    Path("loop").symlink_to("loop")
    Path("held").mkdir()
    Path("held/config.json").write_text("{}")
    Path("swept").mkdir()
    Path("swept/sweep.json").write_text("{}")
    Path("compared/local").mkdir(parents=True)
    Path("compared/local/summary.json").write_text("{}")
    runs = {
        "good": {},
        "bare": {"summary": '{"algorithm": 1}'},
        "text": {"summary": "hello"},
        "deep": {"summary": DEEP},
        "nan": {"summary": {"seconds": float("nan")}},
        "nameless": {"summary": {"algorithm": 1}},
        "markup": {"summary": {"algorithm": "[red]a\n|b"}},
        "label": {"summary": {"label": "[red]a\n|b"}},
        "unseen": {"summary": {"unseen": {"deployed": 1}}},
        "time": {"summary": {"time": "late"}},
        "target": {"summary": {"target": {"round": "soon"}}},
        "numeric": {"summary": {"target": 3}},
        "measure": {"summary": {"measure": ["accuracy"]}},
        "up": {"summary": {"up": "many"}},
        "score": {"summary": {"final": {"deployed": SCORES | {"mean": "high"}}}},
        "inf": {"summary": json.dumps(SUMMARY).replace("0.5", "1e400")},
        "lines": {"lines": "[1]\n"},
        "torn": {"lines": json.dumps(LINE)[:40]},
        "rounds": {"lines": json.dumps(LINE | {"round": "one"})},
        "scores": {"lines": json.dumps(LINE | {"deployed": {}})},
    }
    for name, content in runs.items():
        write_run(f"runs/{name}", **content)
    write_run("rmse", {"measure": "rmse"})
    comparisons = {
        "numbers": "[1]",
        "object": '{"a": 1}',
        "deep": DEEP,
        "list": '[{"algorithm": ["a"]}]',
        "directory": '[{"algorithm": "a", "directory": ["a"]}]',
        "above": '[{"algorithm": "a", "directory": "../../good", "run": "a"}]',
    }
    for name, text in comparisons.items():
        write_run(f"tables/{name}/fedavg")
        Path(f"tables/{name}/comparison.json").write_text(text)


IID = ["--partition", "iid"]
RUN = ["run", "fedavg"]
HYPER = ["run", "pfedgraph", "--hyper"]
DATA = ["--data-dir", "."]
SWEEP = ["sweep", "pfedgraph", "--over"]

NAMES = [
    (["run", "fedavgg"], "unknown algorithm 'fedavgg': did you mean fedavg"),
    (
        ["run", "fedavg", "--dirichlet", "0.3"],
        "did you mean --partition dirichlet:beta=VALUE?",
    ),
    (["run", "fedavg", "--epochs", "3"], "did you mean --local-epochs?"),
    (["report", "x", "--learning-rate", "3"], "see jaxfl report --help"),
    (["run", "fedavg", "--lam", "3"], "it is a hyper-parameter, did you mean --hyper lam=VALUE?"),
    (["run", "FedAvg"], "did you mean fedavg?"),
    (["run", "pFedGraph"], "unknown algorithm 'pFedGraph': did you mean pfedgraph?"),
    (["run", "fedavg-ft"], "unknown algorithm 'fedavg-ft': did you mean fedavg_ft?"),
    (["run", "FEDPRR"], "did you mean fedper"),
    (["run", "zzz"], f"unknown algorithm 'zzz': choose from {', '.join(sorted(ALGORITHMS))}"),
    (["run", "../x"], "unknown algorithm '../x': choose from"),
    (["run", "a\0b"], r"unknown algorithm 'a\x00b'"),
    (["run"], "no algorithm: name one"),
    (["compare", "--algorithms", "local", "pfedgraf"], "did you mean pfedgraph"),
    (["compare", "local", "pfedgraf"], "did you mean pfedgraph"),
    (["compare", "local", "--algorithms", "fedavg"], "--algorithms is given twice"),
    (["compare", "--algorithms", "local,fedavg"], "separate algorithms by spaces"),
    (["compare", "--algorithms", "local", "../x"], "unknown algorithm '../x'"),
    (["compare", "--algorithms", "local", "local"], "'local' is named twice"),
    (["compare", "--algorithms", "ditto:lam=1", "ditto:lam=1"], "'ditto:lam=1' is named twice"),
    (["compare", "--algorithms", "ditto:lam=1", "ditto:Lam=1"], "Lam"),
    (["compare", "--algorithms", "local", "dito:lam=1"], "unknown algorithm 'dito': did you mean"),
    (["compare", "--algorithms", "ditto:"], "'ditto:': expected ALGORITHM:KEY=VALUE"),
    (["compare", "--algorithms", "ditto:lam"], "hyper-parameter 'lam': expected KEY=VALUE"),
    (["compare", "--algorithms", "ditto:lam=1,lam=2"], "'lam' is given twice"),
    (["compare", "--algorithms", "ditto:mu=1"], "unknown hyper-parameter of ditto 'mu'"),
    (["compare", "--algorithms", "ditto:lam=-1"], "lam of ditto is -1: expected a non-negative"),
    (["compare", "--algorithms", "ditto:lam=\x1b"], r"lam of ditto is '\x1b': expected"),
    ([*RUN, "--optimizer", "adm"], "unknown optimizer 'adm': did you mean adam"),
    ([*RUN, "--schedule", "cosin"], "unknown schedule 'cosin': did you mean cosine"),
    (["compare", "--algorithms"], "no algorithms: name some"),
    (["compare", "--algorithms", "local", "--algorithms", "fedavg"], "--algorithms is given twice"),
    (
        ["compare", "--equal-budget", "--local-epochs", "1"],
        "give --local-steps in place of --local-epochs",
    ),
    (["sweep", "fedavgg", "--over", "lr=1"], "did you mean fedavg"),
    ([*RUN, "--partition", "dirichelt"], "unknown partition 'dirichelt': did you mean dirichlet"),
    ([*RUN, "--partition", "../x"], "unknown partition '../x': choose from"),
    ([*RUN, "--concept", "rotations"], "unknown concept 'rotations': did you mean rotation"),
    ([*RUN, "--model", "mpl"], "unknown model 'mpl': did you mean mlp"),
    ([*RUN, "--model", ""], "unknown model '': choose from"),
    ([*RUN, "--augment", "flip"], "unknown augment 'flip': "),
    ([*RUN, "--preset", "pfedgraph-sever"], "unknown preset 'pfedgraph-sever': "),
    ([*RUN, "--preset", "pfedgraph-severe", "--config", "c.json"], "both --config and --preset"),
    ([*RUN, "--attack", "shufle"], "unknown attack 'shufle': did you mean shuffle"),
    (["describe", "--partition", "dirichelt"], "did you mean dirichlet"),
    (["describe", "--dataset", "digit"], "did you mean digits"),
]

COMMAND_LINES = [
    (["rnu", "fedavg"], "unknown command 'rnu': did you mean run?"),
    (["fly"], "unknown command 'fly': choose from cite, compare, describe"),
    (["--completion"], "--completion takes one value: bash, fish or zsh"),
    (["--completion", "zhs"], "unknown shell 'zhs': did you mean zsh?"),
    (["--completion", "tcsh2", "x"], "--completion takes one value"),
    (["list", "zzz"], "unknown kind or name 'zzz': see `jaxfl list`"),
    (["list", "algorithm"], "unknown kind or name 'algorithm': did you mean algorithms?"),
    (["list", "pFedGraf"], "did you mean pfedgraph"),
    (["list", "../x"], "unknown kind or name '../x'"),
    (["prepare"], "Missing from jaxfl prepare: NAME: see"),
    (["cite", "pfedgrap"], "did you mean pfedgraph"),
    (["predict", "nowhere", "--inptu", "x.npz"], "'--inptu': did you mean --input?"),
    (["predict", "nowhere"], "Missing from jaxfl predict: --input"),
    (["predict", "nowhere", "--input", "x.npz"], "nowhere holds no finished run"),
    ([*RUN, "again"], "unexpected again: see jaxfl run --help"),
    ([*RUN, "--roundz", "3"], "unknown option of jaxfl run '--roundz': did you mean --rounds?"),
    ([*RUN, "--no-lr"], "unknown option of jaxfl run '--no-lr': see jaxfl run --help"),
    (["resume", "x", "--lr", "3"], "jaxfl resume takes no --lr: it is an option of jaxfl run, "),
    (["cite", "--plugin=x.py"], "jaxfl cite takes no --plugin: it is an option of jaxfl run, "),
    (["--plugin", "x.py", "run", "fedavg"], "--plugin stands before the command: expected jaxfl"),
    ([*RUN, "--xyz"], "unknown option of jaxfl run '--xyz': see jaxfl run --help"),
    ([*RUN, "-x"], "unknown option of jaxfl run '-x': see jaxfl run --help"),
    ([*RUN, "--overwrite=yes"], "unexpected yes: --overwrite takes no value"),
    ([*RUN, "--overwrite", "yes"], "unexpected yes: --overwrite takes no value"),
    ([*RUN, "--", "3"], "unexpected 3: see jaxfl run --help"),
    ([*RUN, "--seeds", "0", "1", "2"], "unexpected 1, 2: --seeds takes one value"),
    ([*RUN, "--lr=.1", ".5"], "unexpected .5: --lr takes one value"),
    (
        [*RUN, "--rounds", "many"],
        "--rounds is many: expected a whole number from 1 to 1,000,000\n",
    ),
    ([*RUN, "--rounds", "1.5"], "--rounds is 1.5: expected a whole number from 1 to 1,000,000"),
    ([*RUN, "--rounds", "1e400"], "--rounds is 1e400: expected a whole number"),
    ([*RUN, "--rounds", 5000 * "1"], f"--rounds is {80 * '1'}: expected a whole number"),
    ([*RUN, "--lr", "fast"], "--lr is fast: expected a non-negative number"),
    ([*RUN, "--lr=fast"], "--lr is fast: expected a non-negative number"),
    ([*RUN, "--local_steps", "x"], "--local-steps is x: expected a whole number"),
    (
        [*RUN, "--attack", ":clients=a+1"],
        "clients of --attack is ('a', 1): expected a list, each a non-negative",
    ),
    ([*RUN, "--test", "none"], "--test is none: expected one of reweighted, own, global"),
    ([*RUN, "--chunk", "some"], "from 1 to 1,000,000 or one of auto, all"),
    (["report", "x", "--format", "jpg"], "--format is jpg: expected a list, each one of md, "),
    ([*RUN, "--out", "new", "--config"], "Missing value for argument '--config'"),
    ([*RUN, "--out", "-x"], "Missing value for argument '--out': expected --out PATH"),
    (
        [*RUN, "--out", "new", "--plugin"],
        "Missing value for argument '--plugin': expected --plugin PATH",
    ),
    ([*RUN, "--out"], "Missing value for argument '--out'"),
    ([*RUN, "--join", "x:1"], "--join is x:1: expected HOST:PORT:processes=NUMBER,process=NUMBER"),
    ([*RUN, "--join", ":processes=2"], "--join has no value: expected HOST:PORT"),
    ([*RUN, "--join", "cluster:process=0"], "--join cluster takes the processes from the cluster"),
    ([*RUN, "--join", "cluster:timeout=0"], "timeout of --join is 0: expected"),
    ([*RUN, "--join", "cluster"], "no cluster says which processes run together"),
    ([*RUN, "--join", "x:processes=2,process=0"], "expected HOST:PORT"),
    ([*RUN, "--join", "x:y:processes=2,process=0"], "expected HOST:PORT"),
    ([*RUN, "--join", "x:1:processes=2,process=2"], "process 2 of 2 processes: expected"),
    ([*RUN, "--join", "x:1:processes=0,process=0"], "processes of --join is 0: expected"),
    ([*RUN, "--attack", "gauss:ratio"], "unknown attack 'gauss:ratio'"),
    ([*RUN, "--attack", "gauss:rate=.1"], "unknown key of --attack 'rate': did you mean ratio"),
    ([*RUN, "--attack", "gauss:ratio=.1,ratio=.2"], "ratio of --attack is given twice"),
    ([*RUN, "--keep", "model=none"], "unknown key of --keep 'model': did you mean models"),
    ([*RUN, "--keep", "none"], "--keep 'none': expected KEY=VALUE, KEY one of models, weights, "),
    ([*RUN, "--attack-ratio", ".1"], "did you mean --attack VALUE:ratio=VALUE?"),
    ([*RUN, "--keep-models", "none"], "did you mean --keep models=VALUE?"),
]


def words_of(name, value):
    """The words for a field, which may be typed behind another option."""
    return [*next(iter(typed({name: value}).items()))]


COUNTS = ["keep_checkpoints", "checkpoint_every", "keep_models", "stop_after", "folds", "rounds"]
COUNTS += ["eval_every", "seeds", "clients", "max_examples", "classes_per_client", "batch_size"]
COUNTS += ["local_steps", "local_epochs", "chunk", "devices", "decay_every", "smallest"]
COUNTS += ["concept_groups", "top_edges"]
SEEDS = [name for name, notes in notes_of(Setting).items() if SEED in notes]
FRACTIONS = ["val", "test_fraction", "momentum", "attack_ratio", "unseen", "least_work", "drop"]
NUMBERS = [
    *[
        ([*RUN, *words_of(name, v)], f"{option(name)} is {v}: expected a whole number from 1 to")
        for name in COUNTS
        for v in ["0", HUGE]
    ],
    *[
        ([*RUN, *words_of(name, v)], f"{option(name)} is")
        for name in FRACTIONS
        for v in ["nan", "-1", "1"]
    ],
    *[
        ([*RUN, *words_of(name, v)], f"{option(name)} is")
        for name in ("lr", "weight_decay")
        for v in ["nan", "inf", "-1", "1e400"]
    ],
    *[
        ([*RUN, "--partition", f"dirichlet:beta={v}"], "expected a positive number")
        for v in ["nan", "0"]
    ],
    *[
        ([*RUN, *words_of(name, v)], "expected a fraction in (0, 1]")
        for name in ("participation", "decay", "top_k")
        for v in ["nan", "0", "1.01"]
    ],
    ([*RUN, "--model", "mlp:side=0"], "expected a whole number from 1 to"),
    ([*RUN, "--lora", "0", "--pretrained", "w.npz"], "expected a whole number from 1 to"),
    *[
        ([*RUN, "--keep", f"weights={v}"], "expected a whole number from 1 to 1,000,000 or one of")
        for v in ("0", "none")
    ],
    ([*RUN, "--partition", "nodes:nodes=2"], "expected a whole number from 3 to 5"),
    *[
        (
            [*RUN, *words_of(name, v)],
            f"{option(name)} is {v}: expected a whole number of at least 0",
        )
        for name in SEEDS
        for v in ["-1", HUGE]
    ],
    *[
        ([*RUN, *words_of(name, v)], f"{option(name)} is")
        for name in ("clip", "example_clip", "attack_scale")
        for v in ["nan", "inf", "0"]
    ],
    *[
        ([*RUN, *words_of(name, v)], f"{option(name)} is")
        for name in ("noise", "example_noise", "feature_noise")
        for v in ["nan", "inf", "-1"]
    ],
    *[
        ([*RUN, f"--{name}", "1e30:noise=1e10"], f"noise of --{name} is 1e+10 times 1e+30, which")
        for name in ("clip", "example-clip")
    ],
    *[([*RUN, "--clip", f"1:noise=1,delta={v}"], "delta of --clip is") for v in ["nan", "0", "1"]],
    *[
        ([*RUN, "--stragglers", v], f"--stragglers is {float(v)}: expected a fraction in [0, 1]")
        for v in ["nan", "-1", "1.1"]
    ],
    *[
        ([*RUN, "--speeds", v], f"--speeds is {float(v)}: expected a number in [0, 10]")
        for v in ["nan", "-1", "11"]
    ],
    *[([*RUN, "--target", v], f"--target is {float(v)}: expected") for v in ["nan", "0", "2"]],
    ([*RUN, "--seed", "3000000000"], "--seed is 3000000000: expected a whole number of at least 0"),
    (
        [*RUN, "--seed", "2147483647", "--seeds", "2"],
        "--seed is 2147483647: expected 2 numbers below 2^31 from there",
    ),
    ([*RUN, "--devices", "99"], "99 devices asked for: JAX has"),
    ([*RUN, "--clients", "2000", *IID], "--clients is 2000: digits has 1437 training examples"),
]

FITS = [
    ([*RUN, "--local-steps", "1", "--local-epochs", "1"], "both --local-steps and --local-epochs"),
    (
        [*RUN, "--test", "own", "--val", "0.5", "--test-fraction", "0.5"],
        "expected fractions that leave some to train",
    ),
    (
        [*RUN, "--attack", "shuffle:ratio=0.01"],
        "ratio of --attack is 0.01, which of ",
    ),
    (
        [*RUN, "--attack", "shuffle:ratio=0.99"],
        "expected a fraction that leaves benign clients",
    ),
    ([*RUN, "--partition", ":classes=3"], "3 classes a client do not divide 10 classes"),
    ([*RUN, "--clients", "7"], "2 classes a client do not divide 10 classes among 7 clients"),
    ([*RUN, "--partition", "shards", "--clients", "1000"], "1000 clients with 2 shards each"),
    (
        [*RUN, "--partition", "nodes", "--clients", "2"],
        "2 clients for 5 nodes: expected at least one a node",
    ),
    ([*RUN, "--partition", "natural"], "name no owners: choose another partition"),
    (
        [*RUN, "--model", "textcnn"],
        "model textcnn takes names of words or users, the data hold numbers",
    ),
    ([*RUN, "--model", "mf"], "model mf takes names of words or users"),
    ([*RUN, "--dataset", "good", *DATA, "--pixels", "unit"], "--pixels unit takes images of bytes"),
    (
        [*RUN, "--score-after", "trained", "--participation", "0.5"],
        "--score-after trained is given without --eval-on participants or --participation 1, as",
    ),
    (
        [*RUN, "--dataset", "good", *DATA, "--augment", "crop_flip"],
        "crop_flip takes images, not (4,)",
    ),
    (
        [*RUN, "--dataset", "tiny", "--model", "cnn", *IID, *DATA],
        "cnn takes images of 4x4 or more, not 3x3",
    ),
    (
        [*RUN, "--dataset", "good", "--model", "cnn", *IID, *DATA],
        "cnn takes images [h, w, channel]",
    ),
    (
        [*RUN, "--dataset", "good", *DATA, "--partition", "nodes"],
        "which the data lack: choose another data set",
    ),
    (
        [*RUN, "--dataset", "numbers", *DATA, "--partition", "dirichlet"],
        "choose partition iid or natural",
    ),
    ([*RUN, "--dataset", "numbers", *DATA, "--test", "reweighted"], "choose test own or global"),
    ([*RUN, "--dataset", "one", *DATA], "--clients is 10: one has 1 training examples"),
    ([*RUN, "--dataset", "one_class", *DATA], "2 classes a client do not divide 1 classes"),
    (
        [*RUN, "--dataset", "few_each", *DATA],
        "no owner has 10 examples or more: give a lower number (smallest=1, "
        "--partition natural:least=1)",
    ),
    (["describe", "--partition", ":classes=3"], "3 classes a client do not divide 10 classes"),
    ([*RUN, "--concept", "rotation:groups=3"], "expected 2 or 4"),
    (
        ["describe", "--dataset", "good", *DATA, *IID, "--concept", "rotation"],
        "concept rotation takes images",
    ),
    (
        ["describe", "--dataset", "numbers", *DATA, *IID, "--concept", "swapped_labels"],
        "these targets are numbers",
    ),
    ([*RUN, "--merge-test", "--test", "global"], "no test set for test global: choose test own"),
    ([*RUN, "--partition", "owner_groups"], "name no owners: choose another partition"),
    ([*RUN, "--partition", "superclasses"], "no superclasses: choose another partition"),
    (
        [*RUN, "--dataset", "few_each", *DATA, "--partition", "owner_groups", "--merge-test"],
        "cannot be merged with them: leave out --merge-test",
    ),
    ([*RUN, "--clip", ":noise=1"], "noise of --clip is given without --clip, its unit: give both"),
    (
        [*RUN, "--store", "x", "--keep", "models=none", "--seeds", "2"],
        "--store is given without --seeds 1, as it runs one seed after the other: give both",
    ),
    ([*RUN, "--store", "x"], "--store is given without --keep models=none, as models.npz would"),
    ([*RUN, "--clip", "1", "--example-clip", "1"], "both --clip and --example-clip are given"),
    (
        [*RUN, "--dataset", "numbers", *DATA, *IID, "--attack", "label_flip"],
        "flips labels, numbers has none",
    ),
    (["resume", "."], ". holds no run to resume: resume held in it"),
    (["resume", "good.npz"], "good.npz holds no run to resume"),
    (["resume", "nowhere", "--devices", "0"], "nowhere holds no run to resume"),
]

ATTACKED = [*RUN, *IID, "--attack", "gauss", "--clients", "3"]
CLIENTS = [
    (
        [*ATTACKED, "--attack", ":clients=0+3"],
        "clients of --attack are 0 3: expected ids of the 3 clients",
    ),
    ([*ATTACKED, "--attack", ":clients=0+-1"], "expected a list, each a non-negative whole number"),
    ([*ATTACKED, "--attack", ":clients=0+1+0"], "name a client twice (0 1 0): name each id once"),
    ([*ATTACKED, "--attack", ":clients=0+1+2"], "are all 3 clients: leave at least one benign"),
    ([*ATTACKED, "--attack", ":clients="], "--attack 'clients=': expected KEY=VALUE"),
    ([*ATTACKED, "--attack", ":clients=a"], "clients of --attack is ('a',): expected a list"),
    (
        [*ATTACKED, "--attack", ":clients=0", "--attack", ":clients=1"],
        "clients of --attack is given twice",
    ),
    (
        [*ATTACKED, "--attack", ":clients=0,ratio=0.4"],
        "both clients of --attack and ratio of --attack are given",
    ),
    (
        [*ATTACKED, "--attack", ":clients=0,seed=0"],
        "both clients of --attack and seed of --attack are given",
    ),
    ([*ATTACKED, "--unseen", "0.7"], "leaves at least one of the 2 benign clients for the rounds"),
    ([*ATTACKED, "--unseen", "0.3", "--score-after", "trained"], "those of --unseen are in none"),
    ([*RUN, "--clients", "1", *IID, "--unseen", "0.1"], "at least one of the 1 benign clients"),
]

IDLE = [
    (
        [*RUN, "--attack", ":clients=1+2"],
        "clients of --attack is 1 2, and has no effect without --attack",
    ),
    (
        [*RUN, "--clip", "1:delta=1e-3"],
        "has no effect without noise of --clip or noise of --example-clip",
    ),
    (["describe", "--partition", ":beta=0.1"], "has no effect without --partition dirichlet"),
    (
        [*SWEEP, "beta=0.1,0.2"],
        "beta of --partition is 0.1, and has no effect without --partition dirichlet",
    ),
]

HYPER_PARAMETERS = [
    ([*RUN, "--hyper", "alpha=1"], "fedavg has no hyper-parameter 'alpha': it has none at all"),
    ([*HYPER, "alhpa=1"], "unknown hyper-parameter of pfedgraph 'alhpa': did you mean alpha"),
    ([*HYPER, "../x=1"], "unknown hyper-parameter of pfedgraph '../x'"),
    ([*HYPER, "alpha"], "expected KEY=VALUE"),
    ([*HYPER, "=1"], "expected KEY=VALUE"),
    ([*HYPER, "alpha=1", "alpha=2"], "given twice"),
    ([*HYPER, "alpha=1", "--hyper", "lam=1"], "--hyper is given twice"),
    *[
        ([*HYPER, f"alpha={v}"], "expected a positive number or none")
        for v in ("high", "", "true", "[]", "{}", "NaN", DEEP)
    ],
    *[
        ([*HYPER, f"alpha={v}"], "finite and within 32 bits")
        for v in ("1e400", "1e300", HUGE, "1" + 400 * "0")
    ],
    ([*HYPER, "alpha=1" + 5000 * "0"], "expected a positive number or none"),
    ([*HYPER, "alpha=0"], "alpha of pfedgraph is 0: expected a positive number or none"),
    *[
        (
            ["run", "gfed", "--hyper", f"servers={v}"],
            f"servers of gfed is {v}: expected a whole number from 1 to",
        )
        for v in ("-1", "100000000")
    ],
    (
        ["run", "fedrep", "--hyper", "head_epochs=100000000"],
        "expected a whole number from 1 to 10,000",
    ),
    ([*HYPER, "anchor=cosin"], "expected one of cosine, approx"),
    (
        ["run", "general_graph", "--hyper", "cap=0"],
        "cap of general_graph is 0: expected a positive number or none",
    ),
    ([*HYPER, "layers=1"], "hyper-parameter layers of pfedgraph is 1: expected text"),
    ([*HYPER, "layers=("], "'(' is no regular expression"),
    ([*HYPER, "layers=zzz"], "no layer matches 'zzz': choose from params/Dense_0/bias"),
    (["compare", "--hyper", "alfa=1"], "unknown hyper-parameter 'alfa': did you mean alpha"),
    (["compare", "--hyper", "pfedgraph.alfa=1"], "of pfedgraph 'alfa': did you mean alpha"),
    (["compare", "--hyper", "pfedgraf.alpha=1"], "unknown algorithm 'pfedgraf': did you mean"),
    (["compare", "--hyper", "ditto.lam=1"], "'ditto.lam' is for ditto, which is not compared"),
    ([*HYPER, "pfedgraph.alpha=1"], "unknown hyper-parameter of pfedgraph 'pfedgraph.alpha'"),
    (
        ["compare", "--hyper", "alpha=high"],
        "hyper-parameter alpha of pfedgraph is 'high': expected a positive number",
    ),
]

SWEEPS = [
    (["sweep", "pfedgraph"], "nothing to vary: give --over"),
    ([*SWEEP, "alpha=1", "--over", "lam=1"], "--over is given twice"),
    ([*SWEEP, "alpha=0:1"], "alpha: a range needs --trials"),
    *[
        ([*SWEEP, f"alpha={text}", "--trials", "2"], "is no range: expected LOW:HIGH")
        for text in ("0:inf", "-inf:1", "nan:1", "2:1", "0:1:log", "1:2:3:4")
    ],
    (
        [*SWEEP, "alpha=1", "--trials", "-1"],
        "--trials is -1: expected a whole number from 1 to 1,000,000",
    ),
    ([*SWEEP, "alpha=1", "--trials", HUGE], "expected a whole number from 1 to 1,000,000"),
    (
        [*SWEEP, "alpha=1,,2"],
        "hyper-parameter alpha of pfedgraph is '': expected a positive number",
    ),
    ([*SWEEP, "alpha=NaN"], "expected a positive number or none"),
    ([*SWEEP, "rounds=0"], "--rounds is 0: expected a whole number from 1 to 1,000,000"),
    ([*SWEEP, "rounds=x"], "--rounds is 'x': expected a whole number"),
    ([*SWEEP, f"seed={HUGE}"], "expected a whole number of at least 0 and below 2^31"),
    ([*SWEEP, "dataset=../good"], "unknown data set '../good'"),
    ([*SWEEP, "algorithm=local"], "unknown hyper-parameter of pfedgraph 'algorithm'"),
    ([*SWEEP, "out=x"], "unknown hyper-parameter of pfedgraph 'out'"),
    ([*SWEEP, "alpha=1", "--hyper", "x=1"], "unknown hyper-parameter of pfedgraph 'x'"),
    ([*SWEEP, "alpha=1", "--out", "swept"], "swept already holds a run (sweep.json)"),
]

DATA_FILES = {
    "nan": "x_train of nan.npz holds 1 NaN or infinite values",
    "no_x": "no_x.npz lacks x_train",
    "words_few": "x_train of words_few.npz holds ids outside -1 to [0]",
    "torn": "cannot read torn.npz as plain npz arrays",
    "folder": "cannot read folder.npz as plain npz arrays",
}
DATA_SETS = [
    *[([*RUN, "--dataset", name, *DATA], message) for name, message in DATA_FILES.items()],
    *[
        (
            [*RUN, "--dataset", "heart_disease", "--data-dir", f"hearts/{name}"],
            "expected real numbers [patients, 13]",
        )
        for name in ("text", "flat", "missing", "infinite")
    ],
    (["describe", "--dataset", "nan", *DATA], "x_train of nan.npz holds 1 NaN"),
    ([*RUN, "--dataset", "digit"], "unknown data set 'digit': did you mean digits"),
    *[
        ([*RUN, "--dataset", name, *DATA], "unknown data set")
        for name in (
            "../good",
            "..",
            ".",
            "",
            "a/b",
            "./good",
            "good.npz",
            "/etc/passwd",
            "a\0b",
            "a\nb",
            "*",
        )
    ],
    (
        [*RUN, "--dataset", "cifar10"],
        "get it with `jaxfl prepare cifar10 --data-dir DIR`, and give the same DIR",
    ),
    (
        [*RUN, "--dataset", "movielens/1m-ratings", *DATA],
        "`jaxfl prepare movielens/1m-ratings --data-dir",
    ),
    ([*RUN, "--dataset", "good", "--data-dir", "none"], "the data folder none does not exist"),
    (
        [*RUN, "--dataset", "good", "--data-dir", "good.npz"],
        "the data folder good.npz does not exist or is not a folder",
    ),
    (["list", "--data-dir", "none"], "the data folder none does not exist"),
    (["list", "datasets", "--data-dir", "a\0b"], r"the data folder a\x00b does not exist"),
    (["prepare", "mnist"], "no folder to write to: give --data-dir DIR or set JAXFL_DATA_DIR"),
    (
        ["prepare", "yahoo_answers", *DATA],
        "expected train.csv and test.csv, as published, in yahoo_answers_csv",
    ),
    (
        ["prepare", "yahoo_answers", "--data-dir", "new/folder"],
        "the files of yahoo_answers were not found: expected train.csv",
    ),
    *[
        (["prepare", name, *DATA], "is not the name of a data set: expected letters, digits")
        for name in (
            "../escape",
            "..",
            ".",
            "",
            "/etc/passwd",
            "a/../b",
            "a//b",
            "a/",
            "a\0b",
            "a b",
            300 * "a",
        )
    ],
    (["prepare", "digits", *DATA], "digits is embedded: --dataset digits needs no preparation"),
    (["prepare", "mnist", "--data-dir", "text.json"], "cannot make the data folder text.json"),
    (["prepare", "mnist", "--data-dir", "text.json/x"], "cannot make the data folder text.json/x"),
    (["prepare", "mnist", "--data-dir", "a\0b"], r"cannot make the data folder a\x00b"),
    (["prepare", "mnist", *DATA, "--words", "0"], "words is 0"),
    (["prepare", "mnist", *DATA, "--length", "-1"], "length is -1: expected a positive number"),
    (["prepare", "mnist", *DATA, "--length", HUGE], "expected at most 100,000 ids of a text"),
    (
        ["prepare", "mnist", *DATA, "--tfds-manual-dir", "nowhere"],
        "nowhere of files downloaded by hand does not exist",
    ),
]

CONFIG_FILES = {
    "nowhere": "cannot read nowhere.json as a config",
    "bytes": "cannot read bytes.json as a config",
    "text": "cannot read text.json as a config",
    "nothing": "cannot read nothing.json as a config",
    "torn": "cannot read torn.json as a config",
    "deep": "cannot read deep.json as a config (it is nested too deeply)",
    "deep_hyper": "it is nested too deeply",
    "null": "null.json is no config: expected a JSON object",
    "list": "list.json is no config",
    "nameless": "expected a JSON object with at least an algorithm",
    "number": "number.json is no config",
    "path": "unknown algorithm '../../x'",
    "field": "unknown field in field.json 'round': did you mean rounds",
    "private": "unknown field in private.json '__class__'",
    "type": "rounds in type.json is 'three': expected a whole number",
    "true": "rounds in true.json is True: expected a whole number",
    "float": "rounds in float.json is 2.0: expected a whole number",
    "null_rounds": "rounds in null_rounds.json is None: expected a whole number",
    "nan": "cannot read nan.json as a config (NaN is no JSON)",
    "inf": "lr in inf.json is inf: expected a non-negative number, finite",
    "huge": "expected a non-negative number, finite and within 32 bits",
    "digits": "cannot read digits.json as a config",
    "negative": "rounds in negative.json is -1: expected a whole number from 1 to",
    "choice": "test in choice.json is 'none': expected one of",
    "devices": "devices in devices.json is 'three': expected a whole number from 1 to 1,024 or",
    "set": "unknown data set '../good'",
    "set_list": "dataset in set_list.json is ['digits']: expected text",
    "zero_byte": r"unknown data set 'a\x00b'",
    "zero_folder": r"the data folder a\x00\nb does not exist",
    "malicious": "both clients of --attack and ratio of --attack are given: name the malicious",
    "ids": "malicious in ids.json is ('one',): expected a list, each a non-negative whole number",
    "label_number": "label in label_number.json is 3: expected text or none",
    "label": "label is 'a\\nb': expected 1 to 100 letters that can be printed",
    "hyper_list": "hyper in hyper_list.json is [1]: expected an object",
    "hyper_name": "did you mean alpha",
    "hyper_object": "hyper-parameter alpha of pfedgraph is {'a': 1}: expected a positive number",
    "steps": "both --local-steps and --local-epochs",
}
CONFIGS = [
    *[(["run", "--config", f"{name}.json"], message) for name, message in CONFIG_FILES.items()],
    (["run", "--config", "."], "cannot read . as a config"),
    (["run", "--config", "loop"], "cannot read loop as a config"),
    (["run", "--config=field.json"], "unknown field in field.json 'round'"),
]

WRITERS = [RUN, ["compare", "--algorithms", "local"], [*SWEEP, "alpha=1"], ["report", "runs/good"]]
NO_FOLDERS = {
    "good.npz": "good.npz is a file: give a directory with --out",
    "good.npz/x/y": "good.npz is a file: give a directory with --out",
    "/dev/null/x": "/dev/null is a file: give a directory with --out",
    "loop": "loop is a file: give a directory with --out",
    "a\0b": "cannot be a directory: give another one with --out",
    "x" * 300: "cannot be a directory (File name too long)",
}
FOLDERS = [
    *[
        ([*words, "--out", out], message)
        for words in WRITERS
        for out, message in NO_FOLDERS.items()
    ],
    (
        [*RUN, "--out", "held"],
        "held already holds a run (config.json): choose another --out, or add --overwrite",
    ),
    (["compare", "--out", "compared"], "compared/local already holds a run (summary.json)"),
    (["report", "runs/good", "--out", "runs/good"], "already holds a run"),
    (["describe", "--out", "good.npz"], "good.npz exists: name another file, or remove it"),
    (["describe", "--out", "held"], "held exists: name another file, or remove it"),
    (["describe", "--out", "good.npz/x"], "good.npz is a file"),
    (["describe", "--out", "loop"], "loop exists"),
    (["describe", "--out", "a\0b"], "cannot be a directory"),
]

NO_RUNS = [
    "bare",
    "text",
    "deep",
    "nan",
    "nameless",
    "markup",
    "measure",
    "up",
    "score",
    "inf",
    "lines",
    "torn",
    "rounds",
    "scores",
    "label",
    "unseen",
    "time",
    "target",
    "numeric",
]
REPORTS = [
    (["report"], "no directories: give those of runs or comparisons"),
    (["report", "nowhere"], "nowhere is no directory"),
    (["worth", "nowhere"], "nowhere is no directory"),
    (["worth"], "no directories: give those of runs or comparisons"),
    (["report", "good.npz"], "good.npz is no directory"),
    (["report", "a\0b"], r"a\x00b is no directory"),
    (["report", "held"], "held holds no finished run"),
    (["report", "runs/good", "rmse"], "scored by accuracy and rmse: give runs of one measure"),
    *[
        (["report", f"runs/{name}", "--out", "new"], f"runs/{name} is no run of jaxfl")
        for name in NO_RUNS
    ],
    *[
        (["report", f"tables/{name}"], f"tables/{name}/comparison.json is no comparison of jaxfl")
        for name in ("numbers", "object", "deep", "list", "directory")
    ],
    (["report", "tables/above"], "tables/above holds no finished run"),
]

LONG_NAMES = [
    (["run", "gossip", "--hyper", f"graph={LONG}.npy"], "expected a .npy file that exists"),
    (["sweep", "gossip", "--over", f"graph={LONG}.npy,ring"], "expected a .npy file that exists"),
    ([*RUN, "--durations", f"{LONG}.npy"], "expected a .npy file that exists"),
    ([*RUN, "--work-file", f"{LONG}.npy"], "expected a .npy file that exists"),
    ([*RUN, "--init", LONG], "File name too long"),
    ([*RUN, "--pretrained", LONG], "File name too long"),
    (["prepare", "text", "a.csv", *DATA, "--tokenizer", LONG], "cannot read the tokenizer"),
    ([*RUN, "--data-dir", LONG], "does not exist or is not a folder"),
    ([*RUN, "--config", LONG], "as a config (File name too long)"),
    ([*RUN, "--plugin", LONG], "there is no such file"),
    (
        [*RUN, "--keep", "models=none", "--store", LONG],
        "(File name too long): free or choose a place",
    ),
    (["resume", LONG], "holds no run to resume"),
    (["predict", LONG, "--input", "good.npz"], "holds no finished run"),
    (["predict", "runs/good", "--input", LONG], "holds no finished run"),
    (["describe", "--out", f"{LONG}.png"], "(File name too long): free or choose a place"),
    (["report", LONG], "is no directory"),
    (["report", "runs/good", "--html", LONG], "cannot be a file (File name too long)"),
    (["prepare", "mnist", "--data-dir", LONG], "cannot make the data folder"),
    (["prepare", "mnist", *DATA, "--tfds-manual-dir", LONG], "does not exist"),
    (["prepare", "images", ".", *DATA, "--owner-table", LONG], "File name too long"),
]

BAD = [
    *NAMES,
    *COMMAND_LINES,
    *NUMBERS,
    *FITS,
    *CLIENTS,
    *IDLE,
    *HYPER_PARAMETERS,
    *SWEEPS,
    *DATA_SETS,
    *CONFIGS,
    *FOLDERS,
    *REPORTS,
    *LONG_NAMES,
]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        prepare()
    return folder


@pytest.fixture
def here(prepared, monkeypatch):
    jax.devices()  # counted now, as conftest.py asks: `--devices` could change it before JAX starts
    monkeypatch.chdir(prepared)
    monkeypatch.delenv("JAXFL_DATA_DIR", raising=False)
    return prepared


def everything(folder):
    """What lies below a folder: of each file its size, and when it was written."""

    def mark(path):
        return None if path.is_dir() else (path.lstat().st_size, path.lstat().st_mtime_ns)

    return {path: mark(path) for path in folder.rglob("*")}


@pytest.mark.long(every=8)
@pytest.mark.parametrize(
    ("arguments", "message"), BAD, ids=[" ".join(words)[:60] for words, _ in BAD]
)
def test_bad_input_is_one_line_and_nothing_is_written(arguments, message, here, capsys):
    before = everything(here)
    writes = arguments[:1] in (["run"], ["compare"], ["sweep"]) and "--out" not in arguments
    assert main([*arguments, *(["--out", "new"] if writes else [])]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert message in shown.err
    assert re.fullmatch(
        r"jaxfl: [^\n]+[:;.] [^\n]+\n", shown.err
    )  # what was wrong, and what is expected
    assert "Traceback" not in shown.err
    assert len(shown.err) < 1500
    assert everything(here) == before


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_parser_speaks_in_one_line_wherever_it_is_printed(encoding, here, capsys, monkeypatch):
    """The parser draws boxes with lines or in ASCII, and in colours on a terminal."""
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: encoding == "utf-8", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert main(["prepare"]) == 2
    assert capsys.readouterr().err.startswith("jaxfl: Missing from jaxfl prepare: NAME: see ")


def test_the_table_tries_a_long_name_for_every_path():
    names = marked(Setting, PATH)
    for command in COMMANDS:
        hints = typing.get_type_hints(command, include_extras=True)
        named = {name: hint for name, hint in hints.items() if "Positional" not in str(hint)}
        names |= {name for name, hint in named.items() if "Path" in str(hint)}
    tried = {before for words, _ in BAD for before, word in pairwise(words) if len(word) > 255}
    assert {option(name) for name in names} <= tried


def fields_of(word, value):
    """The fields that an option of the table gives."""
    name = word.removeprefix("--").replace("-", "_")
    pairs = [value] if name == KEEP else divided(value)[1]
    return {FIELDS[name][pair.partition("=")[0]] for pair in pairs} or {name}


def test_the_table_tries_every_number_and_every_command():
    numeric = {name for name, hint in typing.get_type_hints(Setting).items() if takes_numbers(hint)}
    assert numeric <= set().union(*(fields_of(*words[2:4]) for words, _ in NUMBERS))
    assert {command.__name__.lower() for command in COMMANDS} <= {
        words[0] for words, _ in BAD if words
    }
