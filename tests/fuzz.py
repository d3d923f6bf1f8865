"""Random combinations of options: each is refused in one line, or gives sound results.

`python tests/fuzz.py [--runs 1000] [--seed 0] [--minutes 10] [--build-only]`

A combination that does neither is printed as arguments of `jaxfl`, with the end of its traceback.
"""

import contextlib
import io
import json
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

import jax
import numpy as np
import tyro

from jaxfl.algorithms import ALGORITHMS
from jaxfl.cli import main as program
from jaxfl.core.options import options_of
from jaxfl.experiment.config.composite import typed
from jaxfl.experiment.session import run as session
from jaxfl.kernels.similarity import MEASURES, Measure
from jaxfl.models import MODELS
from jaxfl.uplink import ATTACKS

# Values of hyper-parameters, beside the words in their types.
NUMBERS = ["0.1", "0.5", "1", "1", "2", "2", "0", "-1", "1e6"]
SETS = ["labels", "numbers", "posts", "images", "one_class", "digits"]
OWNED = {"numbers", "posts"}  # those that name owners


def write_data(folder: Path) -> None:
    """Small data sets of every kind."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 4)), np.arange(60) % 3
    owners = np.arange(60) % 4
    np.savez(folder / "labels.npz", x_train=x, y_train=y, x_test=x[:20], y_test=y[:20])
    np.savez(folder / "numbers.npz", x_train=x, y_train=x.sum(axis=1), owners=owners)
    words = rng.integers(0, 9, (60, 6)).astype(np.int32)
    np.savez(folder / "posts.npz", x_train=words, y_train=y, vocabulary=[9], owners=owners)
    images = rng.integers(0, 256, (60, 8, 8, 1)).astype(np.uint8)
    np.savez(folder / "images.npz", x_train=images, y_train=y, x_test=images[:9], y_test=y[:9])
    np.savez(folder / "one_class.npz", x_train=x, y_train=0 * y, x_test=x[:9], y_test=0 * y[:9])


# Values of the options, and of those that have an effect only with another one.
TRIES = {
    "clients": ["1", "2", "3", "4", "5"],
    "participation": ["0.01", "0.3", "0.5", "1"],
    "seeds": ["1", "2"],
    "seed": ["0", "7"],
    "batch-size": ["1", "3", "8", "1000"],
    "lr": ["0", "0.01", "0.5", "1e6", "1e30"],
    "momentum": ["0", "0.9"],
    "weight-decay": ["0", "0.1"],
    "val": ["0", "0.2", "0.9"],
    "max-examples": ["1", "2", "5"],
    "split": ["random", "stratified"],
    "feedback": ["val", "test-leaking"],
    "eval-on": ["all", "participants"],
    "eval-every": ["1", "3"],
    "stop-after": ["1", "2"],
    "chunk": ["1", "2", "all"],
    "checkpoint-every": ["1"],
    "compute": ["float32", "bfloat16"],
    "optimizer": ["sgd", "adam", "adamw", "rmsprop", "adagrad"],
    "unseen": ["0", "0.3", "0.6"],
    "class-weight": ["balanced"],
}
GROUPS = [
    {"attack": list(ATTACKS), "attack-ratio": ["0", "0.3", "0.6"]},
    {"attack": list(ATTACKS), "malicious": ["0", "1"]},
    {"schedule": ["cosine", "exponential"]},
    {"schedule": ["step"], "decay": ["0.1", "1"], "decay-every": ["1", "5"]},
    {"compress": ["int8"]},
    {"compress": ["topk"], "top-k": ["0.01", "0.5", "1"]},
    {"clip": ["0.1", "10"], "noise": ["0", "1"]},
    {"example-clip": ["1"], "example-noise": ["0", "1"]},
    {"test": ["own"], "test-fraction": ["0", "0.3", "0.7"]},
    {"test": ["own"], "folds": ["2", "3"]},
    {"test": ["global", "reweighted"]},
    {"concept": ["rotation", "swapped_labels"], "concept-groups": ["2", "4"]},
    {"concept": ["feature_noise"], "feature-noise": ["0", "0.5"]},
    {"speeds": ["0", "1", "10"], "speed-seed": ["0", "7"], "target": ["0.3", "1"]},
    {"speeds": ["0.5"], "arrivals": ["asynchronous"], "participation": ["0.3", "0.5"]},
]
SPLITS = {
    "iid": {},
    "natural": {},
    "dirichlet": {"beta": ["0.01", "10"]},
    "pathological": {"classes-per-client": ["1", "2", "3"]},
    "shards": {"classes-per-client": ["1", "2", "3"]},
    "nodes": {"topology": ["3", "4"]},
    "labels": {"classes-per-client": ["1", "2", "3"]},
    "unbalanced_pathological": {"classes-per-client": ["1", "2", "3"]},
    "quantity": {"beta": ["0.5", "10"]},
    "owner_groups": {},
}
KINDS = {"posts": ["textcnn", "lstm"], "images": ["linear", "mlp", "cnn"]}


def draw(chance: random.Random, folder: Path) -> list[str]:
    """The arguments of a random run, without --out; most of them fit together."""
    algorithm = chance.choice(sorted(ALGORITHMS))
    dataset = chance.choice(SETS)
    chosen = {"rounds": chance.choice(["1", "1", "2"]), "dataset": dataset}
    if dataset != "digits":
        chosen["data-dir"] = str(folder)
    # Data without owners are seldom divided by them: this would be refused.
    has_owners = dataset in OWNED or chance.random() < 0.05
    splits = [name for name in SPLITS if has_owners or name not in ("natural", "owner_groups")]
    split = chance.choice(["iid", "iid", "iid", *splits])
    models = KINDS.get(dataset, ["linear", "linear", "mlp"])
    model = chance.choice(models if chance.random() < 0.95 else sorted(MODELS))
    chosen |= {"partition": split, "model": model, "clients": chance.choice(TRIES["clients"])}
    groups = [SPLITS[split], *(group for group in GROUPS if chance.random() < 0.15)]
    groups += [{name: values} for name, values in TRIES.items() if chance.random() < 0.12]
    for group in groups:
        chosen |= {name: chance.choice(values) for name, values in group.items()}
    chosen[chance.choice(["local-steps", "local-steps", "local-epochs"])] = chance.choice("12")
    fields = {name.replace("-", "_"): value for name, value in chosen.items()}
    arguments = [word for pair in typed(fields).items() for word in pair]
    known = options_of(ALGORITHMS[algorithm])
    hyper = []
    for name, parameter in known.items():
        if chance.random() < 0.2:
            hyper.append(f"{name}={draw_value(chance, parameter.hint)}")
    return ["run", algorithm, *arguments, *(["--hyper", *hyper] if hyper else [])]


def draw_value(chance: random.Random, hint: object) -> str:
    """A value that a hyper-parameter may or may not take."""
    words = [word.strip(",") for word in str(hint).replace("'", " ").split() if word.isidentifier()]
    listed = getattr(hint, "__args__", ())
    if listed and all(isinstance(name, str) for name in listed):  # Literal
        return chance.choice(listed)
    if hint == Measure:
        return chance.choice([*MEASURES])
    return chance.choice([*NUMBERS, "none", *words[:3]])


class BuiltError(Exception):
    """Raised in place of compiling, when all checks have passed and a round was traced."""


def stop(*_: object) -> None:
    """Takes the place of compiling."""
    raise BuiltError


def attempt(arguments: list[str], out: Path) -> str:
    """Runs the command.

    Returns:
      "refused", "finished", "built" if the run ends in `BuiltError`, or what went wrong.
    """
    said = io.StringIO()
    shutil.rmtree(out, ignore_errors=True)
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            code = program([*arguments, "--out", str(out)])
    except BuiltError:
        return "built"
    except BaseException:
        if isinstance(sys.exception(), KeyboardInterrupt):
            raise
        return traceback.format_exc()
    lines = said.getvalue().splitlines()
    if code == 2:
        if len(lines) != 1 or not lines[0].startswith("jaxfl: "):
            return f"refused in {len(lines)} lines: {said.getvalue()}"
        return "nothing may be written" if out.exists() else "refused"
    if code != 0:
        return f"exit code {code}: {said.getvalue()}"
    return unsound(out, lines) or "finished"


def unsound(out: Path, lines: list[str]) -> str:
    """What is wrong with the files of a finished run; empty if nothing is."""
    summary = json.loads((out / "summary.json").read_text())
    last = summary["final"]["deployed"]["mean"]
    if (last is None) != any("has a score" in line for line in lines):
        return f"the mean score is {last}, said: {lines}"
    if last is not None and summary["measure"] == "accuracy" and not -1e-6 <= last <= 1 + 1e-6:
        return f"an accuracy of {last}"
    if (out / "graph.npz").exists():
        with np.load(out / "graph.npz") as arrays:
            for name in arrays:
                if name.startswith("weights"):
                    weights = arrays[name]
                    if not np.isfinite(weights).all():
                        return f"{name} is not finite"
                    if np.abs(weights.sum(axis=-1) - 1).max() > 1e-3:
                        return f"a row of {name} sums to {weights.sum(axis=-1).ravel()[:9]}"
    return ""


def fuzz(runs: int, seed: int, folder: Path, minutes: float = 1e9) -> dict[str, int]:
    """Tries combinations, prints those that went wrong, and counts all by what they gave."""
    chance = random.Random(seed)
    write_data(folder)
    log = folder / "now"
    jax.config.update("jax_disable_most_optimizations", True)
    found = {"refused": 0, "built": 0, "finished": 0, "wrong": 0}
    began = time.monotonic()
    for number in range(runs):
        if time.monotonic() - began > 60 * minutes:
            break
        arguments = draw(chance, folder)
        where = " ".join(arguments).replace(str(folder), "DATA")
        log.write_text(f"{number} {where}\n{found}\n")  # for a look at what takes long
        result = attempt(arguments, folder / "out")
        if result not in found:
            print(f"--- {where}\n{result[-1500:]}", flush=True)
            result = "wrong"
        found[result] += 1
        if number % 50 == 49:
            jax.clear_caches()
            print(number + 1, found, file=sys.stderr, flush=True)
    return found


def main(runs: int = 1000, seed: int = 0, minutes: float = 1e9, build_only: bool = False) -> None:
    """Prints combinations that went wrong, and the counts at the end.

    Args:
      runs: the number of combinations.
      seed: of the draw.
      minutes: to stop after, if it comes first.
      build_only: compile and execute nothing; a round is traced with all its checks.
    """
    if build_only:
        session.make_program = stop
    with tempfile.TemporaryDirectory() as folder:
        os.environ.pop("JAXFL_DATA_DIR", None)
        print(fuzz(runs, seed, Path(folder), minutes))


if __name__ == "__main__":
    tyro.cli(main)
