"""FedPAC: heads combined by a quadratic program, and features aligned with prototypes.

each round t, with the body b, the client's head h_i and features f:
  client i:  s_i = its mean features by class, times the shares of the classes; v_i = the variance
             h_i = local training of F_i(b, h) from h_i
             b_i = local training of F_i(b, h_i) + lam |f(x) - c_y|^2 from b, of prototypes c
             sends b_i, h_i, s_i, v_i and its mean features of each class
  server:    b = sum_i p_i b_i; c = the means of the mean features
             r_i = argmin_r sum_j v_j r_j^2 + |s_i - sum_j r_j s_j|^2 on the simplex
             h_i = sum_j r_ij h_j, and sends it
client i deploys (b, h_i).
"""

from functools import partial
from typing import Annotated, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import COUNT, NOT_NEGATIVE, Paper, method
from jaxfl.core.messages import (
    Down,
    Exchange,
    Outcome,
    Report,
    ServerState,
    Turn,
    Up,
    Uploads,
    Wire,
)
from jaxfl.core.over_clients import over_clients
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Scalar, Task
from jaxfl.kernels import combination_rows, isolate, mix
from jaxfl.training import data_loss, of_part


class Server(NamedTuple):
    """The state of the server."""

    # the global body
    body: Params
    # of the classes that a client has sent
    prototypes: steps.Prototypes


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
    advice="lower lam, the attraction to the prototypes; then head_epochs",
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

    State: memory = the client's mixture of heads; server = `Server`. Weights: "body" and "head".

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
      >>> state.server.prototypes.values.shape, sorted(info.weights)
      ((2, 8), ['body', 'head'])
    """
    problem = task.problem
    features = steps.features_of(problem)
    training_features = steps.training_features_of(problem)
    head = steps.head_of(problem, None)
    part_loss = of_part(data_loss(problem))

    def alignment(body: Params, batch: Dataset, anchor: tuple, key: PRNGKey):
        personal, prototypes = anchor
        value, aux = part_loss(body, batch, personal, key)
        model = tree.join(body, personal)
        embeddings = training_features(model, batch.x, batch.mask, key)
        return value + lam * steps.distance_to_prototypes(embeddings, batch, prototypes), aux

    fit_head = task.trainer(part_loss, epochs=head_epochs)
    fit_body = task.trainer(alignment)

    def describe(model: Params, data: Dataset, prototypes: steps.Prototypes) -> Statistics:
        classes = prototypes.known.size
        means, counts = steps.class_features(features, model, data, classes)

        def norms(params: Params, x: PyTree) -> Float[Array, "b 1"]:
            return jnp.sum(features(params, x) ** 2, axis=1, keepdims=True)

        squared, _ = steps.class_features(norms, model, data, classes)
        total = jnp.maximum(counts.sum(), 1.0)
        shares = counts / total
        # V: sum_k p_k E|f|^2 - p_k^2 |mean_k|^2, over the number of examples.
        spread = shares * squared[:, 0] - shares**2 * jnp.sum(means**2, axis=1)
        return Statistics(shares[:, None] * means, spread.sum() / total)

    own_prototypes = over_clients(partial(steps.client_prototypes, features), "auto")

    def init(key: PRNGKey, train: Dataset) -> tuple[Params, ServerState]:
        steps.require_labels(problem, train, "FedPAC")
        personal, body = tree.split(problem.init(key), head)
        server = Server(body, steps.no_prototypes(problem, features, train))
        return tree.broadcast(personal, train.mask.shape[0]), ServerState(server)

    def client(key: PRNGKey, memory: Params, down: Down, cohort: Cohort) -> Turn[Params]:
        body, prototypes = tree.broadcast(down.common, cohort.ids.size)
        start = tree.join(memory, body)
        summaries = over_clients(describe, "auto")(start, cohort.train, prototypes)
        # The head with the body fixed, then the body with the head fixed.
        personal = fit_head(stream(key, "second_fit"), memory, body, cohort)
        fitted = fit_body(stream(key, "fit"), body, (personal.params, prototypes), cohort)
        trained = tree.join(personal.params, fitted.params)
        own = own_prototypes(trained, cohort.train, prototypes)
        nothing = tree.zeros_like(summaries)
        up = Up(
            (trained, own.values, summaries), (start, prototypes.values, nothing), plain=own.known
        )
        batches = fitted.batches + personal.batches
        return personal.params, up, steps.report_of(fitted, batches=batches, trained=trained)

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        clients, reported = uploads.ids.size, uploads.reported
        models, values, statistics = uploads.received
        heads, bodies = tree.split(models, head)
        # The mean of the bodies, and of the prototypes of each class over those who have it.
        body, weights = steps.mean_by_size(uploads._replace(received=bodies))
        sent = steps.Prototypes(values, uploads.plain)
        prototypes, _ = steps.mean_prototypes(sent, reported, state.server.prototypes)
        # The combination of heads.
        by_head = combination_rows(
            statistics.variance, statistics.means.reshape(clients, -1), reported
        )
        edges = task.keep_edges(isolate(by_head, reported))
        matrix = tree.broadcast(weights, clients)
        return Outcome(
            ServerState(Server(body, prototypes)),
            Down(each=mix(edges, heads)),
            steps.part_weights(matrix, "body", "head", bodies, edges.weights),
        )

    def take_head(key: PRNGKey, memory: Params, down: Down, cohort: Cohort) -> Turn[Params]:
        return down.each, None, Report()

    def deploy(memory: Params, down: Down, cohort: Cohort) -> Params:
        return tree.join(memory, tree.broadcast(down.common.body, cohort.ids.size))

    exchanges = (Exchange(client, server), Exchange(take_head))
    return steps.compose(task, Wire(init, exchanges, deploy, steps.download_server))
