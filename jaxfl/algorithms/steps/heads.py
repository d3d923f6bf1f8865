"""A model in two parts: its head, what enters the head, and the weights of both parts."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxfl.core import tree
from jaxfl.core.errors import InputError, check
from jaxfl.core.tree import Layers, select
from jaxfl.core.types import Dataset, Params, Problem
from jaxfl.training.loop import sum_parts


def head_of(problem: Problem, head: Layers | None) -> Layers:
    """The layers that are the head: the given ones, or those that the model names.

    Raises:
      InputError: no layers are given and the model names none, or no layer matches.

    Example:
      >>> head_of(task.problem, None), head_of(task.problem, "kernel")
      ('Dense_1', 'kernel')
    """
    layers = problem.head if head is None else head
    if layers is None:
        raise InputError(
            "this method needs to know the model's head, and the model names none: give "
            "head=PATTERN, a regular expression that finds the head's parameters, or choose "
            "another model",
        )
    # This raises an error if no layer matches.
    select(jax.eval_shape(problem.init, jax.random.key(0)), layers)
    return layers


def features_of(problem: Problem) -> Callable[[Params, Array], Array]:
    """The function that computes the input of the model's head: (params, x [B]) -> [B, d].

    Raises:
      InputError: the model does not define it.

    Example:
      >>> features = features_of(task.problem)
      >>> features(task.problem.init(jax.random.key(0)), jnp.zeros((5, 8))).shape
      (5, 8)
    """
    if problem.features is None:
        raise InputError(
            "this method needs the model's features: give the flax module a method features(x) "
            "that returns what enters its last layer, or choose another model or "
            "statistics=averaged",
        )
    return problem.features


def training_features_of(problem: Problem) -> Callable:
    """The function that computes the input of the model's head in training.

    Features and predictions of a batch are those of one pass, with the same dropout and the same
    statistics of the batch, if `Problem.predict` gets the same mask and key.

    Returns:
      (params, x [B], mask [B], key) -> [B, d].

    Raises:
      InputError: the model does not define its features.

    Example:
      >>> features = training_features_of(task.problem)
      >>> params = task.problem.init(jax.random.key(0))
      >>> features(params, jnp.zeros((5, 8)), jnp.ones(5), jax.random.key(0)).shape
      (5, 8)
    """
    features = features_of(problem)
    if problem.training_features is not None:
        return problem.training_features
    return lambda params, x, mask, key: features(params, x)


def linear_head_of(problem: Problem) -> Layers:
    """The layers that are the head, which has to be one dense layer.

    Raises:
      InputError: the model names no head, or its head has other parameters than a kernel [d, K] and
        a bias [K].

    Example:
      >>> linear_head_of(task.problem)
      'Dense_1'
      >>> linear_head_of(task.problem._replace(head="Dense"))
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: the model's head has parameters of the shapes ...
    """
    layers = head_of(problem, None)
    head, _ = tree.split(jax.eval_shape(problem.init, jax.random.key(0)), layers)
    shapes = sorted((leaf.shape for leaf in jax.tree.leaves(head)), key=len)
    check(
        [len(shape) for shape in shapes] == [1, 2] and shapes[1][1] == shapes[0][0],
        f"the model's head has parameters of the shapes {', '.join(map(str, shapes))}: this method "
        "needs a head that is one dense layer, a kernel [d, K] and a bias [K]",
    )
    return layers


def linear_head(head: Params) -> tuple[Float[Array, "*m d k"], Float[Array, "*m k"]]:
    """The kernel and the bias of a head that is one dense layer, of one model or of a stack.

    Example:
      >>> kernel, bias = linear_head({"kernel": jnp.zeros((8, 2)), "bias": jnp.zeros(2)})
      >>> kernel.shape, bias.shape
      ((8, 2), (2,))
    """
    bias, kernel = sorted(jax.tree.leaves(head), key=lambda leaf: leaf.ndim)
    return kernel, bias


# Examples whose features are computed at a time.
PART = 64


def class_features(
    features: Callable[[Params, Array], Array], model: Params, data: Dataset, classes: int
) -> tuple[Float[Array, "k d"], Float[Array, "k"]]:
    """The mean features of a client's examples of each class, and the numbers of examples.

    Args:
      features: of the problem, see `features_of`.
      model: of the client.
      data: of the client [n, ...], with labels.
      classes: K. With 1 all examples count as one class, whatever their labels are.

    Returns:
      Means [K, d], 0 for a class without examples; and numbers [K].

    Example:
      >>> data = Dataset(jnp.array([[1.0], [3.0], [9.0]]), jnp.array([1, 1, 0]), jnp.ones(3, bool))
      >>> means, counts = class_features(lambda model, x: model * x, 10.0, data, classes=2)
      >>> means.tolist(), counts.tolist()
      ([[90.0], [20.0]], [1.0, 2.0])
    """

    def sums(examples: Dataset) -> tuple[Array, Array]:
        embeddings = jnp.where(examples.mask[:, None] > 0, features(model, examples.x), 0.0)
        dtype = embeddings.dtype
        one = jnp.ones((examples.mask.size, 1), dtype)
        members = one if classes == 1 else jax.nn.one_hot(examples.y, classes, dtype=dtype)
        members = jnp.where(examples.mask[:, None] > 0, members, 0.0)
        return jnp.matmul(members.T, embeddings, precision="highest"), members.sum(axis=0)

    totals, counts = sum_parts(sums, data, PART)
    return totals / jnp.maximum(counts, 1.0)[:, None], counts


def part_weights(
    weights: Float[Array, "m m"],
    shared: str,
    personal: str,
    received: Params,
    personal_weights: Float[Array, "m m"] | None = None,
) -> dict[str, Float[Array, "m m"]]:
    """The weights of a model in two parts: one is averaged, and each client has its own other part.

    Args:
      weights: of the shared part [M, M].
      shared: the name of the shared part.
      personal: the name of the part that clients have of their own.
      received: the shared part [M, ...]. If it has no parameters, its weights are the identity.
      personal_weights: of the personal part [M, M]. None: the identity, since clients keep it.

    Example:
      >>> received = {"body": jnp.zeros((2, 3))}
      >>> part_weights(jnp.full((2, 2), 0.5), "body", "head", received)["head"].tolist()
      [[1.0, 0.0], [0.0, 1.0]]
    """
    identity = jnp.eye(weights.shape[0])
    return {
        shared: weights if jax.tree.leaves(received) else identity,
        personal: identity if personal_weights is None else personal_weights,
    }
