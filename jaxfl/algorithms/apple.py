"""APPLE: each client learns how much of every other client's core model its model contains.

each round t, with the core models w_j that the server last received:
  client i:  (w_i, p_i) = local training from (w_i, p_i) of
             F_i(sum_j p_ij w_j) + lambda(t) mu / 2 |p_i - p_0|^2; sends w_i
client i deploys sum_j p_ij w_j.
"""

from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import COUNT_OR_ZERO, NOT_NEGATIVE, Paper, method
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
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Scalar, Task
from jaxfl.kernels import mix, positive_rows, size_weights
from jaxfl.training import data_loss, of_statistics

# The exponential schedule of the regulariser ends with this fraction of its strength.
LAST = 1e-3


class Memory(NamedTuple):
    """What each client keeps."""

    # [C, ...] the personal model of the round in which it last took part, which it deploys
    model: Params
    # [C, C] p, by client id
    relation: Float[Array, "*c c"]


class Record(NamedTuple):
    """What the server keeps for each client, and sends to all clients of a cohort."""

    # [C, ...] its core model, as the server received it
    core: Params
    # [C] its fraction of the training examples of all clients, which p is at first
    fraction: Float[Array, "*c"]
    # [C] in how many rounds the server has received its core model
    rounds: Int[Array, "*c"]
    # [C] its id
    id: Int[Array, "*c"]


class Anchor(NamedTuple):
    """What local training of a client needs beside the core models of the cohort."""

    # [M] whose core models it has received
    senders: Bool[Array, "*m m"]
    # [M] 1 at its own place
    itself: Float[Array, "*m m"]
    # [] the weights of all other clients
    rest: Float[Array, "*m"]
    # [] strength of the regulariser
    strength: Float[Array, "*m"]


def scaled_gradient(x: Params, factor: Scalar) -> Params:
    """The same values; gradients by them are multiplied by the factor."""

    def leaf(value: Array) -> Array:
        constant = lax.stop_gradient(value)
        return constant + factor * (value - constant)

    return jax.tree.map(leaf, x)


