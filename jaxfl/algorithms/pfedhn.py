"""pFedHN: a hypernetwork on the server generates each client's model."""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from jaxfl.algorithms.steps.client import train_and_send
from jaxfl.algorithms.steps.composition import compose
from jaxfl.core.facts import method
from jaxfl.core.messages import Down, Exchange, Outcome, Report, ServerState, Up, Uploads, Wire
from jaxfl.core.options import COUNT, COUNT_OR_ZERO, NOT_NEGATIVE, POSITIVE
from jaxfl.core.papers import Paper
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Scalar, Task
from jaxfl.kernels.hypernet import Hypernet, generate, init_hypernet
from jaxfl.training.objectives import data_loss


class Record(NamedTuple):
    """What the server keeps for each client."""

    # [C, embedding] v
    embedding: Float[Array, "*c e"]
    # [C, ...] of the optimiser of v
    opt_state: optax.OptState


class Server(NamedTuple):
    """The state of the server."""

    # phi
    net: Hypernet
    # of the optimiser of phi
    opt_state: optax.OptState


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
    turn_first="rate and --rounds: the network of the server needs many rounds",
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
    paper a step takes one client. At first h generates the task's initial model for every v. A
    client that has never taken part deploys the model of its first, random v. The paper freezes phi
    and tunes the embedding of such a client alone (section 5.3), for which the client would have to
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
        phi = init_hypernet(phi_key, task.problem.init(key), embedding, width, hidden)
        v = jax.random.normal(v_key, (train.mask.shape[0], embedding))
        return (), ServerState(Server(phi, optimizer.init(phi)), Record(v, optimizer.init(v)))

    def make_models(phi: Hypernet, v: Array) -> Params:
        return jax.vmap(generate, (None, 0))(phi, v)

    def download(state: ServerState) -> Down:
        return Down(each=make_models(state.server.net, state.record.embedding))

    def client(key: PRNGKey, memory: tuple, down: Down, cohort: Cohort) -> tuple[tuple, Up, Report]:
        # The clients train from theta_i.
        _, up, report = train_and_send(fit, key, down.each, None, cohort)
        return (), up, report

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        v, v_opt_state = state.record
        phi, phi_opt_state = state.server
        start, pull_back = jax.vjp(make_models, phi, v)
        # The gradients of phi and v, J'(theta_i - theta~_i), clipped together.
        grads = pull_back(jax.tree.map(jnp.subtract, start, uploads.received))
        clipped, _ = clipping.update(grads, clipping.init(()))
        phi_grads, v_grads = jax.tree.leaves(clipped, is_leaf=lambda x: x is not clipped)
        # A step of SGD for each.
        phi_updates, phi_opt_state = optimizer.update(phi_grads, phi_opt_state, phi)
        v_updates, v_opt_state = optimizer.update(v_grads, v_opt_state, v)
        phi, v = jax.tree.map(jnp.add, (phi, v), (phi_updates, v_updates))
        return Outcome(ServerState(Server(phi, phi_opt_state), Record(v, v_opt_state)))

    def deploy(memory: tuple, down: Down, cohort: Cohort) -> Params:
        return down.each

    return compose(task, Wire(init, (Exchange(client, server),), deploy, download))
