"""From a resolved setting to its clients: who holds what, on the devices or on disk."""

import dataclasses
import inspect
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxfl.core.ragged import Ragged, is_ragged, stack
from jaxfl.core.types import Dataset, Federation
from jaxfl.data import (
    CONCEPTS,
    PARTITIONS,
    Source,
    balance_classes,
    concept_of,
    describe_groups,
    describe_partition,
    federate,
)
from jaxfl.data.concept import Concept
from jaxfl.data.federate import label_counts
from jaxfl.data.partition import OWNED
from jaxfl.data.skews import Parts
from jaxfl.experiment.config import Resolved, devices_of
from jaxfl.experiment.config.fields import (
    DataOptions,
    ParticipationOptions,
    UploadOptions,
)
from jaxfl.experiment.config.hints import value_of
from jaxfl.experiment.config.rules import count_unseen
from jaxfl.experiment.session.seeds import seeds_of
from jaxfl.experiment.session.stored_data import digest_stored, open_stored, outline
from jaxfl.experiment.store.digests import digest_arrays
from jaxfl.simulation import mesh
from jaxfl.simulation.on_disk import StoredFederation
from jaxfl.uplink import FLIPPED, malicious_clients

# Partitions whose clients are samples of one population, and those whose clients hold a set of
# labels.
ONE_GROUP = ("iid", "quantity")
OF_LABEL_SETS = ("pathological", "unbalanced_pathological", "labels", "nodes", "superclasses")


@dataclass(frozen=True)
class Data:
    """The clients of a setting."""

    source: Source
    parts: list[Parts]  # of each seed
    # [C, ...], or [S, C, ...] of several seeds or folds; without examples if they lie on disk
    federation: Federation
    stored: StoredFederation | None = None

    @cached_property
    def digest(self) -> str:
        """The digest of the federation; if several processes run together, each must ask for it."""
        return digest_arrays(self.federation) if self.stored is None else digest_stored(self.stored)


def gather(resolved: Resolved) -> Data:
    """Splits the data set among the clients, for each seed and fold; puts it on the devices.

    Raises:
      InputError: the setting does not fit the data.

    Example:
      >>> data = gather(resolve(Config(clients=5)))
      >>> data.federation.train.x.shape, [len(rows) for rows in data.parts[0]]
      ((5, 232, 8, 8, 1), [288, 288, 290, 288, 283])
    """
    options, source = resolved.options, resolved.source
    data, run, upload = options.data, options.run, options.upload
    class_weight = options.training.class_weight
    clients = value_of(data.clients)
    devices = devices_of(run, options.participation, clients)
    # Before programs are compiled, which takes some processes longer than others.
    mesh.connect(devices)
    parts = [assign(data, source, place) for place in range(run.seeds)]

    def make() -> Federation:
        federation = make_federation(source, parts, data)
        if upload.attack in FLIPPED:
            federation = flip_labels(federation, malicious(upload, clients), source.classes)
        return federation if class_weight is None else balance_classes(federation)

    if run.store is not None:
        origin = origin_of(data, upload, class_weight, source)
        stored = open_stored(Path(run.store), origin, make)
        return Data(source, parts, outline(stored), stored)
    federation = make()
    with jax.set_mesh(mesh.make_mesh(devices)):
        axis = seeds_of(data, run.seeds).client_axis
        return Data(source, parts, mesh.place(federation, axis=axis))


def assign(options: DataOptions, source: Source, place: int = 0) -> Parts:
    """The rows of the training set that each client holds, by the options.

    Args:
      options: complete options of the data.
      source: the data set.
      place: of the seed among those of the run, from 0.
    """
    return [rows[: options.max_examples] for rows in divide(options, source, place)]


def divide(options: DataOptions, source: Source, place: int = 0) -> Parts:
    """The rows that the partition gives each client, of which it may hold the first alone."""
    partition = PARTITIONS[value_of(options.partition)]
    fields = {field.name for field in dataclasses.fields(options)} - {"clients", "seed"}
    parameters = set(inspect.signature(partition).parameters)
    names = fields & parameters
    by = source.owners if options.partition in OWNED else source.strata
    arguments = {name: getattr(options, name) for name in names}
    if "names" in parameters and options.partition in OWNED:
        arguments["names"] = source.owner_names
    if "superclass_of" in parameters:
        arguments["superclass_of"] = source.superclasses
    return partition(by, options.clients, seed_of_data(options, place), **arguments)


def seed_of_data(options: DataOptions, place: int = 0) -> int:
    """The seed that draws who holds which examples.

    Args:
      options: of the data.
      place: of the seed among the seeds of a run, from 0.
    """
    return options.seed + place if options.data_seed is None else options.data_seed


def make_concept(options: DataOptions, source: Source, place: int = 0) -> Concept | None:
    """What each client makes of its examples, by the concept of the options."""
    if options.concept is None:
        return None
    factory = CONCEPTS[options.concept]
    values = {"groups": options.concept_groups, "level": options.feature_noise}
    names = values.keys() & inspect.signature(factory).parameters.keys()
    arguments = {name: values[name] for name in names}
    return factory(source, options.clients, seed_of_data(options, place), **arguments)


