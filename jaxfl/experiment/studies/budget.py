"""The same number of gradients for every method: some compute ten times as much as others."""

import jax
import jax.numpy as jnp

from jaxfl.core.errors import check
from jaxfl.core.types import Cohort
from jaxfl.experiment.config import Config, Resolved
from jaxfl.experiment.config.hints import value_of
from jaxfl.experiment.session.build import build
from jaxfl.experiment.session.gather import Data


def equalise(configs: list[Resolved[Config]], data: Data) -> list[Resolved[Config]]:
    """The configs with other local steps, so that all methods take the same number of gradients.

    That is the number of one `fit` with the steps given. Phases of a fixed length stay as they are;
    a method whose fixed phases alone exceed the budget keeps one step.

    Args:
      configs: of one setting.
      data: its clients.

    Raises:
      InputError: local epochs are given, whose number of batches differs between clients.
    """
    return [_fit(config, data) for config in configs]


def gradients(config: Resolved[Config], data: Data) -> float:
    """Batches whose gradient a client computes in a round, mean over all clients.

    Nothing else is computed.
    """
    built = build(config, data)

    def count(key, federation):
        ids = jnp.arange(federation.train.mask.shape[0])
        state = built.algorithm.init(key, federation.train)
        cohort = Cohort(ids, federation.train, federation.val, round=0)
        _, info = built.algorithm.round(key, state, cohort)
        return info.batches

    counts = jax.jit(count)(jax.random.key(0), built.seeds.one(data.federation))
    return float(counts.mean())


def _fit(config: Resolved[Config], data: Data) -> Resolved[Config]:
    check(
        config.config.local_epochs is None,
        "an equal budget is one of steps: give --local-steps in place of --local-epochs",
    )
    check(
        data.stored is None,
        "--store and --equal-budget are given, which needs all clients in memory: leave out one",
    )
    budget = value_of(config.config.local_steps)
    fewer = max(budget // 2, 1)
    count = gradients(config, data)
    count_of_fewer = gradients(config.replace(local_steps=fewer), data)
    if count in (budget, count_of_fewer):
        return config
    per_step = (count - count_of_fewer) / (budget - fewer)
    return config.replace(local_steps=max(1, round(budget - (count - budget) / per_step)))
