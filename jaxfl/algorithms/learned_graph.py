"""learned_graph: pFedGraph's graph, whose parameters the clients' validation losses move."""

from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxfl.algorithms.steps.uploads import train_and_upload
from jaxfl.core import tree
from jaxfl.core.facts import method
from jaxfl.core.options import COUNT, COUNT_OR_ZERO, NOT_NEGATIVE, POSITIVE
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task
from jaxfl.kernels.alignment import misalignment
from jaxfl.kernels.learned import (
    GraphParameters,
    initial_parameters,
    layer_similarities,
    learned_rows,
)
from jaxfl.kernels.mixing import isolate, keep_own, mix
from jaxfl.kernels.server import UNDER_ROOT
from jaxfl.kernels.similarity import gram, inverse_norms
from jaxfl.training.batch_statistics import trainable
from jaxfl.training.deployed import deployed_losses
from jaxfl.training.objectives import data_loss

# Added to Adam's root of squares: parameters whose gradients are far below it hardly move.
EPSILON = 1e-3


class Client(NamedTuple):
    """The state of each client."""

    # [C, ...] the mixture, which the client deploys and from which it trains
    model: Params
    # [C, ...] the mixture of normalised models, with which the client aligns its model; at first 0
    anchor: Params


class Learned(NamedTuple):
    """What is learned."""

    graph: GraphParameters
    # strength of the regulariser []
    lam: Float[Array, ""]


class Server(NamedTuple):
    """The state of the server; it has the same shapes for any number of clients."""

    # the initial model, from which differences are compared
    initial: Params
    learned: Learned
    # of Adam
    opt_state: optax.OptState
    # the number of rounds so far []
    rounds: Int[Array, ""]


