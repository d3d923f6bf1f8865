"""Small tasks, on examples of eight features and two classes."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array

from jaxfl.core.types import Task
from jaxfl.models.mlp import mlp
from jaxfl.training.optimizers import sgd
from jaxfl.training.task import classification


@functools.cache
def linear(**options: Any) -> Task:
    """Logistic regression on 8 features."""
    options = {"steps": 5, "batch_size": 8, "optimizer": sgd(0.1)} | options
    return classification(mlp(2, hidden=()), jnp.zeros(8), **options)


@functools.cache
def shallow(**options: Any) -> Task:
    """As `linear`, with a hidden layer of 8, so that there is a body and a head."""
    options = {"steps": 5, "batch_size": 8, "optimizer": sgd(0.1)} | options
    return classification(mlp(2, hidden=(8,)), jnp.zeros(8), **options)


class Normed(nn.Module):
    """A layer, its outputs normalised over the batch, dropout, and a layer.

    The first layer has no bias: normalisation would take it away, and leave its gradient to
    rounding errors.
    """

    head = "Dense_1"

    @nn.compact
    def __call__(self, x: Array, train: bool = False, *, until_head: bool = False) -> Array:
        """Logits, or what the head gets."""
        x = nn.BatchNorm(use_running_average=not train, momentum=0.8)(
            nn.Dense(8, use_bias=False)(x)
        )
        x = nn.Dropout(0.1, deterministic=not train)(nn.relu(x))
        return x if until_head else nn.Dense(2)(x)

    def features(self, x: Array) -> Array:
        """What the head gets."""
        return self(x, until_head=True)


class Idle(nn.Module):
    """A body of 8 and a head, dropout, and statistics of the inputs, which no prediction uses.

    There is no dropout where another statistic, `level`, is above 0.
    """

    head = "Dense_1"

    @nn.compact
    def __call__(self, x: Array, train: bool = False, *, until_head: bool = False) -> Array:
        """Logits, or what the head gets."""
        nn.BatchNorm(use_running_average=not train, use_bias=False, use_scale=False)(x)
        level = self.variable("batch_stats", "level", jnp.zeros, ())
        x = nn.relu(nn.Dense(8)(x))
        if train:
            keep = jax.random.bernoulli(self.make_rng("dropout"), 0.5, x.shape)
            x = jnp.where((level.value > 0) | keep, x, 0.0)
        return x if until_head else nn.Dense(2)(x)

    def features(self, x: Array) -> Array:
        """What the head gets."""
        return self(x, until_head=True)


@functools.cache
def idle() -> Task:
    """As `shallow`, with `Idle`."""
    return classification(Idle(), jnp.zeros(8), steps=5, batch_size=8, optimizer=sgd(0.1))


@functools.cache
def normed(**options: Any) -> Task:
    """As `shallow`, with batch normalisation and dropout."""
    options = {"steps": 5, "batch_size": 8, "optimizer": sgd(0.1)} | options
    return classification(Normed(), jnp.zeros(8), **options)
