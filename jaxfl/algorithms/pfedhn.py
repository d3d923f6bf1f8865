"""pFedHN: a hypernetwork on the server generates each client's model.

each round t, with the embedding v_i of client i and a network h on the server: (Algorithm 1)
  server:    sends theta_i = h(v_i; phi)
  client i:  w_i = local training of F_i from theta_i, and sends it
  server:    phi and v_i take a step of SGD along J'(theta_i - w_i), with J the Jacobian of h
client i deploys h(v_i; phi).
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import COUNT, COUNT_OR_ZERO, NOT_NEGATIVE, POSITIVE, Paper, method
from jaxfl.core.messages import Down, Exchange, Outcome, ServerState, Turn, Uploads, Wire
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Scalar, Task
from jaxfl.kernels.hypernet import Hypernet, generate, init_hypernet
from jaxfl.training import data_loss, of_statistics, statistics, trainable


class Record(NamedTuple):
    """What the server keeps for each client."""

    # [C, embedding] v
    embedding: Float[Array, "*c e"]
    # [C, ...] of the optimiser of v
    opt_state: optax.OptState
    # [C, ...] the statistics of the client's model, which no hypernetwork generates
    statistics: steps.Personal


class Server(NamedTuple):
    """The state of the server."""

    # phi
    net: Hypernet
    # of the optimiser of phi
    opt_state: optax.OptState
    # the mean statistics of the models that arrived last, for a client that has sent none
    statistics: Params


@method(
    title="pFedHN",
    paper=Paper(
        authors="Shamsian, Aviv and Navon, Aviv and Fetaya, Ethan and Chechik, Gal",
        title="Personalized Federated Learning using Hypernetworks",
        venue="ICML",
        year=2021,
        link="https://arxiv.org/abs/2103.04628",
    ),
    place="Algorithm 1",
    personal="the embedding v_i, which the server keeps",
    sends="its model",
    defaults="the authors' code; embedding is of pFedGraph's tables",
    advice="rate and --rounds: the network of the server needs many rounds",
)
def pfedhn(
    task: Task,
    *,
    embedding: Annotated[int, COUNT] = 20,
    width: Annotated[int, COUNT] = 100,
    hidden: Annotated[int, COUNT_OR_ZERO] = 3,
    rate: Annotated[Scalar, POSITIVE] = 0.01,
    momentum: Annotated[Scalar, NOT_NEGATIVE] = 0.9,
    decay: Annotated[Scalar, NOT_NEGATIVE] = 1e-3,
    clip: Annotated[Scalar, POSITIVE] = 50.0,
) -> Algorithm:
    """A hypernetwork on the server generates each client's model from an embedding of the client.

    The server sends theta_i = h(v_i; phi) to client i. The client trains from theta_i and sends the
    result, theta~_i. The server updates phi and v_i by SGD along J'(theta_i - theta~_i), where J is
    the Jacobian of h.

    State: record = `Record`; server = `Server`.

    Args:
      task: the model and its training.
      embedding: length of v; 20 as in pFedGraph's tables (2023), 1 + C / 4 in the paper.
      width: width of the hypernetwork's layers.
      hidden: number of its ReLU layers.
      rate: learning rate of phi and v. The defaults of this and the next options are those of the
        authors' code.
      momentum: of the SGD on phi and v.
      decay: weight decay of phi and v.
      clip: gradients longer than this are scaled to this length.

    Differs: each step of phi takes the sum of the gradients of all clients in the cohort; in the
    paper a step takes one client. At first h generates the task's initial model for every v.
    Statistics of BatchNorm are not generated: a client gets back those that it has sent. A client
    that has never taken part deploys the model of its first, random v. The paper freezes phi and
    tunes the embedding of such a client alone (section 5.3), for which the client would have to
    exchange models with the server before it deploys, or be sent phi.

    Example:
      >>> state = initial_state(pfedhn(task, embedding=5))
      >>> state.clients.record.embedding.shape
      (4, 5)
    """
    fit = task.trainer(data_loss(task.problem))
    clipping = optax.clip_by_global_norm(clip)
    optimizer = optax.chain(optax.add_decayed_weights(decay), optax.sgd(rate, momentum))

    def init(key: PRNGKey, train: Dataset) -> tuple[tuple, ServerState]:
        phi_key, v_key = jax.random.split(stream(key, "server"))
        model = task.problem.init(key)
        clients = train.mask.shape[0]
        phi = init_hypernet(phi_key, trainable(model), embedding, width, hidden)
        v = jax.random.normal(v_key, (clients, embedding))
        server = Server(phi, optimizer.init(phi), statistics(model))
        record = Record(v, optimizer.init(v), steps.start_personal(statistics(model), clients))
        return (), ServerState(server, record)

    def make_models(phi: Hypernet, v: Array) -> Params:
        """The parameters of the clients' models."""
        return jax.vmap(generate, (None, 0))(phi, v)

    def download(state: ServerState) -> Down:
        of_clients = steps.personal_models(state.record.statistics, state.server.statistics)
        models = make_models(state.server.net, state.record.embedding)
        return Down(each=tree.combine(of_statistics, of_clients, models))

    def client(key: PRNGKey, memory: tuple, down: Down, cohort: Cohort) -> Turn[tuple]:
        # The clients train from theta_i.
        _, up, report = steps.train_and_send(fit, key, down.each, None, cohort)
        return (), up, report

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        v, v_opt_state, of_clients = state.record
        phi, phi_opt_state, common = state.server
        start, pull_back = jax.vjp(make_models, phi, v)
        # The gradients of phi and v, J'(theta_i - theta~_i), clipped together.
        grads = pull_back(jax.tree.map(jnp.subtract, start, trainable(uploads.received)))
        clipped, _ = clipping.update(grads, clipping.init(()))
        phi_grads, v_grads = jax.tree.leaves(clipped, is_leaf=lambda x: x is not clipped)
        # A step of SGD for each.
        phi_updates, phi_opt_state = optimizer.update(phi_grads, phi_opt_state, phi)
        v_updates, v_opt_state = optimizer.update(v_grads, v_opt_state, v)
        phi, v = jax.tree.map(jnp.add, (phi, v), (phi_updates, v_updates))
        # The statistics of each client, and their mean.
        received = statistics(uploads.received)
        mean, _ = steps.mean_by_size(uploads._replace(received=received))
        common = tree.where(uploads.reported.any(), mean, common)
        of_clients = steps.Personal(received, jnp.ones_like(of_clients.seen))
        record = Record(v, v_opt_state, of_clients)
        return Outcome(ServerState(Server(phi, phi_opt_state, common), record))

    def deploy(memory: tuple, down: Down, cohort: Cohort) -> Params:
        return down.each

    return steps.compose(task, Wire(init, (Exchange(client, server),), deploy, download))
