"""The types that everything speaks, and the letters of the axes.

Axes (the same letter everywhere): C clients, M cohort (the clients of one round), n padded examples
of a client, B batch, D parameters of a model, K clusters, T rounds. A shape in brackets stands
beside the field it describes.

A NamedTuple is a pytree and may be traced. A frozen dataclass is never traced.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

Scalar = float | int | Array  # a hyper-parameter that is never branched on: `vmap` over it sweeps
PRNGKey = Key[Array, ""]
Chunk = int | Literal["auto", "all"]  # clients computed side by side
CLIENTS = "clients"  # name of the client axis in a mesh of devices
Params = PyTree  # one model, or models stacked with the client axis first


class Dataset(NamedTuple):
    """Padded examples. Rows where the mask is 0 are padding: no function reads anything from them."""

    x: Array  # [..., n, *feature]
    y: Array  # [..., n, *target]
    mask: Array  # [..., n] bool; in what is not trained on also a float, the weight of each example


class Pool(NamedTuple):
    """One set of examples that all clients share, each client with its own weights (the pFedGraph test protocol)."""

    x: Array  # [n, *feature]
    y: Array  # [n, *target]
    mask: Array  # [C, n] weight of each example for each client


class Federation(NamedTuple):
    """The data of all clients."""

    train: Dataset  # [C, n, ...]
    val: Dataset  # [C, n, ...]
    test: Dataset | Pool

    @property
    def sizes(self) -> Int[Array, "*c"]:
        """Examples that each client owns, train and validation together [C]."""
        return _count(self.train) + _count(self.val)


class Cohort(NamedTuple):
    """The clients of one round with their data."""

    ids: Int[Array, "m"]  # [M]
    train: Dataset  # [M, n, ...]
    val: Dataset  # [M, n, ...]

    @property
    def sizes(self) -> Int[Array, "*m"]:
        """Examples that each client owns, train and validation together [M]."""
        return _count(self.train) + _count(self.val)


def _count(data: Dataset) -> Int[Array, "*c"]:
    """Examples by their weights: what stands for k examples weighs k."""
    return jnp.round(jnp.sum(data.mask, axis=-1)).astype(int)


class State(NamedTuple):
    """What the next round needs and no more: no key, no history.

    The invariant: every leaf of `clients` has the client axis first; no leaf of `server` has it.
    """

    clients: PyTree  # [C, ...]
    server: PyTree


class Info(NamedTuple):
    """What the reader wants to know of a round."""

    loss: Float[Array, "*m"]  # [M] mean training loss of each client
    weights: (
        Float[Array, "*mm"] | None
    )  # [M, M] mixing weights (receiver, sender); None for a rule that is no matrix
    up: Int[Array, "*m"]  # [M] floats that each client sent to the server
    down: Int[Array, "*m"]  # [M] floats that the server sent to each client
    metrics: dict[str, Float[Array, "*s"]] = {}  # noqa: RUF012 - never written; an algorithm's own numbers, by name
    batches: Int[Array, "*m"] | None = (
        None  # [M] batches whose gradient each client took; None: those of one `fit`
    )
    heard: Bool[Array, "*m"] | None = (
        None  # [M] whose update was finite and thus counted; None: whoever ends finite
    )


# (params, batch [B], anchor, key) -> (loss to differentiate, aux to report). The loss is a mean
# over the batch's real examples plus terms that do not depend on them, the aux likewise: a batch
# may be computed in parts. The anchor is any pytree that the objective needs of its client: a
# proximal centre, a direction, a linear term.
Objective = Callable[[Params, Dataset, PyTree, PRNGKey], tuple[Array, Array]]

# (key, params [M], anchor [M], cohort) -> (params [M], mean aux over the steps [M])
Fit = Callable[[PRNGKey, Params, PyTree, Cohort], tuple[Params, Array]]

# (key, params [M], data [M], ids [M]) -> (mean loss [M], its gradient [M]) over all of each
# client's data, weighted by the mask; 0 for a client without any
Gradient = Callable[[PRNGKey, Params, Dataset, Array], tuple[Array, Params]]

# (key, before [M], after [M], ids [M]) -> received [M]: what the server sees of the clients' models
Uplink = Callable[[PRNGKey, Params, Params, Array], Params]

# The same -> (received [M], heard [M] bool): a client whose model is not finite is not heard, and
# in its place stands the model that it started from.
Channel = Callable[[PRNGKey, Params, Params, Array], tuple[Params, Array]]

# (key, round) -> ids [M]; M is the same in every round
Participation = Callable[[PRNGKey, Array], Array]


class Task(NamedTuple):
    """All that an algorithm is given: a model, its loss, a way to train and to ask for gradients, a channel."""

    init: Callable[[PRNGKey], Params]  # one model
    apply: Callable[[Params, Array], Array]  # (params, x [B]) -> prediction [B]
    loss: Objective  # the data loss of `apply`; ignores its anchor, reports itself
    loss_of: Callable[[Callable], Objective]  # the same of another way to predict
    score: Callable[[Array, Array], Array]  # (prediction [B], y [B]) -> [B], higher is better
    trainer: Callable[
        ..., Fit
    ]  # (objective, **what differs of `local.trainer`: steps, epochs, optimizer, batch_size)
    uplink: Channel
    gradient: Gradient  # of `loss`
    batches: Callable[..., Int[Array, "*m"]] = (
        None  # (cohort, **{steps or epochs}) -> [M] those of one `fit`
    )
    # finds the paths of the head's parameters, the rest is the body; "" if the model names none
    head: str = ""
    features: Callable[[Params, Array], Array] | None = (
        None  # (params, x [B]) -> what enters the head [B, d]
    )


class Algorithm(NamedTuple):
    """A federated algorithm as pure functions.

    init:   (key, train [C]) -> State
    round:  (key, State with clients [M], Cohort) -> (State, Info), shapes and dtypes as they came
    in models: (State, ids [M]) -> params [M, ...], the model that each client deploys
    apply:  (params, x [B]) -> prediction [B] of one client
    recall: (params, train [n]) -> what `apply` takes in place of the params when the client
    predicts; None: the params.
            For what a client predicts with beside its model and does not train, such as its own
            examples.
    """

    init: Callable[[PRNGKey, Dataset], State]
    round: Callable[[PRNGKey, State, Cohort], tuple[State, Info]]
    models: Callable[[State, Array], Params]
    apply: Callable[[Params, Array], Array]
    recall: Callable[[Params, Dataset], PyTree] | None = None


AlgorithmFactory = Callable[..., Algorithm]  # (task, *, hyper-parameters) -> Algorithm