@method(
    title="learned graph",
    paper="none; jaxfl's own, from pFedGraph's graph (Ye et al., ICML 2023)",
    personal="the mixture of models",
    sends="its model, the gradient of its validation loss at its mixture, and its choice",
    defaults="ours",
    offers_mixture=True,
    turn_first="raise --val, from which the graph is learned; then rate",
)
def learned_graph(
    task: Task,
    *,
    alpha: Annotated[Scalar | None, POSITIVE] = None,
    lam: Scalar = 0.01,
    snap: Scalar | None = 0.9,
    rate: Annotated[Scalar, NOT_NEGATIVE] = 0.03,
    every: Annotated[int, COUNT] = 1,
    through: Annotated[int, COUNT_OR_ZERO] = 0,
    soft: Annotated[Scalar, POSITIVE] = 1.0,
    guard: Literal["client", "server", "none"] = "client",
) -> Algorithm:
    """A graph that starts as pFedGraph's and follows gradients of the clients' validation losses.

    The rows of weights are those of pFedGraph's quadratic program (`kernels.learned`), w(theta),
    with theta = the factor of alpha; the power of the sizes in the prior; what is added to a
    client's similarity with itself; and the weights of similarities: that of whole models, which is
    pFedGraph's, those of each layer, and those of each layer's update in this round. At first they
    are pFedGraph's, and with `rate=0` the method is pFedGraph with the options of the same names.
    Theta is a few numbers at the server. It is not a matrix of clients, so it serves for any
    cohort.

    Theta moves by Adam on the mean over clients of L_i(theta) = F_i(T_k(x_i)), where
    x_i = sum_j w_ij(theta) y_j is the mixture of the models y that arrived, T_k is k =`through`
    steps of local training from there, and F_i is the client's validation loss. By the chain rule
    dL_i / dw_ij = <g_i, y_j>, where g_i is the gradient of F_i(T_k(x)) at x_i. The client computes
    g_i, with k > 0 in reverse mode through its k steps, and sends it. The server multiplies it with
    the models that it has, and pulls the products back through the program to theta. One gradient
    of each client is thus enough for all of theta. What earlier rounds owe to theta is left out.

    The derivative of the program is that of a smooth form of it, see
    `kernels.learned.project_smoothly`: its own is 0 by every weight that is 0, so that an edge
    which is not there could never be learned.

    The guard: clients receive the mixture of the first theta too, which is pFedGraph's, and the one
    with the lower validation loss is taken. A mixture of the learned graph is thus never worse on
    the validation data than what the defaults make of the same models.

    A round is not written as messages: a client sends its gradient only in the rounds of learning,
    and the shapes of a message are those of every round.

    State: clients = `Client`; server = `Server`. Metrics: `alpha`, the balance; `lam`; with a guard
    `chosen`, the share of clients that take the learned mixture, and `gain`, by how much their
    validation loss is lower on average than at the mixture of the first theta.

    Args:
      task: the model and its training.
      alpha: balance of data size and similarity at the start. None: .08 M.
      lam: strength at the start of the regulariser that aligns a model with its aggregate. It is
        learned if `through` is positive.
      snap: cosines of whole models above this number count as 1. None: no cosine does.
      rate: learning rate of Adam.
      every: theta is learned in each round whose number this divides; in the other rounds no
        gradient is computed or sent.
      through: k, the number of local steps through which the gradient passes. It costs 3 k
        gradients of each client: one forward and, since a derivative of a gradient costs two, two
        backward.
      soft: width of the smooth form of the program in units of 1 / M.
      guard: who chooses between the mixtures of the learned and of the first theta: each "client"
        by its own loss, where clients without validation data take the latter; the "server" for all
        by the mean of the losses; or nobody ("none"), and the learned one is taken.

    A client sends D floats, in a round of learning D more (and one, for lam, if `through` is
    positive), and one to choose. It gets 2 D, and D more with a guard. The losses by which it
    chooses count as no gradients.

    Example:
      >>> state, info = one_round(learned_graph(task))
      >>> state.server.learned.graph.similarity.shape, info.weights.shape
      ((9,), (4, 4))
    """
    loss = data_loss(task.problem)

    def objective(params: Params, batch: Dataset, aligned: tuple, key: PRNGKey):
        centre, strength = aligned
        value, aux = loss(params, batch, None, key)
        distance = misalignment(trainable(params), trainable(centre), strength, "cosine")
        return value + distance / 2, aux

    fit = task.trainer(objective)
    # The derivative computes each step again, so that only the models between steps are kept.
    few_steps = task.trainer(jax.checkpoint(objective), steps=max(through, 1))
    gradient = task.gradient(loss)
    losses_of = deployed_losses(task)
    optimizer = optax.adam(rate, eps=EPSILON, eps_root=UNDER_ROOT)

    def first(model: Params) -> Learned:
        layers = len(jax.tree.leaves(model))
        return Learned(initial_parameters(layers), jnp.asarray(lam, float))

    def init(key: PRNGKey, train: Dataset) -> State:
        model = task.problem.init(key)
        stacked = tree.broadcast(model, train.mask.shape[0])
        learned = first(model)
        clients = Client(stacked, tree.zeros_like(stacked))
        rounds = jnp.zeros((), jnp.int32)
        return State(clients, Server(model, learned, optimizer.init(learned), rounds))

    def ask_clients(
        key: PRNGKey, mixtures: Params, anchor: Params, strength: Float[Array, "m"], cohort: Cohort
    ) -> tuple[tuple, Array]:
        """The gradients of L_i by its mixture [M, ...] and by its lam [M], as received; batches."""
        evaluate_key = stream(key, "evaluate")
        if through == 0:
            answer = gradient(evaluate_key, mixtures, cohort.val, cohort.ids)
            gradients = (answer.grads,)
            batches = answer.batches
        else:

            def train(models: Params, strength: Float[Array, "m"]) -> Params:
                key_of_steps = stream(key, "second_fit")
                return few_steps(key_of_steps, models, (anchor, strength), cohort).params

            after, pull_back = jax.vjp(train, mixtures, strength)
            answer = gradient(evaluate_key, after, cohort.val, cohort.ids)
            gradients = pull_back(answer.grads)
            has_train = (cohort.train.mask > 0).any(axis=1)
            batches = answer.batches + 3 * through * has_train
        zero = tree.zeros_like(gradients)
        received, _ = task.upload(
            stream(key, "second_upload"), zero, gradients, cohort.ids, cohort.lost
        )
        return received, batches

    def choose(
        losses: Float[Array, "m"], of_first: Float[Array, "m"], counts: Bool[Array, "m"]
    ) -> Bool[Array, "m"]:
        """Which clients take the learned mixture."""
        if guard == "client":
            return counts & (losses <= of_first)
        difference = jnp.where(counts, losses - of_first, 0.0).sum()
        return jnp.broadcast_to(difference <= 0, counts.shape)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        start, aligned = state.clients
        initial, learned, opt_state, rounds = state.server
        M = cohort.ids.size
        strength = jnp.full(M, learned.lam)
        trained, received, info = train_and_upload(
            task, fit, key, start, (aligned, strength), cohort
        )
        D = tree.size(received) // M
        latest = jax.tree.map(jnp.subtract, received, start)
        measures = layer_similarities(tree.subtract(received, initial), latest, snap)

        def weigh(graph: GraphParameters) -> Float[Array, "m m"]:
            rows = learned_rows(graph, measures, cohort.sizes, info.reported, alpha, soft)
            return isolate(rows, info.reported)

        # The mixtures of the graph as learned so far.
        normalised = tree.scale(received, inverse_norms(received))
        weights, pull_back = jax.vjp(weigh, learned.graph)
        mixtures = mix(weights, received)
        counts = (cohort.val.weights > 0).any(axis=1) & info.reported

        # The gradient of the mean of the validation losses at these mixtures by theta.
        def learn() -> tuple[Learned, optax.OptState, Array]:
            anchor = mix(weights, normalised)
            (grads, *by_lam), batches = ask_clients(key, mixtures, anchor, strength, cohort)
            products = gram(grads, received)
            mask = counts[:, None] & jnp.isfinite(products)
            clients = jnp.maximum(counts.sum(), 1)
            by_weights = jnp.where(mask, products, 0.0) / clients
            (by_graph,) = pull_back(tree.cast_like(by_weights, weights))
            by_lam = by_lam[0] if by_lam else jnp.zeros(M)
            mask = counts & jnp.isfinite(by_lam)
            by_theta = Learned(by_graph, jnp.where(mask, by_lam, 0.0).sum() / clients)
            # The square of a gradient that is enormous would stop Adam for good.
            by_theta = jax.tree.map(lambda x: jnp.clip(jnp.nan_to_num(x), -1.0, 1.0), by_theta)
            updates, after = optimizer.update(by_theta, opt_state)
            return jax.tree.map(jnp.add, learned, updates), after, batches

        learns = rounds % every == 0
        if every == 1:
            learned, opt_state, batches = learn()
        else:
            learned, opt_state, batches = lax.cond(
                learns, learn, lambda: (learned, opt_state, jnp.zeros_like(info.batches))
            )

        # The guard: the learned graph or the first one.
        metrics = {"alpha": alpha_of(learned, M), "lam": learned.lam}
        if guard != "none":
            of_first = weigh(first(initial).graph)
            fallback = mix(of_first, received)
            now = losses_of(mixtures, cohort.val, cohort)
            before = losses_of(fallback, cohort.val, cohort)
            counts = counts & jnp.isfinite(now) & jnp.isfinite(before)
            takers = choose(now, before, counts)
            weights = jnp.where(takers[:, None], weights, of_first)
            mixtures = tree.choose(takers, mixtures, fallback)
            gains = jnp.where(counts & takers, before - now, 0.0)
            metrics["chosen"] = takers.mean()
            metrics["gain"] = gains.sum() / jnp.maximum(counts.sum(), 1)
        model, accepted = task.accept(trained, mixtures, cohort)
        weights = keep_own(weights, accepted)
        has_guard = guard != "none"
        info = info._replace(
            weights=weights,
            up=info.up + (D + (through > 0)) * learns + has_guard,
            down=(2 + has_guard) * info.down,
            batches=info.batches + batches,
            metrics=metrics,
        )
        server = Server(initial, learned, opt_state, rounds + 1)
        return State(Client(model, mix(weights, normalised)), server), info

    def alpha_of(learned: Learned, clients: int) -> Float[Array, ""]:
        balance = 0.08 * clients if alpha is None else alpha
        return balance * jnp.exp(learned.graph.log_alpha)

    def models(state: State, cohort: Cohort) -> Params:
        return tree.take(state.clients.model, cohort.ids)

    return Algorithm(init, round, models, task.problem.apply, validates=True)
