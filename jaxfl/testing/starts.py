"""Where local training begins, read from the program of a round: nothing is computed."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from jaxfl.core.types import (
    AlgorithmFactory,
    Cohort,
    Dataset,
    Federation,
    Fit,
    Objective,
    Params,
    PRNGKey,
    State,
    Task,
)
from jaxfl.experiment.privacy.dataflow import follow, mark, traced_call


def starts_from_server(
    factory: AlgorithmFactory, task: Task, hyper: dict[str, Any], federation: Federation
) -> bool:
    """Whether local training begins from the server's state, or is drawn to it.

    If not, clients train from what they have kept since they last took part. An answer of False can
    be relied on for the server's state, in a method that calls `Task.trainer`. Of mixtures that a
    round makes of other clients' states before training it says nothing: the method states them,
    `mixes_before_training`.
    """

    def trainer(objective: Objective, **differing: Any) -> Fit:
        fit = task.trainer(objective, **differing)

        def marked(key: PRNGKey, params: Params, anchor: PyTree, cohort: Cohort) -> Any:
            outside, results = traced_call(fit, key, params, anchor, cohort)
            return mark("fit", (params, anchor, outside), results)

        return marked

    algorithm = factory(task._replace(trainer=trainer), **hyper)

    def proceed(
        server: PyTree, clients: PyTree, key: PRNGKey, train: Dataset, val: Dataset
    ) -> State:
        cohort = Cohort(jnp.arange(train.mask.shape[0]), train, val, round=0)
        return algorithm.round(key, State(clients, server), cohort)[0]

    key = jax.random.key(0)
    shape = partial(jax.tree.map, lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype))
    train, val = shape((federation.train, federation.val))
    clients, server = jax.eval_shape(algorithm.init, key, train)
    program = jax.make_jaxpr(proceed)(server, clients, key, train, val).jaxpr
    own = len(jax.tree.leaves(server))
    return follow(program, [place < own for place in range(len(program.invars))]).learned
