"""FedPAC: heads combined by a quadratic program, and features aligned with prototypes."""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxfl.algorithms.steps.heads import class_features, features_of, head_of, part_weights
from jaxfl.algorithms.steps.labels import class_count, require_labels
from jaxfl.algorithms.steps.uploads import mean_by_size, upload
from jaxfl.core import tree
from jaxfl.core.facts import method
from jaxfl.core.options import COUNT, NOT_NEGATIVE
from jaxfl.core.over_clients import over_clients
from jaxfl.core.papers import Paper
from jaxfl.core.streams import stream
from jaxfl.core.types import (
    Algorithm,
    Cohort,
    Dataset,
    Info,
    Params,
    PRNGKey,
    Scalar,
    State,
    Task,
)
from jaxfl.kernels.combination import combination_rows
from jaxfl.kernels.mixing import isolate, mix
from jaxfl.training.objectives import data_loss, masked_mean, of_part


class Server(NamedTuple):
    """The state of the server."""

    # the global body
    body: Params
    # the mean features of each class [K, d]
    prototypes: Float[Array, "k d"]
    # the classes that a client has sent [K]
    known: Bool[Array, "k"]


class Statistics(NamedTuple):
    """What a client says of its features before it trains."""

    # p_k times the mean features of class k [K, d]
    means: Float[Array, "*m k d"]
    # of the estimate of these
    variance: Float[Array, "*m"]


