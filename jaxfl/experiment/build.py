"""From a config to the things it names: data, task, algorithm, participation."""

import dataclasses
import inspect
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array

from jaxfl import mesh, participation, tree
from jaxfl.algorithms import ALGORITHMS
from jaxfl.data import PARTITIONS, Source, federate, load, natural
from jaxfl.data.augment import AUGMENTATIONS
from jaxfl.data.partition import Parts
from jaxfl.data.sources import SOURCES, data_dir
from jaxfl.experiment import privacy
from jaxfl.experiment.audit import audit
from jaxfl.experiment.config import Config, Setting
from jaxfl.experiment.defaults import complete
from jaxfl.experiment.validate import check_config, check_fits, check_setting
from jaxfl.models import MODELS
from jaxfl.task import classification, regression, sgd
from jaxfl.types import (
    Algorithm,
    Cohort,
    Dataset,
    Federation,
    Info,
    Participation,
    PRNGKey,
    State,
    Task,
    Uplink,
)
from jaxfl.uplink import (
    FLIPPED,
    Compression,
    attack,
    chain,
    gaussian,
    malicious_clients,
    quantise,
    top_k,
)


@dataclass(frozen=True)
class Data:
    """The clients of a setting."""

    source: Source
    parts: list[Parts]  # of each seed
    federation: Federation  # [C, ...], or [seeds, C, ...] if there are several


@dataclass(frozen=True)
class Built:
    """All parts of a run; nothing is computed yet."""

    config: Config
    data: Data
    task: Task
    algorithm: Algorithm
    participation: Participation
    excess: int = (
        0  # bytes that a client's uploads of a round take beyond 4 a float: negative if compressed
    )
    exposure: privacy.Exposure | None = None  # of who is protected by clipping


def gather(setting: Setting) -> Data:
    """Loads the data set and splits it among the clients.

    Raises:
      InputError: the setting does not fit the data.
    """
    setting, source, parts = divide(setting)
    federation = federations(source, parts, setting)
    if setting.attack in FLIPPED:
        federation = flip_labels(federation, malicious(setting), source.classes)
    with jax.set_mesh(mesh.make_mesh(devices(setting))):
        return Data(source, parts, mesh.place(federation, axis=int(setting.seeds > 1)))


def divide(setting: Setting) -> tuple[Setting, Source, list[Parts]]:
    """The complete setting, its data set, and who holds what for each seed.

    Raises:
      InputError: the setting is wrong, or does not fit the data.
    """
    check_setting(setting)
    source = load(setting.dataset, setting.data_dir)
    setting = complete(setting, source)
    check_fits(setting, source)
    return setting, source, [split(setting, source, setting.seed + i) for i in range(setting.seeds)]


