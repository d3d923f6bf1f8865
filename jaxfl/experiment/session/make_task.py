"""The task of a run: the model on the data, how clients train it, what happens to their uploads."""

from collections.abc import Callable
from functools import partial
from typing import cast

import numpy as np
import optax

from jaxfl.algorithms.steps.architectures import heterogeneous
from jaxfl.core import tree
from jaxfl.core.types import Scalar, Task, Uplink
from jaxfl.data import Source
from jaxfl.data.augment import AUGMENTATIONS
from jaxfl.experiment.config import Options
from jaxfl.experiment.config.fields import UploadOptions
from jaxfl.experiment.config.hints import value_of
from jaxfl.experiment.config.training_fields import TrainingOptions
from jaxfl.experiment.session.gather import malicious
from jaxfl.experiment.session.make_model import make_models
from jaxfl.training.optimizers import OPTIMIZERS, SCHEDULES, Optimizer
from jaxfl.training.survival import Hazards, cox
from jaxfl.training.task import classification, multilabel, regression, survival
from jaxfl.uplink import Compression, attack, chain, defence_links, gaussian, quantise, top_k

# Models see (x - shift) / scale of bytes x. These are in parts of a white pixel; otherwise the data
# set says them.
PIXELS = {"unit": (1.0, 0.0), "centred": (0.5, 0.5)}


def make_task(options: Options, source: Source) -> Task:
    """The model on the data, how clients train it, and what happens to their uploads."""
    training, upload, run = options.training, options.upload, options.run
    scale, shift = source.scale, source.shift
    if training.pixels in PIXELS:
        scale, shift = (source.white * factor for factor in PIXELS[training.pixels])
    if source.vocabulary and not source.several_inputs:
        scale = None
    make = partial(
        kind_of(source),
        example=tree.at(source.x_train, 0),
        optimizer=make_optimizer(training, run.rounds),
        batch_size=training.batch_size,
        steps=training.local_steps,
        epochs=training.local_epochs,
        scale=scale,
        shift=shift,
        augment=AUGMENTATIONS.get(training.augment or "none"),
        chunk=run.chunk,
        compute=training.compute,
        uplink=chain(*links(upload, options.data.clients)),
        defence=chain(*defence_links(upload.defend)),
        acceptance="validated" if "accept" in upload.defend else "always",
        top_edges=run.top_edges,
        example_clip=training.example_clip,
        example_noise=training.example_noise,
    )
    frozen_type = "bfloat16" if training.compute == "bfloat16" else None
    tasks = {
        name: make(model) for name, model in make_models(options.model, source, frozen_type).items()
    }
    if len(tasks) > 1:
        return heterogeneous(tasks, architecture_of(options))
    (task,) = tasks.values()
    return task


def architecture_of(options: Options) -> np.ndarray:
    """The number of each client's model: the clients have them in turn [C]."""
    return np.arange(value_of(options.data.clients)) % len(options.model.architectures)


def kind_of(source: Source) -> Callable[..., Task]:
    """The kind of the task, by the targets of the data."""
    if source.survival:
        return partial(survival, loss=Hazards(source.ends) if source.ends else cox())
    if source.several_labels:
        return multilabel
    return classification if source.classes else regression


def make_optimizer(training: TrainingOptions, rounds: int) -> Optimizer:
    """The optimiser of local training, a function of the round if the learning rate is one."""

    def with_rate(rate: Scalar) -> optax.GradientTransformation:
        return OPTIMIZERS[training.optimizer](rate, training.momentum, training.weight_decay)

    if training.schedule == "constant":
        return with_rate(training.lr)
    make_schedule = SCHEDULES[training.schedule]
    schedule = make_schedule(training.lr, rounds, training.decay, training.decay_every)
    # A schedule of optax returns a traced number, as a hyper-parameter may be.
    return lambda number: with_rate(cast(Scalar, schedule(number)))


def links(upload: UploadOptions, clients: int | None) -> list[Uplink]:
    """What happens to an upload until it is sent: the attack, noise, compression, in this order."""
    poison = None
    if upload.attack:
        poison = attack(upload.attack, malicious(upload, value_of(clients)), upload.attack_scale)
    noise = gaussian(upload.clip, upload.noise) if upload.clip else None
    return [link for link in (poison, noise, compressor(upload)) if link]


def compressor(upload: UploadOptions) -> Compression | None:
    """How clients compress what they send."""
    return {"int8": quantise(), "topk": top_k(upload.top_k)}.get(upload.compress)