@method(
    title="FedPAC",
    paper=Paper(
        authors="Xu, Jian and Tong, Xinyi and Huang, Shao-Lun",
        title="Personalized Federated Learning with Feature Alignment and Classifier Collaboration",
        venue="ICLR",
        year=2023,
        link="https://arxiv.org/abs/2306.11867",
    ),
    personal="the head",
    sends="its model, the mean features of its classes before and after training, and a variance",
    takes_top_edges=True,
    absent="the mixture of heads of its last round, with the current body",
    defaults="ours; one epoch for the head as in the authors' code",
    turn_first="lower lam, the attraction to the prototypes; then head_epochs",
)
def fedpac(
    task: Task,
    *,
    lam: Annotated[Scalar, NOT_NEGATIVE] = 1.0,
    head_epochs: Annotated[int, COUNT] = 1,
) -> Algorithm:
    """A global body whose features are aligned by class, and for each client a mixture of heads.

    With the body that it receives, a client computes h, with p_k times the mean features of class k
    for its share p_k of the class, and V, the variance of this estimate. It trains its head, then
    the body with the head fixed. The loss of the body has lam times the mean squared difference of
    the features of an example from the prototype of its class. The client sends its model, V, h and
    its prototypes, the mean features of its classes after training. The server takes the mean of
    the bodies and of the prototypes. The weights x of the heads for client i minimise
    sum_j V_j x_j^2 + |h_i - sum_j x_j h_j|^2 on the simplex, see `kernels.combination`.

    State: clients = the client's mixture of heads; server = `Server`. Weights: "body" and "head".

    Args:
      task: the model and its training, which is that of the body.
      lam: strength of the alignment.
      head_epochs: passes over the data to train the head.

    Raises:
      InputError: the model does not define its features or names no head, or the task has no
        labels.

    Differs: the program is solved as it stands; the authors' code drops eigenvalues below .01 of
    its matrix, and weights below .001 of its solution. Clients with a class count equally in its
    prototype, as in PFLlib.

    Example:
      >>> state, info = one_round(fedpac(task))
      >>> state.server.prototypes.shape, sorted(info.weights)
      ((2, 8), ['body', 'head'])
    """
    problem = task.problem
    features = features_of(problem)
    head = head_of(problem, None)
    part_loss = of_part(data_loss(problem))

    def alignment(body: Params, batch: Dataset, anchor: tuple, key: PRNGKey):
        personal, server = anchor
        value, aux = part_loss(body, batch, personal, key)
        embeddings = features(tree.join(body, personal), batch.x)
        squared = jnp.mean((embeddings - server.prototypes[batch.y]) ** 2, axis=1)
        distance = masked_mean(jnp.where(server.known[batch.y], squared, 0.0), batch.mask)
        return value + lam * distance, aux

    fit_head = task.trainer(part_loss, epochs=head_epochs)
    fit_body = task.trainer(alignment)

    def class_means(model: Params, data: Dataset, server: Server) -> tuple[Array, Array]:
        """The client's mean features of each class, the server's where it has no example [K, d]."""
        means, counts = class_features(features, model, data, server.known.size)
        has = counts > 0
        return jnp.where(has[:, None], means, server.prototypes), has

    def describe(model: Params, data: Dataset, server: Server) -> Statistics:
        classes = server.known.size
        means, counts = class_features(features, model, data, classes)

        def norms(params: Params, x: Array) -> Float[Array, "b 1"]:
            return jnp.sum(features(params, x) ** 2, axis=1, keepdims=True)

        squared, _ = class_features(norms, model, data, classes)
        total = jnp.maximum(counts.sum(), 1.0)
        shares = counts / total
        # V: sum_k p_k E|f|^2 - p_k^2 |mean_k|^2, over the number of examples.
        spread = shares * squared[:, 0] - shares**2 * jnp.sum(means**2, axis=1)
        return Statistics(shares[:, None] * means, spread.sum() / total)

    def init(key: PRNGKey, train: Dataset) -> State:
        require_labels(train, "FedPAC")
        model = problem.init(key)
        personal, body = tree.split(model, head)
        classes = class_count(problem, train)
        width = jax.eval_shape(features, model, train.x[0, :1]).shape[-1]
        server = Server(body, jnp.zeros((classes, width)), jnp.zeros(classes, bool))
        return State(tree.broadcast(personal, train.mask.shape[0]), server)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        clients = cohort.ids.size
        server = tree.broadcast(state.server, clients)
        start = tree.join(state.clients, server.body)
        summaries = over_clients(describe, "auto")(start, cohort.train, server)
        # The head with the body fixed, then the body with the head fixed.
        personal = fit_head(stream(key, "second_fit"), state.clients, server.body, cohort)
        fitted = fit_body(stream(key, "fit"), server.body, (personal.params, server), cohort)
        trained = tree.join(personal.params, fitted.params)
        prototypes, has = over_clients(class_means, "auto")(trained, cohort.train, server)
        nothing = jax.tree.map(jnp.zeros_like, summaries)
        before = (start, server.prototypes, nothing)
        received, info = upload(task, key, fitted, before, (trained, prototypes, summaries), cohort)
        models, received_prototypes, statistics = received
        heads, bodies = tree.split(models, head)
        # The mean of the bodies, and of the prototypes of each class over those who have it.
        body, weights = mean_by_size(bodies, server.body, info.reported, cohort)
        senders = (has & info.reported[:, None]).T.astype(jnp.float32)
        rows = senders / jnp.maximum(senders.sum(axis=1, keepdims=True), 1)
        some = senders.any(axis=1)
        means = jax.vmap(mix)(rows, jnp.swapaxes(received_prototypes, 0, 1))
        prototypes = jnp.where(some[:, None], means, state.server.prototypes)
        # The combination of heads.
        by_head = combination_rows(
            statistics.variance, statistics.means.reshape(clients, -1), info.reported
        )
        edges = task.keep_edges(isolate(by_head, info.reported))
        matrix = tree.broadcast(weights, clients)
        info = info._replace(
            weights=part_weights(matrix, "body", "head", bodies, edges.weights),
            batches=info.batches + personal.batches,
            trained=trained,
        )
        after = Server(body, prototypes, state.server.known | some)
        return State(mix(edges.rows, heads), after), info

    def models(state: State, cohort: Cohort) -> Params:
        personal = tree.take(state.clients, cohort.ids)
        return tree.join(personal, tree.broadcast(state.server.body, cohort.ids.size))

    return Algorithm(init, round, models, problem.apply)
