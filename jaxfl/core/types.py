"""The types that everything speaks, and the letters of the axes.

Axes (the same letter everywhere): C clients, M cohort (the clients of one round), n padded examples
of a client, B batch, D parameters of a model, K clusters, T rounds. A shape in brackets stands
beside the field it describes.

A NamedTuple is a pytree and may be traced. A frozen dataclass is never traced, except `Ragged`.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from jaxfl.core.batch_function import of_batch
from jaxfl.core.edges import KeepEdges, keep_all_edges

# A hyper-parameter on which no code branches, so that `vmap` can sweep it.
Scalar = float | int | Array
PRNGKey = Key[Array, ""]
# How many clients are computed side by side.
Chunk = int | Literal["auto", "all"]
# The name of the client axis in a mesh of devices.
CLIENTS = "clients"
# One model, or models stacked with the client axis first.
Params = PyTree


class Dataset(NamedTuple):
    """Padded examples. No result depends on rows where the mask is 0, not even if they are NaN."""

    # [..., n, *feature], an array or a `ragged.Ragged`, which is indexed alike and has no padding;
    # or a pytree of these, such as {"image": ..., "mask": ...}
    x: Any
    # [..., n, *target], likewise
    y: Any
    # [..., n] bool, or float with the weight of each example in data that is only evaluated
    mask: Array
    # [..., n] the weight of each example in losses and scores; None: all weigh 1
    weight: Array | None = None

    @property
    def weights(self) -> Any:
        """What each row weighs in losses and scores [..., n], 0 for padding.

        The number of examples is that of the mask, whatever they weigh.

        Example:
          >>> mask = jnp.array([True, True, False])
          >>> Dataset(jnp.zeros(3), jnp.zeros(3), mask, jnp.array([0.5, 2.0, 1.0])).weights.tolist()
          [0.5, 2.0, 0.0]
        """
        if self.weight is None:
            return self.mask
        return jnp.where(self.mask > 0, self.mask * self.weight, 0.0)


class Pool(NamedTuple):
    """One set of examples for all clients; each client weighs it differently (pFedGraph's test).

    Example:
      >>> label = jnp.array([0, 1, 1])
      >>> Pool(jnp.zeros((3, 8)), label, jnp.array([[0.2, 0.8]]), label).weights.tolist()
      [[0.20000000298023224, 0.800000011920929, 0.800000011920929]]
    """

    x: Any  # [n, *feature], an array or a pytree of arrays
    y: Array  # [n, *target]
    # [C, n] the weight of each example for each client; with groups [C, K] that of each group
    mask: Array
    # [n] the group of each example, from 0 to K - 1, such as its label; None: all weigh for
    # themselves
    groups: Array | None = None

    @property
    def weights(self) -> Array | np.ndarray:
        """The weight of each example for each client [C, n], which may take much memory."""
        if self.groups is None:
            return self.mask
        on_host = isinstance(self.mask, np.ndarray)
        take: Callable = np.take_along_axis if on_host else jnp.take_along_axis
        return take(self.mask, self.groups[..., None, :], axis=-1)


class Federation(NamedTuple):
    """The data of all clients."""

    train: Dataset  # [C, n, ...]
    val: Dataset  # [C, n, ...]
    test: Dataset | Pool  # [C, n, ...] or one pool

    @property
    def sizes(self) -> Int[Array, "*c"]:
        """Examples that each client owns, train and validation together [C]."""
        return _count(self.train) + _count(self.val)


class Cohort(NamedTuple):
    """The clients of one round with their data."""

    ids: Int[Array, "m"]
    train: Dataset  # [M, n, ...]
    val: Dataset  # [M, n, ...]
    # the number of the round, which only an optimiser that depends on the round needs
    round: Int[Array, ""] | int | None = None
    # [M] the fraction in (0, 1] of its local steps that each client takes; None: all of them
    work: Float[Array, "*m"] | None = None
    # [M] whether what the client uploads in this round is lost on its way; None: nothing is
    lost: Bool[Array, "*m"] | None = None

    @property
    def sizes(self) -> Int[Array, "*m"]:
        """Examples that each client owns, train and validation together [M]."""
        return _count(self.train) + _count(self.val)


def _count(data: Dataset) -> Int[Array, "*c"]:
    """The number of examples; a row that stands for k examples has weight k in the mask."""
    return jnp.round(jnp.sum(data.mask, axis=-1)).astype(int)


class State(NamedTuple):
    """What the next round needs and nothing else: no random key, no history.

    The invariant: every leaf of `clients` has the client axis first; no leaf of `server` has it.
    """

    clients: PyTree  # [C, ...]
    server: PyTree


class Info(NamedTuple):
    """What a round reports.

    `weights` is one matrix, or a dict with one matrix for each part of the model, such as
    {"body": W, "head": I}. A part that every client keeps has the identity matrix. Of thousands of
    clients with few neighbours it is `SparseRows`, and of an aggregation that is not a weighted
    mean, such as a median, None.
    """

    # [M] mean training loss of each client
    loss: Float[Array, "*m"]
    # [M, M] mixing weights (receiver, sender), rows sum to one
    weights: PyTree
    # [M] floats that each client sends to the server
    up: Int[Array, "*m"]
    # [M] floats that the server sends to each client
    down: Int[Array, "*m"]
    # [M] number of gradients that each client computes on batches; two losses on one batch are two
    batches: Int[Array, "*m"]
    # [M] whether the client's upload has arrived and is finite, and therefore counts
    reported: Bool[Array, "*m"]
    # further numbers of the method, by name
    metrics: dict[str, Float[Array, "*s"]] = {}  # noqa: RUF012 - never written
    # [M, ...] the models that the clients have trained, before the server answers, in the form in
    # which they would be deployed; `make_rounds` keeps those of the last round, where it is asked
    trained: Params | None = None
    # [M] `lost` of the cohort: whose uploads were lost on their way
    lost: Bool[Array, "*m"] | None = None


class Fitted(NamedTuple):
    """What local training returns."""

    params: Params  # [M, ...]
    # [M] mean of the objective's aux over the steps
    loss: Float[Array, "*m"]
    # [M] number of batches on which the client computed a gradient
    batches: Int[Array, "*m"]


class Gradients(NamedTuple):
    """The losses and gradients of given models on all data of the clients."""

    # [M] mean loss by the weights of the examples; 0 for a client without any
    loss: Float[Array, "*m"]
    # [M, ...] the gradient of that loss
    grads: Params
    # [M] number of batches on which the client computed a gradient
    batches: Int[Array, "*m"]


@runtime_checkable
class Objective(Protocol):
    """(params, batch [B], anchor, key) -> (loss to differentiate, aux to report), for one client.

    The loss and the aux are each a mean over the batch's real examples, by their weights
    (`Dataset.weights`), plus terms that do not depend on the examples, so that a batch may be
    computed in parts. The anchor is any pytree that
    the objective needs for its client: a proximal centre, a direction, a linear term.
    """

    def __call__(
        self, params: Params, batch: Dataset, anchor: PyTree, key: PRNGKey, /
    ) -> tuple: ...


@runtime_checkable
class Fit(Protocol):
    """(key, params [M], anchor [M], cohort) -> Fitted: local training of a cohort."""

    def __call__(
        self, key: PRNGKey, params: Params, anchor: PyTree, cohort: Cohort, /
    ) -> Fitted: ...


@runtime_checkable
class Gradient(Protocol):
    """(key, params [M], data [M], ids [M]) -> Gradients, over all of each client's data."""

    def __call__(self, key: PRNGKey, params: Params, data: Dataset, ids: Array, /) -> Gradients: ...


@runtime_checkable
class Evaluate(Protocol):
    """(key, params [M], data [M], ids [M]) -> mean loss [M], over all of each client's data."""

    def __call__(self, key: PRNGKey, params: Params, data: Dataset, ids: Array, /) -> Array: ...


@runtime_checkable
class Uplink(Protocol):
    """(key, before [M], after [M], ids [M]) -> received [M].

    What the server receives when clients had the models `before` local training and have the
    models `after` it. An uplink is an attack, noise or compression.
    """

    def __call__(self, key: PRNGKey, before: Params, after: Params, ids: Array, /) -> Params: ...


@runtime_checkable
class Upload(Protocol):
    """(key, before [M], after [M], ids [M], lost [M] or None) -> (received [M], reported [M] bool).

    A client whose upload is lost or not finite has not reported; its model `before` stands in its
    place. `lost` is that of the cohort.
    """

    def __call__(
        self, key: PRNGKey, before: Params, after: Params, ids: Array, lost: Array | None = None, /
    ) -> tuple[Params, Array]: ...


@runtime_checkable
class Accept(Protocol):
    """(model [M], offer [M], cohort) -> (model or offer [M], accepted [M] bool).

    What each client takes: its own model, or the one that the server offers to it. No random number
    is drawn.
    """

    def __call__(self, model: Params, offer: Params, cohort: Cohort, /) -> tuple[Params, Array]: ...


def take_offer(model: Params, offer: Params, cohort: Cohort) -> tuple[Params, Array]:
    """Every client takes what the server offers to it."""
    return offer, jnp.ones(cohort.ids.size, bool)


# (key, round) -> ids [M]; M is the same in every round
Participation = Callable[[PRNGKey, Array], Array]
# (key, ids [M]) -> `work` of the cohort [M]
Work = Callable[[PRNGKey, Array], Array]
# (key, ids [M], work [M] or None) -> `lost` of the cohort [M]
Loss = Callable[[PRNGKey, Array, Array | None], Array]


class Problem(NamedTuple):
    """What is learned: a model, the error that training lowers, the score that evaluation averages.

    The loss and its gradient are computed from these, see `jaxfl.training.objectives`.
    """

    init: Callable[[PRNGKey], Params]  # key -> one model
    # (params, x [B]) -> predictions [B]; x and predictions are arrays or pytrees of arrays
    apply: Callable[[Params, Any], Any]
    # (predictions [B], y [B]) -> [B], what training lowers; with an argument `weights` [B], if the
    # error of an example depends on the others of the batch
    error: Callable[..., Array]
    # (predictions [B], y [B]) -> [B], higher is better; likewise
    score: Callable[..., Array]
    # a regular expression that finds the head's parameters by path; None if the model has no head
    head: str | None = None
    # (params, x [B]) -> the input of the head [B, d]; None if the model does not define it
    features: Callable[[Params, Any], Array] | None = None
    # (params, x [B], mask [B], key) -> (predictions [B], a term of the loss or None): the
    # predictions in training, with dropout and the statistics of the batch; None: as `apply`
    predict: Callable[[Params, Any, Array, PRNGKey], tuple[Any, Array | None]] | None = None
    # (params, train [n]) -> the argument that `apply` takes instead of the params, which is the
    # params with the statistics of the client's own examples; None: `apply` takes the params
    recall: Callable[[Params, Dataset], Params] | None = None
    # (params, x [B], mask [B], key) -> the features [B, d] of the pass in which `predict` predicts
    # with the same mask and key; None: as `features`
    training_features: Callable[[Params, Any, Array, PRNGKey], Array] | None = None
    # (x [B], y [B]) -> what `error` and `score` take in place of y: the input itself, where a model
    # learns without labels; None: y
    target: Callable[[Any, Any], Any] | None = None

    def compared(self, x: Any, y: Any) -> Any:
        """What `error` and `score` compare predictions with [B].

        Example:
          >>> problem = jaxfl.reconstruction(jaxfl.models.linear(), np.zeros(1), scale=4.0).problem
          >>> problem.compared(jnp.array([[2.0]]), None).tolist()
          [[0.5]]
        """
        return y if self.target is None else self.target(x, y)

    def errors(self, predictions: Any, target: Any, weights: Array) -> Array:
        """The errors of the examples of a batch [B], of which those count that have a weight.

        Example:
          >>> predictions, y = jnp.zeros((1, 2)), jnp.array([0])
          >>> task.problem.errors(predictions, y, jnp.ones(1)).round(3).tolist()
          [0.6930000185966492]
        """
        return of_batch(self.error, predictions, target, weights)

    def scores(self, predictions: Any, target: Any, weights: Array) -> Array:
        """The scores of the examples of a batch [B], likewise.

        Example:
          >>> task.problem.scores(jnp.zeros((1, 2)), jnp.array([0]), jnp.ones(1)).tolist()
          [1.0]
        """
        return of_batch(self.score, predictions, target, weights)


class Task(NamedTuple):
    """Everything that an algorithm is given: the problem, and what it may ask of the clients.

    - trainer: (objective, **changes) -> Fit. The changes are keyword arguments of `trainer.trainer`
      that differ from the task's own: steps, epochs, optimizer, whole_batch, augment.
    - gradient: (objective) -> Gradient; evaluate: (objective) -> Evaluate
    - upload: an Upload
    - accept: an Accept, for methods that offer a model to each client
    - keep_edges: a KeepEdges, for methods with a graph, which say so in their facts
      (`takes_top_edges`); see `jaxfl.kernels.sparse`
    """

    problem: Problem
    trainer: Callable[..., Fit]
    gradient: Callable[[Objective], Gradient]
    evaluate: Callable[[Objective], Evaluate]
    upload: Upload
    accept: Accept = take_offer
    keep_edges: KeepEdges = keep_all_edges
    # an `algorithms.steps.architectures.Architectures`; None: all clients have one architecture
    architectures: Any = None
    # the problems of several architectures; nothing if there is one
    problems: tuple[Problem, ...] = ()


class Algorithm(NamedTuple):
    """A federated algorithm as pure functions.

    - init: (key, train [C]) -> State
    - round: (key, State with clients [M], Cohort) -> (State, Info); the new state has the shapes
      and dtypes of the old one
    - models: (State with clients [C], Cohort) -> params [M, ...], the model that each client of the
      cohort deploys now: a function of the current state of the server, of the client's own state
      and of its own data, however long the client has been away
    - apply: (params, x [B]) -> predictions [B] of one client
    - recall: (params, train [n]) -> the argument that `apply` takes instead of the params when the
      client predicts; None: `apply` takes the params. A method sets it if its clients predict with
      more than a model, for example with their own training examples.
    - predict: (params, x [B], mask [B], key) -> (predictions [B], a term of the loss or None) in
      training, see `Problem.predict`; None: those of the problem, for a method whose `apply` is the
      problem's, and otherwise `apply`. Fine-tuning trains by it.
    - validates: whether the method learns from the clients' validation data. A run in which no
      client has any is then refused.
    - warn_of_sizes: (numbers of training examples [C]) -> None; it warns where clients of these
      sizes do not suit the method. It is called on the host, before the first round. None: all do.
    - wire: the `messages.Wire` of which `init`, `round` and `models` are composed; None: a method
      that is not written as messages. `messages.wire_of` gives it.
    """

    init: Callable[[PRNGKey, Dataset], State]
    round: Callable[[PRNGKey, State, Cohort], tuple[State, Info]]
    models: Callable[[State, Cohort], Params]
    apply: Callable[[Params, Any], Any]
    recall: Callable[[Params, Dataset], PyTree] | None = None
    validates: bool = False
    warn_of_sizes: Callable[[np.ndarray], None] | None = None
    wire: Any = None
    predict: Callable[[Params, Any, Array, PRNGKey], tuple[Any, Array | None]] | None = None


# (task, *, hyper-parameters) -> Algorithm
AlgorithmFactory = Callable[..., Algorithm]