def true_groups(options: DataOptions, source: Source, place: int = 0) -> np.ndarray | None:
    """The group of each client [C], which methods that learn a graph or clusters should find.

    Clients of one group are given the same set of labels, under a partition that gives clients such
    sets, and have the same concept, under a concept with groups. Groups are numbered in the order
    of their first clients, so that they are those of `data.node_of` and of `data.concept_of`.

    Args:
      options: complete options of the data.
      source: the data set.
      place: of the seed among those of the run, from 0.

    Returns:
      None where all clients differ: under the concept `feature_noise`, and without a concept under
      the partitions `dirichlet`, `shards`, `natural` and `owner_groups`.
    """
    has_groups = options.partition in (*ONE_GROUP, *OF_LABEL_SETS) or options.concept is not None
    if not has_groups or options.concept == "feature_noise":
        return None
    columns = []
    if options.partition in OF_LABEL_SETS:
        columns.append(label_counts(source, divide(options, source, place)) > 0)
    if options.concept is not None:
        columns.append(concept_of(value_of(options.clients), options.concept_groups)[:, None])
    rows = np.concatenate([np.zeros((value_of(options.clients), 1)), *columns], axis=1)
    _, first, group = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[group]


def describe_clients(options: DataOptions, source: Source, parts: Parts) -> dict[str, str]:
    """What `describe_partition` says, the concept and the true groups of the clients, by name.

    Raises:
      InputError: the concept does not fit the data.
    """
    description = describe_partition(source, parts)
    if options.concept is not None:
        make_concept(options, source)  # for what it refuses
        description["concept"] = options.concept
    groups = true_groups(options, source)
    if groups is not None:
        description["true groups"] = describe_groups(groups)
    return description


def malicious(upload: UploadOptions, clients: int) -> np.ndarray:
    """Which clients attack [C]."""
    if upload.malicious:
        return np.isin(np.arange(clients), upload.malicious)
    ratio = upload.attack_ratio if upload.attack else 0.0
    return malicious_clients(clients, ratio, upload.attack_seed)


def unseen(options: ParticipationOptions, malicious: np.ndarray) -> np.ndarray:
    """Which clients take part in no round [C]: some of the benign ones, the same for every seed.

    Args:
      options: of the run.
      malicious: which clients attack [C].
    """
    # From the other end than malicious clients, who are the first of such a permutation.
    order = np.random.default_rng(0).permutation(malicious.size)[::-1]
    benign = order[~malicious[order]]
    mask = np.zeros(malicious.size, bool)
    mask[benign[: count_unseen(options, malicious.size)]] = True
    return mask


def origin_of(
    data: DataOptions, upload: UploadOptions, class_weight: str | None, source: Source
) -> dict[str, Any]:
    """What the clients' data depend on, as JSON."""
    options = dataclasses.asdict(data) | {"seed": seed_of_data(data)}
    del options["data_dir"]
    if upload.attack in FLIPPED:
        names = ("attack", "attack_ratio", "attack_seed", "malicious")
        options |= {name: getattr(upload, name) for name in names}
    if class_weight is not None:
        options["class_weight"] = class_weight
    arrays = jax.tree.leaves([source.x_train, source.y_train, source.x_test, source.y_test])
    arrays += [source.weights, source.weights_test, source.groups, source.own_test]
    return {name: list(v) if isinstance(v, tuple) else v for name, v in options.items()} | {
        "examples": digest_arrays([x for x in arrays if x is not None])
    }


def flip_labels(federation: Federation, malicious: Array | np.ndarray, classes: int) -> Federation:
    """The federation in which malicious clients train and validate on flipped labels.

    Args:
      federation: of one seed or of several.
      malicious: which clients do [C].
      classes: L; the label c becomes L - 1 - c.
    """

    def flip(data: Dataset) -> Dataset:
        mask = malicious.reshape(*[1] * (data.y.ndim - 2), -1, 1)  # behind an axis of seeds
        y = jnp.asarray(data.y)
        return data._replace(y=jnp.where(mask, classes - 1 - y, y))

    return federation._replace(train=flip(federation.train), val=flip(federation.val))


def make_federation(source: Source, parts: list[Parts], options: DataOptions) -> Federation:
    """The federation of one seed, or those of several padded alike and stacked [S, C, ...].

    The folds of a seed follow each other. All share their training examples, unless a concept
    changes them or most are left out.
    """
    names = ("val", "test_fraction", "test", "feedback", "split")
    arguments = {name: getattr(options, name) for name in names}
    splits: list[tuple[int, int] | None] = [(fold, options.folds) for fold in range(options.folds)]
    if options.folds == 1:
        splits = [None]
    if options.concept is None and len(parts) * len(splits) > 1:
        # One array, which the federations of all seeds share.
        source = source._replace(x_train=jax.device_put(source.x_train))
    each = []
    for place, part in enumerate(parts):
        concept = make_concept(options, source, place)
        each += [federate(source, part, **arguments, concept=concept, fold=x) for x in splits]

    def stack_seeds(*leaves: Array | Ragged) -> Array | Ragged:
        ragged = [x for x in leaves if isinstance(x, Ragged)]
        if ragged:
            return stack(ragged)
        arrays = [x for x in leaves if not isinstance(x, Ragged)]
        shape = np.max([x.shape for x in arrays], axis=0)
        gaps = [[(0, int(s - d)) for s, d in zip(shape, x.shape, strict=True)] for x in arrays]
        return jnp.stack([jnp.pad(x, gap) for x, gap in zip(arrays, gaps, strict=True)])

    return each[0] if len(each) == 1 else jax.tree.map(stack_seeds, *each, is_leaf=is_ragged)
