"""The same number of gradients for every method: the papers compare methods that compute up to ten times as much."""

import dataclasses

import jax
import jax.numpy as jnp

from jaxfl.errors import check
from jaxfl.experiment.build import Data, build
from jaxfl.experiment.config import Config
from jaxfl.types import Cohort


def equalise(configs: list[Config], data: Data) -> list[Config]:
    """The configs with local steps such that each method takes as many gradients as one `fit` of the steps given.

    Phases of a fixed length stay as they are; a method whose fixed phases alone exceed the budget
    keeps one step.

    Args:
      configs: of one setting.
      data: its clients.

    Raises:
      InputError: local epochs are given, whose number of batches differs between clients.
    """
    return [_fit(config, data) for config in configs]


def gradients(config: Config, data: Data) -> float:
    """Batches whose gradient a client computes in a round, mean over all clients; nothing else is computed."""
    built = build(config, data)
    federation = (
        data.federation if config.seeds == 1 else jax.tree.map(lambda x: x[0], data.federation)
    )

    def count(key, federation):
        ids = jnp.arange(federation.train.mask.shape[0])
        state = built.algorithm.init(key, federation.train)
        return built.algorithm.round(key, state, Cohort(ids, federation.train, federation.val))[
            1
        ].batches

    return float(jax.jit(count)(jax.random.key(0), federation).mean())


def _fit(config: Config, data: Data) -> Config:
    check(
        config.local_epochs is None,
        "an equal budget is one of steps: give --local-steps in place of --local-epochs",
    )
    budget = config.local_steps or 200
    steps, counted = [], []
    for number in (budget, max(budget // 2, 1)):
        steps.append(number)
        counted.append(gradients(dataclasses.replace(config, local_steps=number), data))
    if counted[0] == budget or counted[0] == counted[1]:
        return config
    slope = (counted[0] - counted[1]) / (steps[0] - steps[1])
    return dataclasses.replace(
        config, local_steps=max(1, round(budget - (counted[0] - budget) / slope))
    )
