"""The task of a run: the model on the data, how clients train it, what happens to their uploads."""

from typing import cast

import optax

from jaxfl.core import tree
from jaxfl.core.types import Scalar, Task, Uplink
from jaxfl.data import Source
from jaxfl.data.augment import AUGMENTATIONS
from jaxfl.data.inputs import is_tree
from jaxfl.experiment.config import Setting
from jaxfl.experiment.session.clients import malicious
from jaxfl.experiment.session.make_model import make_model
from jaxfl.training.optimizers import OPTIMIZERS, SCHEDULES, Optimizer
from jaxfl.training.task import classification, multilabel, regression
from jaxfl.uplink import Compression, attack, chain, defence_links, gaussian, quantise, top_k

# Models see (x - shift) / scale of bytes x. These are in parts of a white pixel; otherwise the data
# set says them.
PIXELS = {"unit": (1.0, 0.0), "centred": (0.5, 0.5)}


def make_task(setting: Setting, source: Source) -> Task:
    """The model on the data, how clients train it, and what happens to their uploads."""
    kind = multilabel if source.several_labels else classification if source.classes else regression
    scale, shift = source.scale, source.shift
    if setting.pixels in PIXELS:
        scale, shift = (source.white * factor for factor in PIXELS[setting.pixels])
    if source.vocabulary and not is_tree(source.x_train):
        scale = None
    return kind(
        make_model(setting, source, "bfloat16" if setting.compute == "bfloat16" else None),
        tree.at(source.x_train, 0),
        optimizer=make_optimizer(setting),
        batch_size=setting.batch_size,
        steps=setting.local_steps,
        epochs=setting.local_epochs,
        scale=scale,
        shift=shift,
        augment=AUGMENTATIONS.get(setting.augment or "none"),
        chunk=setting.chunk,
        compute=setting.compute,
        uplink=chain(*links(setting)),
        defence=chain(*defence_links(setting.defend)),
        acceptance="validated" if "accept" in setting.defend else "always",
        top_edges=setting.top_edges,
        example_clip=setting.example_clip,
        example_noise=setting.example_noise,
    )


def make_optimizer(setting: Setting) -> Optimizer:
    """The optimiser of local training, a function of the round if the learning rate is one."""

    def with_rate(rate: Scalar) -> optax.GradientTransformation:
        return OPTIMIZERS[setting.optimizer](rate, setting.momentum, setting.weight_decay)

    if setting.schedule == "constant":
        return with_rate(setting.lr)
    schedule = SCHEDULES[setting.schedule](
        setting.lr, setting.rounds, setting.decay, setting.decay_every
    )
    # A schedule of optax returns a traced number, as a hyper-parameter may be.
    return lambda number: with_rate(cast(Scalar, schedule(number)))


def links(setting: Setting) -> list[Uplink]:
    """What happens to an upload until it is sent: the attack, noise, compression, in this order."""
    poison = None
    if setting.attack:
        poison = attack(setting.attack, malicious(setting), setting.attack_scale)
    noise = gaussian(setting.clip, setting.noise) if setting.clip else None
    return [link for link in (poison, noise, compressor(setting)) if link]


def compressor(setting: Setting) -> Compression | None:
    """How clients compress what they send."""
    return {"int8": quantise(), "topk": top_k(setting.top_k)}.get(setting.compress)
