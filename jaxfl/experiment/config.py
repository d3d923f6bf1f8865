"""The complete description of a run, as a frozen dataclass that goes to `config.json` and comes back."""

import dataclasses
import json
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jaxfl.errors import InputError, check, check_name
from jaxfl.experiment.hints import accepts, expected


@dataclass(frozen=True)
class Setting:
    """Everything about a run but its algorithm. The options of the command line are these fields."""

    dataset: str = "digits"
    """data set, see `jaxfl list datasets`"""
    data_dir: str | None = None
    """folder of NAME.npz files; the environment's JAXFL_DATA_DIR if not given"""
    partition: str | None = None
    """who holds what, see `jaxfl list partitions`; natural where the data come from clients, else pathological"""
    classes_per_client: int = 2
    """labels a client holds (pathological), or shards a client draws (shards)"""
    beta: float = 0.5
    """Dirichlet concentration; smaller is a stronger skew"""
    topology: int = 5
    """nodes of the partition `nodes`: 3, 4 or 5"""
    clients: int | None = None
    """number of clients; 10, or all of a natural partition"""
    max_examples: int | None = None
    """most examples that a client may hold, the others are left out; no limit if not given"""
    val: float = 0.2
    """fraction of a client's examples that validate"""
    own: float = 0.2
    """fraction of a client's examples that test it, if --test is own"""
    test: Literal["reweighted", "own", "global"] | None = None
    """test examples of a client: the whole test set weighted by the client's label frequencies, a part of its own data
    (the default for natural partitions), or the whole test set"""
    feedback: Literal["val", "test-leaking"] = "val"
    """what methods learn from beside the training data (pfedgat) and checkpoints are chosen by: the client's validation
    part, or, comparable to no other results, its test set"""

    participation: float = 1.0
    """fraction of the clients in each round"""
    rounds: int = 20
    """communication rounds"""
    model: str | None = None
    """model, see `jaxfl list models`; by default lenet for images, textcnn for texts, mf for ratings, else mlp"""
    augment: str | None = None
    """random changes of the images in local training: crop_flip or none; by default crop_flip for CIFAR, else none"""
    local_steps: int | None = None
    """local SGD steps a round; 200 if neither steps nor epochs are given"""
    local_epochs: int | None = None
    """local epochs a round, in place of steps"""
    batch_size: int = 64
    """examples in a local step"""
    lr: float = 0.01
    """learning rate"""
    momentum: float = 0.9
    """momentum"""
    weight_decay: float = 1e-5
    """weight decay"""

    attack: str | None = None
    """what malicious clients send or train on, see `jaxfl list attacks`; scores are then means over the others"""
    attack_ratio: float = 0.4
    """fraction of malicious clients under an attack"""
    attack_seed: int = 0
    """which clients are malicious, whatever the seed of the run"""
    clip: float | None = None
    """largest L2 norm of the update that a client sends, over all of its parameters; see docs/privacy.md"""
    noise: float = 0.0
    """standard deviation of the noise that a client adds to its update, in units of --clip: privacy for clients"""
    example_clip: float | None = None
    """largest L2 norm of an example's gradient in local training"""
    example_noise: float = 0.0
    """noise on the gradient of a batch, in units of --example-clip: privacy for single examples"""
    delta: float = 1e-5
    """delta of the guarantee (epsilon, delta) in summary.json, under --noise or --example-noise"""
    compress: Literal["none", "int8", "topk"] = "none"
    """what clients make of their updates before they send them: 8-bit integers, or the largest entries alone"""
    top_k: float = 0.1
    """fraction of the entries that are sent under --compress topk"""

    eval_every: int = 1
    """rounds between two evaluations; the last round is always evaluated"""
    eval_on: Literal["all", "participants"] = "all"
    """clients to evaluate: all, or those of the round"""
    checkpoint_every: int | None = None
    """rounds between two checkpoints, from which `jaxfl resume DIR` goes on; none if not given, but on Ctrl-C"""
    keep: int = 2
    """checkpoints to keep, the newest ones"""
    fail_on_divergence: bool = False
    """stop when a client's update is infinite or no number, instead of leaving it out of the round"""
    seed: int = 0
    """seed of the partition, the initial model, participation and batches"""
    seeds: int = 1
    """how many seeds to run side by side: seed, seed + 1, ..."""
    chunk: int | Literal["auto", "all"] = "auto"
    """clients computed side by side, the same result: a number, all, or auto (convolutions on CPU: one, else all)"""
    compute: Literal["float32", "bfloat16"] = "float32"
    """arithmetic of the models; bfloat16 is for accelerators, parameters stay float32"""
    devices: int | Literal["auto"] = "auto"
    """devices of each process that share the clients; auto: all, at most one a client; of a CPU, one a core"""


@dataclass(frozen=True)
class Config(Setting):
    """One run: a setting, an algorithm and its hyper-parameters."""

    algorithm: str = "fedavg"
    hyper: dict[str, Any] = dataclasses.field(default_factory=dict)


def parse_hyper(pairs: tuple[str, ...]) -> dict[str, Any]:
    """`("alpha=0.5", "anchor=approx")` -> `{"alpha": 0.5, "anchor": "approx"}`; values are JSON, else text."""
    parsed = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        check(
            bool(key and equals),
            f"hyper-parameter {pair!r}: expected KEY=VALUE, for example alpha=0.5",
        )
        check(key not in parsed, f"hyper-parameter {key!r} is given twice: give it once")
        parsed[key] = parse_value(value)
    return parsed


def parse_value(text: str) -> Any:
    """A value on the command line: JSON, else the text itself."""
    try:
        return parse_json(text)
    except ValueError:
        return text


def parse_json(text: str) -> Any:
    """A JSON value; a `ValueError` for what is none, or nested deeper than any of ours, or a NaN or infinity."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def to_json(config: Config) -> str:
    """The config as indented JSON, every field with its value."""
    return json.dumps(dataclasses.asdict(config), indent=2) + "\n"


def load_config(path: Path) -> Config:
    """The config of a `config.json`.

    Raises:
      InputError: no such file, no JSON, or not the fields and types of a config.
    """
    try:
        fields = parse_json(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot read {path} as a config ({error}): give the config.json of a run"
        ) from error
    check(
        isinstance(fields, dict) and isinstance(fields.get("algorithm"), str),
        f"{path} is no config: expected a JSON object with at least an algorithm, as in the config.json of a run",
    )
    hints = typing.get_type_hints(Config)
    for name, value in fields.items():
        check_name(f"field in {path}", name, hints)
        check(
            accepts(hints[name], value),
            f"{name} in {path} is {value!r:.80}: expected {expected(hints[name], value)}",
        )
    return Config(**fields)
