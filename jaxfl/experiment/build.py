"""From a config to the things it names: data, task, algorithm, participation."""

import dataclasses
import inspect
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxfl import participation
from jaxfl.algorithms import ALGORITHMS
from jaxfl.data import PARTITIONS, Source, federate, load
from jaxfl.data.partition import Parts
from jaxfl.errors import check
from jaxfl.experiment.config import Config
from jaxfl.experiment.validate import check_config
from jaxfl.models import MODELS
from jaxfl.task import classification, sgd
from jaxfl.types import Algorithm, Federation, Participation, Task


@dataclass(frozen=True)
class Built:
    """All parts of a run; nothing is computed yet."""

    config: Config
    source: Source
    parts: list[Parts]  # of each seed
    federation: Federation  # [C, ...], or [seeds, C, ...] if there are several
    task: Task
    algorithm: Algorithm
    participation: Participation


def build(config: Config) -> Built:
    """Loads the data and makes every part of the run.

    Raises:
      InputError: anything in the config is wrong, or does not fit the data.
    """
    check_config(config)
    source = load(config.dataset, config.data_dir)
    check(
        config.clients <= len(source.y_train),
        f"--clients is {config.clients}: {config.dataset} has {len(source.y_train)} training examples, at most one "
        "client an example",
    )
    parts = [split(config, source, config.seed + i) for i in range(config.seeds)]
    task = classification(
        MODELS[config.model](source.classes),
        source.x_train[0],
        optimizer=sgd(config.lr, config.momentum, config.weight_decay),
        batch_size=config.batch_size,
        steps=config.local_steps,
        epochs=config.local_epochs,
        scale=source.scale,
        chunk=config.chunk,
    )
    return Built(
        config,
        source,
        parts,
        federations(source, parts, config.test),
        task,
        ALGORITHMS[config.algorithm](task, **config.hyper),
        participation.uniform(config.clients, config.participation),
    )


def split(config: Config, source: Source, seed: int) -> Parts:
    """The config's partition of the training set."""
    partition = PARTITIONS[config.partition]
    options = set(inspect.signature(partition).parameters) & {field.name for field in dataclasses.fields(config)}
    options -= {"clients", "seed"}
    return partition(source.y_train, config.clients, seed, **{name: getattr(config, name) for name in options})


def federations(source: Source, parts: list[Parts], test: str) -> Federation:
    """The federation of one seed, or those of several padded alike and stacked [seeds, C, ...]."""
    if len(parts) == 1:
        return federate(source, parts[0], test=test)
    longest = max(len(rows) for seed in parts for rows in seed)
    each = [federate(source, seed, test=test, pad_to=longest) for seed in parts]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
