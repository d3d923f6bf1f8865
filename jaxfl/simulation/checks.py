"""What `rounds` checks before and after its scan: the state, the data and the cohorts.

Each check raises an `InputError` of one line, and reads arrays that this process can read.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from flax.errors import ScopeParamShapeError
from jaxtyping import Array, PyTree

from jaxfl.core import tree
from jaxfl.core.errors import InputError, check
from jaxfl.core.streams import check_key
from jaxfl.core.types import Algorithm, Cohort, Dataset, Federation, Pool, PRNGKey, State

__all__ = [
    "check_algorithm",
    "check_client_axis",
    "check_cohorts",
    "check_federation",
    "check_ids",
    "check_key",
    "check_structure",
    "check_validation",
    "label_check",
    "warn_of_sizes",
]


def check_algorithm(algorithm: object) -> None:
    """Raises an `InputError` if something else stands in the place of an algorithm.

    Example:
      >>> check_algorithm(jaxfl.algorithms.fedavg)
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: fedavg is a function: expected the algorithm that it makes, ...
    """
    # JAX adds its flags to the class at run time.
    promotion = jax.config.jax_numpy_dtype_promotion  # pyright: ignore[reportAttributeAccessIssue]
    check(
        promotion != "strict",
        "jax_numpy_dtype_promotion is strict, by which masks and weights have no product: leave it "
        "standard",
    )
    if isinstance(algorithm, Algorithm):
        return
    name = getattr(algorithm, "__name__", "")
    if callable(algorithm) and name:
        raise InputError(
            f"{name} is a function: expected the algorithm that it makes, such as {name}(task)"
        )
    raise InputError(
        f"the algorithm has type {type(algorithm).__name__}: expected what a method makes of a "
        "task, such as jaxfl.algorithms.fedavg(task)"
    )


def check_federation(federation: object) -> None:
    """Raises an `InputError` unless it is a federation whose parts have the same clients.

    Example:
      >>> check_federation(cohort.train)
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: the federation has type Dataset: expected a ...
    """
    if not isinstance(federation, Federation):
        raise InputError(
            f"the federation has type {type(federation).__name__}: expected a Federation, such as "
            "jaxfl.data.federate makes"
        )
    sizes = {name: part.mask.shape[0] for name, part in federation._asdict().items()}
    check(
        len(set(sizes.values())) == 1,
        f"the parts of the federation have different numbers of clients, {sizes}: expected the "
        "same clients in train, val and test",
    )


def check_ids(ids: object, clients: int) -> None:
    """Raises an `InputError` if ids are no array of clients that there are.

    Example:
      >>> check_ids(np.array([9, 10]), clients=10)
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: the ids name client 10: expected clients from 0 to 9
    """
    if not isinstance(ids, jax.Array | np.ndarray):
        raise InputError(
            f"the ids have type {type(ids).__name__}: expected an array of client ids, such as "
            f"jnp.arange({clients})"
        )
    check(
        ids.ndim == 1 and ids.dtype.kind in "iu",
        f"the ids are {ids.dtype} of shape {ids.shape}: expected whole numbers [M], such as "
        f"jnp.arange({clients})",
    )
    if not getattr(ids, "is_fully_addressable", True):
        return
    outside = np.asarray(ids)[(np.asarray(ids) < 0) | (np.asarray(ids) >= clients)]
    check(
        not outside.size,
        f"the ids name client {outside[:1].tolist()[0] if outside.size else ''}: expected clients "
        f"from 0 to {clients - 1}",
    )


def check_validation(algorithm: Algorithm, federation: Federation) -> None:
    """Raises an `InputError` if the algorithm learns from validation data and no client has any.

    Example:
      >>> algorithm = jaxfl.algorithms.pfedgat(task)  # learns from validation data
      >>> empty = cohort.val._replace(mask=jnp.zeros_like(cohort.val.mask))
      >>> check_validation(algorithm, jaxfl.types.Federation(cohort.train, empty, empty))
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: ...
    """
    mask = federation.val.mask
    if not algorithm.validates or not getattr(mask, "is_fully_addressable", True):
        return
    check(
        bool((mask > 0).any()),
        "the method learns from the clients' validation data, and no client has any: give each "
        "some, such as a fifth of its examples (--val 0.2), or choose another method",
    )


def warn_of_sizes(algorithm: Algorithm, federation: Federation) -> None:
    """Warns if the method does badly with clients that have so many training examples.

    Example:
      >>> federation = jaxfl.types.Federation(cohort.train, cohort.val, cohort.val)
      >>> algorithm = jaxfl.algorithms.fednova(task)
      >>> warn_of_sizes(algorithm, federation) is None  # four clients of equal sizes
      True
    """
    mask = federation.train.mask
    if algorithm.warn_of_sizes is None or not getattr(mask, "is_fully_addressable", True):
        return
    algorithm.warn_of_sizes(np.count_nonzero(np.asarray(mask) > 0, axis=1))


def check_client_axis(federation: Federation, state: PyTree) -> None:
    """Raises an `InputError` unless the state has one row for each client of the federation.

    Example:
      >>> federation = jaxfl.data.ridge(0, dim=3).federation  # of 150 clients
      >>> check_client_axis(federation, State(jnp.zeros((4, 2)), ()))
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: the state has clients' arrays of shape [(4, 2)], the ...
    """
    check(
        isinstance(state, State),
        f"the state has type {type(state).__name__}: expected the State of algorithm.init",
    )
    clients = federation.train.mask.shape[0]
    wrong = [np.shape(x) for x in jax.tree.leaves(state.clients) if np.shape(x)[:1] != (clients,)]
    check(
        not wrong,
        f"the state has clients' arrays of shape {wrong[:1]}, the federation has {clients} "
        "clients: expected a row for each; make the state by algorithm.init of this federation",
    )


def check_structure(
    algorithm: Algorithm, key: PRNGKey, federation: Federation, state: State
) -> None:
    """Raises an `InputError` if the state is not one that this algorithm makes.

    Example:
      >>> federation = jaxfl.data.ridge(0, dim=3).federation  # of 150 clients
      >>> algorithm = jaxfl.algorithms.fedavg(jaxfl.regression(jaxfl.models.linear(), np.zeros(3)))
      >>> check_structure(algorithm, jax.random.key(0), federation, State((), jnp.zeros(7)))
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: the state is of another algorithm, model or federation: ...
    """
    expected = jax.eval_shape(algorithm.init, key, federation.train)
    same = jax.tree.structure(expected) == jax.tree.structure(state) and all(
        struct.shape == np.shape(leaf)
        for struct, leaf in zip(jax.tree.leaves(expected), jax.tree.leaves(state), strict=True)
    )
    check(
        same,
        "the state is of another algorithm, model or federation: expected one with the arrays "
        f"{_shapes(expected)}, got {_shapes(state)}; make it by algorithm.init",
    )


def _shapes(tree: PyTree) -> str:
    shapes = [str(np.shape(x)) for x in jax.tree.leaves(tree)]
    return ", ".join(shapes[:6]) + (", ..." if len(shapes) > 6 else "")


def label_check(algorithm: Algorithm) -> Callable[[Federation, State], None]:
    """A check of labels against the number of the model's outputs.

    Targets are labels if they are integers, and the model has several outputs for each of them.

    Returns:
      check_label_range(federation, state), which raises an `InputError` if a label is out of range.
      It does nothing if the targets are the same arrays as in its last call that raised no error.

    Example:
      >>> check_label_range = label_check(jaxfl.algorithms.fedavg(task))
      >>> federation = jaxfl.types.Federation(cohort.train, cohort.val, cohort.val)
      >>> state = jaxfl.algorithms.fedavg(task).init(jax.random.key(0), cohort.train)
      >>> check_label_range(federation, state) is None  # labels 0 and 1, two outputs
      True
    """
    in_range: tuple = ()
    outputs: int | None = None

    def check_label_range(federation: Federation, state: State) -> None:
        nonlocal in_range, outputs
        targets = tuple(data.y for data in federation)
        if [id(y) for y in targets] == [id(y) for y in in_range]:
            return
        parts = {name: data for name, data in federation._asdict().items() if _has_labels(data)}
        if parts and outputs is None:
            outputs = _outputs(algorithm, federation, state)
        for name, data in parts.items():
            if outputs is not None and outputs > 1:
                _check_range(name, data, outputs)
        in_range = targets

    return check_label_range


def _has_labels(data: Dataset | Pool) -> bool:
    """Whether the targets are integers that this process can read."""
    local = all(getattr(leaf, "is_fully_addressable", True) for leaf in jax.tree.leaves(data.y))
    return local and data.y.dtype.kind in "iu" and 0 not in data.y.shape


def _check_range(name: str, data: Dataset | Pool, outputs: int) -> None:
    """Raises an `InputError` if a label that counts is not one of the model's outputs."""
    counts = np.asarray(data.mask) > 0
    if isinstance(data, Pool):
        counts = np.asarray(counts.any(axis=0))
        if data.groups is not None:
            counts = counts[np.asarray(data.groups)]
    if counts.shape != data.y.shape[: counts.ndim] or not counts.any():
        return
    labels = np.asarray(jax.device_get(data.y)[np.nonzero(counts)])
    if labels.ndim > 1:
        # Of positions, -1 is none.
        labels = labels[labels != -1]
        if not labels.size:
            return
    low = labels.min()
    high = labels.max()
    check(
        low >= 0 and high < outputs,
        f"the {name} data hold labels from {low} to {high}, the model has {outputs} outputs: "
        f"expected labels from 0 to {outputs - 1}, or a model with more outputs; a model that "
        "learns without labels takes data without them, jaxfl.data.from_arrays(x, None)",
    )


