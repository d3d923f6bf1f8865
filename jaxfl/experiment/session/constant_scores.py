"""The scores of each client's constant predictor: what a model must exceed to have learned.

Of labels, the prediction is the majority label of the client's own training examples, and the
probabilities are the frequencies of the labels there, of all positions where each has a label, and
of each label alone where an example may have several; of numbers, it is the mean of the targets. Of
times to an event, all examples have the same risk, and in bins of time the client's own hazards.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxfl.core import tree
from jaxfl.core.options import checked
from jaxfl.core.over_clients import over_clients
from jaxfl.core.types import Chunk, Dataset, Federation, Pool
from jaxfl.experiment.session.build import Built
from jaxfl.experiment.session.seeds import Seeds
from jaxfl.simulation import mesh
from jaxfl.simulation.client_scores import metrics_of_clients, score_clients
from jaxfl.simulation.evaluation import Evaluation, Scores
from jaxfl.simulation.metrics import Metric
from jaxfl.simulation.on_disk.evaluate import TOGETHER, in_parts
from jaxfl.training.survival import in_bins

# A label that does not occur has this probability, the one that scikit-learn gives to what a model
# excludes, so that one example of it does not make the log loss infinite.
LEAST = float(np.finfo(np.float32).eps)


def evaluate_constant(built: Built, evaluated: np.ndarray) -> Evaluation:
    """The scores of the constant predictors, by the run's metrics and on its test examples.

    Args:
      built: the run.
      evaluated: ids of the clients [S, E].

    Returns:
      NumPy arrays [S, E], as `Record.evaluation` has them, without validation scores.
    """
    options = {
        "score": built.task.problem.score,
        "metrics": tuple(built.named_metrics.items()),
        "classes": built.data.source.classes,
        "survival": built.data.source.survival,
        "ends": built.data.source.ends,
        "chunk": built.options.run.chunk,
    }
    seeds, stored, pooled = built.seeds, built.data.stored, built.pooled
    # NaN is no score.
    with jax.debug_nans(False), jax.set_mesh(mesh.make_mesh(built.devices)):
        if stored is None:
            arguments = (built.data.federation, seeds.without_axis(evaluated), pooled)
            return seeds.with_axis(mesh.fetch(_evaluate(*arguments, count=seeds.count, **options)))
        parts = []
        for some in in_parts(evaluated[0], TOGETHER):
            arguments = (mesh.place(stored.read(some)), np.arange(some.size), None)
            parts.append(mesh.fetch(_evaluate(*arguments, count=1, **options)))
    whole = jax.tree.map(lambda *x: np.concatenate(x)[: evaluated.shape[1]], *parts)
    return seeds.with_axis(whole)


# One program for all methods on the same clients.
@partial(
    jax.jit, static_argnames=("count", "score", "metrics", "classes", "survival", "ends", "chunk")
)
def _evaluate(
    federation: Federation,
    ids: Array | np.ndarray,
    pooled: Array | np.ndarray | None,
    *,
    count: int,
    score: Callable,
    metrics: tuple[tuple[str, Metric], ...],
    classes: int,
    survival: bool,
    ends: tuple[float, ...],
    chunk: Chunk,
) -> Evaluation:
    """The evaluation of `evaluate_constant`, of clients in memory and `count` seeds."""

    def of_one_seed(
        federation: Federation, ids: Array, pooled: Array | np.ndarray | None
    ) -> Evaluation:
        train, test = tree.take(federation.train, ids), federation.test
        test = (
            test._replace(mask=test.mask[ids]) if isinstance(test, Pool) else tree.take(test, ids)
        )
        params = same_hazards(train, ends, chunk) if survival else constants(train, classes, chunk)
        unknown = jnp.full(ids.shape, jnp.nan)

        def apply(params: Array, x: PyTree) -> Array:
            of_positions = classes and train.y.dtype != bool
            positions = train.y.shape[2:] if of_positions else ()
            return jnp.broadcast_to(params, (tree.rows(x), *positions, params.size))

        if not metrics:
            scores = score_clients(apply, score, params, test, chunk=chunk)
            return Evaluation(Scores(unknown, scores))
        members = None if pooled is None else jnp.asarray(pooled)[ids]
        scores, together = metrics_of_clients(
            apply, dict(metrics), params, test, chunk=chunk, pooled=members
        )
        (first, _), *others = metrics
        further = {name: Scores(unknown, scores[name]) for name, _ in others}
        return Evaluation(Scores(unknown, scores[first], further, together))

    return Seeds(0, count).each(of_one_seed, (0, 0, None))(federation, ids, pooled)


@checked
def constants(train: Dataset, classes: int, chunk: Chunk = "auto") -> Float[Array, "m k"]:
    """What each client predicts of every example: logits, or numbers [M, k].

    Args:
      train: the training examples [M, n, ...].
      classes: the number of labels; 0 for numbers as targets.
      chunk: clients computed side by side.

    Example:
      >>> train = Dataset(jnp.zeros((1, 4, 1)), jnp.array([[1, 1, 0, 1]]), jnp.ones((1, 4), bool))
      >>> jnp.exp(constants(train, classes=2)).round(3).tolist()
      [[0.25, 0.75]]
    """

    def of_client(data: Dataset) -> Float[Array, "k"]:
        y = data.y[jnp.arange(data.mask.size)]
        weight = data.mask.astype(jnp.float32)
        if y.dtype == bool:
            counts = jnp.where(y, weight[:, None], 0.0).sum(axis=0)
            share = counts / jnp.maximum(weight.sum(), 1)
            return jnp.log(jnp.maximum(share, LEAST)) - jnp.log(jnp.maximum(1 - share, LEAST))
        if classes:
            each = jnp.broadcast_to(weight.reshape(-1, *[1] * (y.ndim - 1)), y.shape)
            # A position without a label, which is -1, does not count.
            each = jnp.where(y >= 0, each, 0.0)
            y = jnp.where(each > 0, y, 0)
            counts = jnp.zeros(classes).at[y.reshape(-1)].add(each.reshape(-1))
            return jnp.log(jnp.maximum(counts / jnp.maximum(counts.sum(), 1), LEAST))
        y = y.reshape(weight.size, -1)
        total = jnp.where(weight[:, None] > 0, y * weight[:, None], 0.0).sum(axis=0)
        return total / jnp.maximum(weight.sum(), 1)

    return over_clients(of_client, chunk)(train)


@checked
def same_hazards(
    train: Dataset, ends: tuple[float, ...], chunk: Chunk = "auto"
) -> Float[Array, "m k"]:
    """What each client predicts of every example's time to an event: logits of hazards [M, K].

    The hazard of a bin is the share of events among those who are free of it at the bin's beginning
    and known to be so, or to have it, at its end. Without bins it is a log risk of 0 [M, 1].

    Args:
      train: the training examples [M, n, ...].
      ends: of the bins [K].
      chunk: clients computed side by side.

    Example:
      >>> y = jnp.array([[[1.0, 1.0], [2.0, 0.0], [2.0, 1.0]]])
      >>> train = Dataset(jnp.zeros((1, 3, 1)), y, jnp.ones((1, 3), bool))
      >>> jax.nn.sigmoid(same_hazards(train, (1.0, 2.0))).round(2).tolist()
      [[0.33000001311302185, 0.5]]
    """

    def of_client(data: Dataset) -> Float[Array, "k"]:
        if not ends:
            return jnp.zeros(1)
        y = data.y[jnp.arange(data.mask.size)]
        weight = data.mask.astype(jnp.float32)[:, None]
        events, others = (
            jnp.sum(jnp.where((weight > 0) & each, weight, 0.0), axis=0)
            for each in in_bins(y, ends)
        )
        return jnp.log(jnp.maximum(events, LEAST)) - jnp.log(jnp.maximum(others, LEAST))

    return over_clients(of_client, chunk)(train)
