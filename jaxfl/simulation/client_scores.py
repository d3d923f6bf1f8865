"""Scores of the clients' models on their data: all clients in one program, batch by batch."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree, Shaped

from jaxfl.core import order, target, tree
from jaxfl.core.batch_function import of_batch
from jaxfl.core.errors import check
from jaxfl.core.options import checked
from jaxfl.core.over_clients import over_clients
from jaxfl.core.ragged import is_ragged
from jaxfl.core.types import Chunk, Dataset, Params, Pool
from jaxfl.simulation.label_range import NO_LABELS, LabelRange, label_range
from jaxfl.simulation.metrics import Metric, named_metrics


@checked
def score_clients(
    apply: Callable,
    score: Callable,
    params: Params,
    data: Dataset | Pool,
    *,
    batch_size: int | None = None,
    chunk: Chunk = "auto",
    compared: Callable | None = None,
) -> Float[Array, "m"]:
    """The weighted mean score of each client's model on its data [M].

    Args:
      apply: (params, x [B]) -> prediction [B] of one client.
      score: (prediction [B], y [B]) -> [B], as `Problem.score`.
      params: [M, ...].
      data: [M, n, ...], or one pool [n, ...] with weights [M, n], or [M, K] of its groups.
      batch_size: number of examples predicted at a time. None: 20 for images on a CPU, so that the
        patches of a batch fit into the cache; otherwise 256.
      chunk: clients computed side by side, see `over_clients`.
      compared: (x [B], y [B]) -> what the score takes in place of y, see `Problem.compared`.
        None: y.

    Example:
      >>> data = Dataset(jnp.ones((2, 3, 1)), jnp.ones((2, 3)), jnp.ones((2, 3), bool))
      >>> score = lambda prediction, y: -jnp.abs(prediction[:, 0] - y)
      >>> score_clients(lambda w, x: w * x, score, jnp.array([1.0, 5.0]), data).tolist()
      [0.0, -4.0]
    """
    options: Any = {"batch_size": batch_size, "chunk": chunk, "compared": compared}
    return scores_and_labels(apply, score, params, data, **options)[0]


@checked
def scores_and_labels(
    apply: Callable,
    score: Callable,
    params: Params,
    data: Dataset | Pool,
    *,
    batch_size: int | None = None,
    chunk: Chunk = "auto",
    compared: Callable | None = None,
) -> tuple[Float[Array, "m"], Float[Array, "m"]]:
    """As `score_clients`, and which models predict one label, see `label_range.one_label`.

    A score of an example that is NaN, as of a model that has diverged, is minus infinity.

    Args:
      apply: (params, x [B]) -> prediction [B] of one client.
      score: (prediction [B], y [B]) -> [B].
      params: [M, ...].
      data: [M, n, ...], or one pool [n, ...] with weights [M, n], or [M, K] of its groups.
      batch_size: number of examples predicted at a time.
      chunk: clients computed side by side.
      compared: as for `score_clients`.

    Returns:
      The scores [M], and 1 for each client whose examples all get one label, though they have
      several, else 0; NaN where they have one, or where predictions are no logits [M].

    Example:
      >>> data = Dataset(jnp.ones((2, 3, 1)), jnp.array([[0, 1, 1]] * 2), jnp.ones((2, 3), bool))
      >>> apply = lambda w, x: jnp.concatenate([w * x, 0 * x], axis=1)  # logits
      >>> score = lambda logits, y: (logits.argmax(axis=1) == y) * 1.0
      >>> scores, labels = scores_and_labels(apply, score, jnp.array([1.0, -1.0]), data)
      >>> labels.tolist()
      [1.0, 1.0]
    """
    feature_axes = feature_axes_of(data)
    compare = compared or _targets

    def one(
        params: Params, data: Dataset, groups: Array | None = None
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        def add(
            start: Array, rows: Array, weights: Array, sums: tuple[Array, Array, LabelRange]
        ) -> tuple[Array, Array, LabelRange]:
            total, weight, labels = sums
            x = tree.at(data.x, rows)
            predictions, y = apply(params, x), compare(x, data.y[rows])
            values = of_batch(score, predictions, y, weights)
            values = jnp.where(jnp.isnan(values), -jnp.inf, values)
            total += jnp.sum(jnp.where(weights > 0, values * weights, 0.0))
            weight += jnp.sum(weights, dtype=jnp.float32)
            return total, weight, labels.join(label_range(predictions, y, weights))

        zero = jnp.zeros(())
        batches = _Batches(data.weights, groups, feature_axes, batch_size)
        total, weight, labels = batches.scan(add, (zero, zero, NO_LABELS))
        mean = jnp.where(weight > 0, total / jnp.where(weight > 0, weight, 1.0), jnp.nan)
        return mean, labels.one_label

    return _over_sets(one, params, data, chunk)


class _Batches:
    """The examples of one client that count, in batches: those without such examples are left out.

    Args:
      mask: [n], the weight of each example; with groups [K], that of each group.
      groups: [n], the group of each example.
      feature_axes: of one example.
      size: of a batch, see `score_clients`.
    """

    def __init__(self, mask: Array, groups: Array | None, feature_axes: int, size: int | None):
        self._mask = mask
        self._groups = groups
        self._feature_axes = feature_axes
        if size is None:
            size = 20 if feature_axes == 3 and target.platform() == "cpu" else 256
        # The examples that count come first.
        self._counts = mask != 0 if groups is None else (mask != 0)[groups]
        self.size = min(size, max(self._counts.size, 1))
        rows = order.real_first(self._counts)
        self.rows = jnp.pad(rows, (0, -rows.size % self.size))

    def scan(self, step: Callable, start: PyTree) -> PyTree:
        """Goes through the batches.

        Args:
          step: (place of the first example, row numbers [B], weights [B], result) -> result. The
            weight of a row that does not count is 0.
          start: the result before the first batch.
        """
        count = jnp.count_nonzero(self._counts)

        def batch(number: Array, result: PyTree) -> PyTree:
            first = number * self.size
            rows = lax.dynamic_slice(self.rows, (first,), (self.size,))
            if self._feature_axes == 3:
                rows = order.not_fused(rows, self._counts.size)
            real = first + jnp.arange(self.size) < count
            weights = self._mask[rows if self._groups is None else self._groups[rows]]
            return step(first, rows, jnp.where(real, weights, 0.0), result)

        return lax.fori_loop(0, -(-count // self.size), batch, start)


def feature_axes_of(data: Dataset | Pool) -> int:
    """The number of axes of one example; of a pytree of arrays, that of the one with most.

    Example:
      >>> feature_axes_of(Pool(jnp.zeros((3, 8)), jnp.zeros(3), jnp.ones((2, 3))))
      1
    """
    before = 1 if isinstance(data, Pool) else 2
    return max(x.ndim for x in jax.tree.leaves(data.x, is_leaf=is_ragged)) - before


def _targets(x: PyTree, y: PyTree) -> PyTree:
    return y


def _over_sets(one: Callable, params: Params, data: Dataset | Pool, chunk: Chunk) -> PyTree:
    """A function (params, data, groups) of one client, over the clients of a set."""
    if not isinstance(data, Pool):
        return over_clients(one, chunk)(params, data)

    def from_pool(params: Params, mask: Array, x: PyTree, y: Array, groups: Array | None) -> PyTree:
        return one(params, Dataset(x, y, mask), groups)

    shared = (data.x, data.y, data.groups)
    return over_clients(from_pool, chunk, *shared)(params, data.mask)


class Predictions(NamedTuple):
    """The predictions of a client on a set, those that count first; elsewhere all is 0."""

    # [n, ...]
    values: PyTree
    # [n, ...]
    y: PyTree
    # [n]
    weight: Float[Array, "..."]


@checked
def metrics_of_clients(
    apply: Callable,
    metrics: Sequence[str] | Mapping[str, Metric],
    params: Params,
    data: Dataset | Pool,
    *,
    batch_size: int | None = None,
    chunk: Chunk = "auto",
    compared: Callable | None = None,
    pooled: Bool[Array, "m"] | Bool[np.ndarray, "m"] | None = None,
) -> tuple[dict[str, Float[Array, "m"]], dict[str, Float[Array, ""]]]:
    """The scores of each client's model on its data by several metrics, from one prediction.

    Args:
      apply: (params, x [B]) -> prediction [B] of one client.
      metrics: names of `METRICS`, or metrics by names of one's own.
      params: [M, ...].
      data: [M, n, ...], or one pool [n, ...] with weights [M, n], or [M, K] of its groups.
      batch_size: number of examples predicted at a time, see `score_clients`.
      chunk: clients computed side by side, see `over_clients`.
      compared: as for `score_clients`.
      pooled: the clients whose predictions together have a score [M]. None: there is no such score.
        The predictions of all clients are then in memory, so this is for test sets of the clients'
        own, not for a pool.

    Returns:
      By the name of each metric the scores of the clients [M], and those of the predictions of the
      pooled clients together; higher is better, see `Metric.stored`. NaN for a client without
      examples, and where the metric is not defined.

    Example:
      >>> data = Dataset(jnp.ones((2, 3, 1)), jnp.zeros((2, 3), int), jnp.ones((2, 3), bool))
      >>> apply = lambda w, x: jnp.concatenate([w * x, 0 * x], axis=1)  # logits
      >>> params = jnp.array([1.0, -1.0])
      >>> scores, _ = metrics_of_clients(apply, ["accuracy", "auc"], params, data)
      >>> scores["accuracy"].tolist(), scores["auc"].tolist()
      ([1.0, 0.0], [nan, nan])
    """
    by_name = named_metrics(metrics)
    feature_axes = feature_axes_of(data)
    compare = compared or _targets

    def score(one: Predictions) -> dict[str, Float[Array, ""]]:
        for name, metric in by_name.items():
            _check_metric(name, metric, one)
        examples = one.weight.sum() > 0
        values = {name: metric.score(*one) for name, metric in by_name.items()}
        for name, value in values.items():
            check(
                jnp.shape(value) == (),
                f"the metric {name!r} gives an array of shape {jnp.shape(value)}: expected one "
                "number, of all examples of a client",
            )
        return {
            name: jnp.where(examples, by_name[name].stored(value), jnp.nan)
            for name, value in values.items()
        }

    def predict(params: Params, data: Dataset, groups: Array | None = None) -> Predictions:
        batches = _Batches(data.weights, groups, feature_axes, batch_size)

        def batch(rows: Array, weights: Array) -> Predictions:
            x = tree.at(data.x, rows)
            predictions, y = jax.tree.map(
                partial(_zero_without_weight, weights),
                (apply(params, x), compare(x, data.y[rows])),
            )
            return Predictions(predictions, y, weights.astype(jnp.float32))

        shapes = jax.eval_shape(batch, batches.rows[: batches.size], jnp.zeros(batches.size))
        length = batches.rows.size
        empty = jax.tree.map(lambda x: jnp.zeros((length, *x.shape[1:]), x.dtype), shapes)

        def put(start: Array, rows: Array, weights: Array, all_rows: Predictions) -> Predictions:
            def write(whole: Array, part: Array) -> Array:
                return lax.dynamic_update_slice_in_dim(whole, part, start, axis=0)

            return jax.tree.map(write, all_rows, batch(rows, weights))

        return batches.scan(put, empty)

    if pooled is None:
        return _over_sets(lambda *client: score(predict(*client)), params, data, chunk), {}

    def keep(*client: PyTree) -> tuple[dict[str, Float[Array, ""]], Predictions]:
        predictions = predict(*client)
        return score(predictions), predictions

    scores, predictions = _over_sets(keep, params, data, chunk)
    members = jnp.asarray(pooled)[:, None]
    together = predictions._replace(weight=jnp.where(members, predictions.weight, 0.0))
    return scores, score(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), together))


def _check_metric(name: str, metric: Metric, one: Predictions) -> None:
    """Raises an `InputError` if a metric of labels or numbers is asked for of something else."""
    if metric.targets == "any":
        return
    check(
        isinstance(one.values, Array) and isinstance(one.y, Array),
        f"the metric {name!r} is of one array of predictions and one of targets, and here are "
        "several: leave metrics out, so that models are scored by their task, or give one of your "
        "own",
    )
    check(
        metric.targets != "labels" or one.y.dtype.kind in "iub",
        f"the metric {name!r} is of labels, and what predictions are compared with is "
        f"{one.y.dtype}: choose one of numbers, such as rmse, or leave metrics out",
    )


def _zero_without_weight(weights: Float[Array, "b"], values: Shaped[Array, "b ..."]) -> Array:
    """The values, and 0 in rows of weight 0, which may hold anything."""
    counts = (weights != 0).reshape(-1, *[1] * (values.ndim - 1))
    return jnp.where(counts, values, jnp.zeros((), values.dtype))