@method(
    title="APPLE",
    paper=Paper(
        authors="Luo, Jun and Wu, Shandong",
        title="Adapt to Adaptation: Learning Personalization for Cross-Silo Federated Learning",
        venue="IJCAI",
        year=2022,
        link="https://arxiv.org/abs/2110.08394",
    ),
    personal="the mixture of core models",
    sends="its core model",
    defaults="the authors' code, but for the rate, which is ours",
    mixes_before_training=True,
    starts_from_server=False,
    separating={"rate": 0.1},
    advice="run more rounds; with ten local steps or fewer, raise core_rate to the number of "
    "clients",
)
def apple(
    task: Task,
    *,
    rate: Annotated[Scalar, NOT_NEGATIVE] = 0.001,
    core_rate: Annotated[Scalar, NOT_NEGATIVE] = 1.0,
    mu: Annotated[Scalar, NOT_NEGATIVE] = 0.1,
    until: Annotated[int, COUNT_OR_ZERO] = 16,
    schedule: Literal["exponential", "cosine"] = "exponential",
) -> Algorithm:
    """Each client trains a core model and the weights with which it mixes the core models of all.

    The personal model of client i is sum_j p_ij w_j: w_j is the core model that the server last
    received from client j, and w_i the client's own one. Local training moves w_i and p_i together,
    along the gradient of the loss at the personal model plus
    lambda(r) mu / 2 |p_i - p_0|^2, where p_0 are the clients' fractions of all training examples,
    at which p_i starts. A client deploys its personal model after local training, and sends its
    core model; it goes on from that as the server has received it, with its noise or compression.

    Nothing keeps p_ij above 0 or their sum at 1. `weights` has a normal form: negative weights are
    0, and each row is scaled to sum to 1. p itself is `state.clients.memory.relation` [C, C], by
    client id. Metrics, means over clients: `own`, p_ii; `total`, sum_j p_ij; `negative`, the sum of
    the negative weights times -1.

    State: memory = `Memory`, with C * C numbers for p; record = `Record`; server = nothing. The
    core models that a client receives are in memory once for all clients. A client receives M
    models in a round, its own among them.

    A client's gradient by its core model has the factor p_ii, which is 1 / C at first, and its
    personal model moves by p_ii times what the core model moves. So clients learn slowly at first:
    of ten clients of digits with rotated images and 50 local steps, APPLE has 29.8 % after 20
    rounds and 89.3 after 100 (local training 85.3). core_rate = C hastens it where local steps are
    few: 200 rounds of 10 steps give 90.2 with it, and 61.3 without. With 50 steps it makes the
    first rounds unstable.

    Args:
      task: the model and its training. Weight decay is on p too.
      rate: learning rate of p as a multiple of that of the models. It multiplies gradients, so it
        has no effect in Adam, which rescales them. The authors' is .1.
      core_rate: learning rate of the core model, likewise. As a function of the core model the
        gradient of client i has the factor p_ii, about 1 / C at first; another implementation
        (PFLlib) takes C here.
      mu: strength of the regulariser.
      until: L, the number of rounds of a client after which lambda is 0; 16 are a tenth of the
        rounds in the authors' code.
      schedule: lambda(r) is .001^(r / L) ("exponential") or (1 + cos(pi r / L)) / 2 ("cosine").

    Differs: the paper was not at hand. Formulas and defaults are those of its authors' code, in
    which the regulariser lacks the factor 1 / 2 (PFLlib has it), and core models start apart: here
    they start from one model, so that its scale depends on the sum of p, and p is to move slowly.
    All clients take part there. Here the weights of clients outside the cohort, or from which the
    server has received nothing, go to the client's own core model, and p_ij of these clients stay
    as they are; so a client's first round is local training. The authors' limit on the number of
    models that a client downloads is left out. With BatchNorm, a client has the statistics of its
    core model: variances with negative weights would not be variances.

    Example:
      >>> state, info = one_round(apple(task, rate=0.01))
      >>> state.clients.memory.relation.shape, sorted(info.metrics)
      ((4, 4), ['negative', 'own', 'total'])
    """
    loss = data_loss(task.problem)

    def init(key: PRNGKey, train: Dataset) -> tuple[Memory, ServerState]:
        clients = train.mask.shape[0]
        model = tree.broadcast(task.problem.init(key), clients)
        fraction = size_weights((train.mask > 0).sum(axis=1))
        record = Record(model, fraction, jnp.zeros(clients, int), jnp.arange(clients))
        return Memory(model, tree.broadcast(fraction, clients)), ServerState((), record)

    def strength(rounds: Int[Array, "m"]) -> Float[Array, "m"]:
        """lambda(r) mu of each client, which is 0 from round `until` on."""
        progress = rounds / max(until, 1)
        decay = (
            LAST**progress if schedule == "exponential" else (jnp.cos(jnp.pi * progress) + 1) / 2
        )
        return mu * jnp.where(rounds < until, decay, 0.0)

    def effective(relation: Float[Array, "*m m"], anchor: Anchor) -> Float[Array, "*m m"]:
        """The weights of the cohort's core models; a client's own has those of all absent ones."""
        diagonal = anchor.itself * (relation + anchor.rest[..., None])
        return jnp.where(anchor.senders, relation, diagonal)

    def personal(
        core: Params, relation: Float[Array, "m"], anchor: Anchor, models: Params
    ) -> Params:
        """sum_j p_j w_j, with the client's own core model in place of what it has sent."""
        weights = effective(relation, anchor)
        others = mix(jnp.where(anchor.senders, weights, 0.0), models)
        own_weight = jnp.sum(anchor.itself * weights)
        mixture = jax.tree.map(lambda w, x: own_weight * w + x, core, others)
        return tree.combine(of_statistics, core, mixture)

    def download(state: ServerState) -> Down:
        return Down(common=state.record)

    def client(key: PRNGKey, memory: Memory, down: Down, cohort: Cohort) -> Turn[tuple]:
        cores, first, rounds, ids = down.common
        relation = memory.relation[:, ids]
        itself = cohort.ids[:, None] == ids[None]
        place = itself.argmax(axis=1)
        senders = (rounds > 0)[None] & ~itself
        rest = memory.relation.sum(axis=1) - jnp.where(senders | itself, relation, 0.0).sum(axis=1)
        anchor = Anchor(senders, itself.astype(float), rest, strength(rounds[place]))

        # All clients share the core models that the server sends: no client has a copy.
        def objective(params: dict, batch: Dataset, anchor: Anchor, key: PRNGKey):
            # Before it has received anything, there is nothing to weigh.
            p = scaled_gradient(params["relation"], rate * anchor.senders.any())
            scaled = scaled_gradient(params["core"], core_rate)
            core = tree.combine(of_statistics, params["core"], scaled)
            value, aux = loss(personal(core, p, anchor, cores), batch, None, key)
            return value + anchor.strength / 2 * jnp.sum((p - first) ** 2), aux

        start = {"core": tree.take(cores, place), "relation": relation}
        fitted = task.trainer(objective)(stream(key, "fit"), start, anchor, cohort)
        core, relation = fitted.params["core"], fitted.params["relation"]
        model = jax.vmap(personal, (0, 0, 0, None))(core, relation, anchor, cores)
        after = Memory(model, memory.relation.at[:, ids].set(relation))
        weights = effective(relation, anchor), jnp.sum(itself * relation, axis=1)
        return (after, *weights), Up(core, start["core"]), steps.report_of(fitted, trained=model)

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        record = state.record._replace(core=uploads.received, rounds=state.record.rounds + 1)
        return Outcome(ServerState((), record))

    def measure(key: PRNGKey, memory: tuple, down: Down, cohort: Cohort) -> Turn[Memory]:
        """The weights with which clients have trained whose core models have arrived."""
        after, weights, own = memory
        negative = jnp.maximum(-weights, 0.0).sum(axis=1)
        values = {"own": own, "total": after.relation.sum(axis=1), "negative": negative}
        counted = jnp.asarray(down.counted)
        metrics = {name: jnp.mean(of, where=counted) for name, of in values.items()}
        # The normal form of the weights.
        weights = positive_rows(jnp.where(counted[:, None], weights, 0.0))
        return after, None, Report(weights=weights, metrics=metrics)

    def deploy(memory: Memory, down: Down, cohort: Cohort) -> Params:
        return memory.model

    exchanges = (Exchange(client, server), Exchange(measure))
    return steps.compose(task, Wire(init, exchanges, deploy, download))
