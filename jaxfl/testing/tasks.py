"""Small tasks, on examples of eight features and two classes."""

import functools
from typing import Any

import jax.numpy as jnp

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