def _outputs(algorithm: Algorithm, federation: Federation, state: State) -> int:
    """The number of outputs of the model that a client deploys; 0 if it cannot be told."""

    def predict(federation: Federation, state: State) -> PyTree:
        train, val = tree.take((federation.train, federation.val), jnp.arange(1))
        models = algorithm.models(state, Cohort(jnp.arange(1), train, val))
        model, train = tree.at((models, train), 0)
        if algorithm.recall is not None:
            model = algorithm.recall(model, train)
        return algorithm.apply(model, tree.at(train.x, slice(1)))

    try:
        predictions = jax.eval_shape(predict, federation, state)
    except ScopeParamShapeError:
        shape = tree.shapes(federation.train.x, 1, axes=2)
        shapes = ", ".join(str(x.shape[1:]) for x in jax.tree.leaves(shape))
        raise InputError(
            f"the model was made for inputs of another shape than those of the clients, {shapes}: "
            "make the task with an example of them"
        ) from None
    except Exception:  # the round itself says what is wrong
        return 0
    # Predictions that are a pytree are no logits.
    if not hasattr(predictions, "shape"):
        return 0
    # Of an example, without the axis of clients.
    target = federation.train.y.ndim - 2
    return predictions.shape[-1] if len(predictions.shape) == target + 2 else 0


def check_cohorts(ids: Array | np.ndarray, clients: int, start: int) -> None:
    """Raises an `InputError` if a cohort [T, M] names a client twice, or one that there is not.

    Example:
      >>> check_cohorts(np.array([[0, 2], [1, 1]]), clients=3, start=0)
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: the participation names twice client 1 in round 1: expected ...
    """
    if not getattr(ids, "is_fully_addressable", True):
        return
    rows = np.asarray(ids)
    outside = (rows < 0) | (rows >= clients)
    twice = np.zeros(rows.shape, bool)
    twice[:, 1:] = rows[:, 1:] == rows[:, :-1]  # the ids of a round are sorted
    for wrong, what in ((outside, "names client"), (twice, "names twice client")):
        if wrong.any():
            number, place = np.argwhere(wrong)[0]
            raise InputError(
                f"the participation {what} {rows[number, place]} in round {start + number}: "
                f"expected each of the clients 0 to {clients - 1} at most once"
            )