def devices(setting: Setting) -> int:
    """How many devices each process uses."""
    if setting.devices != "auto":
        return setting.devices
    sample = participation.uniform(setting.clients, setting.participation)
    cohort = jax.eval_shape(sample, jax.random.key(0), 0).size
    return min(jax.local_device_count(), -(-cohort // jax.process_count()))


def malicious(setting: Setting) -> np.ndarray:
    """Which clients attack [C]."""
    return malicious_clients(
        setting.clients, setting.attack_ratio if setting.attack else 0.0, setting.attack_seed
    )


def build(config: Config, data: Data | None = None) -> Built:
    """Makes every part of the run and traces a round of it.

    Args:
      config: what to run.
      data: of the same setting, if it is at hand.

    Raises:
      InputError: anything in the config is wrong, or does not fit the data or the model.
    """
    check_config(config)
    data = data or gather(config)
    source = data.source
    config = complete(config, source)
    check_config(config)
    check_fits(config, source)
    task = (classification if source.classes else regression)(
        model(config.model, source),
        source.x_train[0],
        optimizer=sgd(config.lr, config.momentum, config.weight_decay),
        batch_size=config.batch_size,
        steps=config.local_steps,
        epochs=config.local_epochs,
        scale=None if source.vocabulary else source.scale,
        shift=source.shift,
        augment=AUGMENTATIONS.get(config.augment),
        chunk=config.chunk,
        compute=config.compute,
        uplink=chain(*links(config)),
        example_clip=config.example_clip,
        example_noise=config.example_noise,
    )
    algorithm = counted(ALGORITHMS[config.algorithm](task, **config.hyper), task)
    federation = (
        data.federation if config.seeds == 1 else jax.tree.map(lambda x: x[0], data.federation)
    )
    jax.eval_shape(partial(rehearse, algorithm), jax.random.key(0), federation)
    excess, exposure = 0, None
    if config.clip or config.example_clip or config.compress != "none":
        unit = "client" if config.example_clip is None else "example"
        found = audit(ALGORITHMS[config.algorithm], task, config.hyper, federation, unit)
        if smaller := compressor(config):
            excess = sum(
                smaller.bytes(model) - 4 * tree.size(model) for model in found.round.uploads
            )
        if config.clip or config.example_clip:
            exposure = privacy.expose(config, found, mesh.fetch(data.federation.train.mask))
    config = dataclasses.replace(config, devices=devices(config))
    if (
        config.dataset not in SOURCES
    ):  # so that config.json says where, wherever and by whomever it is read
        config = dataclasses.replace(config, data_dir=str(data_dir(config.data_dir).absolute()))
    sample = participation.uniform(config.clients, config.participation)
    return Built(config, data, task, algorithm, sample, excess, exposure)


def links(setting: Setting) -> list[Uplink]:
    """What happens to an upload, in this order: the attack, clipping and noise, compression."""
    made = (
        attack(setting.attack, malicious(setting)) if setting.attack else None,
        gaussian(setting.clip, setting.noise) if setting.clip else None,
        compressor(setting),
    )
    return [link for link in made if link]


def compressor(setting: Setting) -> Compression | None:
    """How clients compress what they send."""
    return {"int8": quantise(), "topk": top_k(setting.top_k)}.get(setting.compress)


def counted(algorithm: Algorithm, task: Task) -> Algorithm:
    """The algorithm with `Info.batches` filled in where it says nothing, because it trains once a round."""

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        state, info = algorithm.round(key, state, cohort)
        return state, info if info.batches is not None else info._replace(
            batches=task.batches(cohort)
        )

    return algorithm._replace(round=round)


def rehearse(algorithm: Algorithm, key: PRNGKey, federation: Federation) -> State:
    """One round of everybody, to be traced: what does not fit is known before anything is run."""
    ids = jnp.arange(federation.train.mask.shape[0])
    return algorithm.round(
        key, algorithm.init(key, federation.train), Cohort(ids, federation.train, federation.val)
    )[0]


def split(setting: Setting, source: Source, seed: int) -> Parts:
    """The setting's partition of the training set."""
    partition = PARTITIONS[setting.partition]
    options = set(inspect.signature(partition).parameters) & {
        field.name for field in dataclasses.fields(setting)
    }
    options -= {"clients", "seed"}
    first = source.owners if partition is natural else source.y_train
    parts = partition(
        first, setting.clients, seed, **{name: getattr(setting, name) for name in options}
    )
    return [rows[: setting.max_examples] for rows in parts]


def flip_labels(federation: Federation, malicious: np.ndarray, classes: int) -> Federation:
    """The federation in which malicious clients [C] train and validate on labels turned round: c becomes L - 1 - c."""

    def turned(part: Dataset) -> Dataset:
        liars = malicious.reshape(*[1] * (part.y.ndim - 2), -1, 1)  # behind an axis of seeds
        return part._replace(y=jnp.where(liars, classes - 1 - part.y, part.y))

    return federation._replace(train=turned(federation.train), val=turned(federation.val))


def model(name: str, source: Source) -> nn.Module:
    """The model by name, for the targets of the data and, where it embeds names, for their number."""
    factory = MODELS[name]
    names = (
        {"vocabulary": source.vocabulary}
        if "vocabulary" in inspect.signature(factory).parameters
        else {}
    )
    return factory(source.classes or 1, **names)


def federations(source: Source, parts: list[Parts], setting: Setting) -> Federation:
    """The federation of one seed, or those of several padded alike and stacked [seeds, C, ...]."""
    options = {name: getattr(setting, name) for name in ("val", "own", "test", "feedback")}
    each = [federate(source, seed, **options) for seed in parts]

    def stack(*leaves: Array) -> Array:
        shape = np.max([x.shape for x in leaves], axis=0)
        return jnp.stack(
            [
                jnp.pad(x, [(0, int(s - d)) for s, d in zip(shape, x.shape, strict=True)])
                for x in leaves
            ]
        )

    return each[0] if len(each) == 1 else jax.tree.map(stack, *each)
