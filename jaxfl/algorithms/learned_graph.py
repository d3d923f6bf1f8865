"""learned_graph: pFedGraph's graph, whose parameters the clients' validation losses move.

each round t, with the parameters theta of the graph, and their first values theta_0:
  client i:  w_i = local training of F_i(w) - lam / 2 <w, n_i> / |w| from c_i, and sends it
  server:    r = the rows of the graph of theta, r0 those of theta_0
             sends sum_j r_ij w_j and sum_j r0_ij w_j
  client i:  g_i = the gradient of its validation loss at the first (after k local steps); sends
             it, and the losses at both
  server:    theta takes a step of Adam; the derivative by r_ij is <g_i, w_j>
             c_i = the mixture with the lower loss, n_i = the same mixture of w_j / |w_j|
client i deploys c_i.
"""

from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import COUNT, COUNT_OR_ZERO, NOT_NEGATIVE, POSITIVE, method
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
from jaxfl.kernels import gram, inverse_norms, isolate, mix
from jaxfl.kernels.alignment import misalignment
from jaxfl.kernels.learned import (
    GraphParameters,
    initial_parameters,
    layer_similarities,
    learned_rows,
)
from jaxfl.kernels.server_optimizer import UNDER_ROOT
from jaxfl.training import data_loss, deployed_losses, trainable

# Added to Adam's root of squares: parameters whose gradients are far below it hardly move.
EPSILON = 1e-3


class Learned(NamedTuple):
    """What is learned."""

    graph: GraphParameters
    # strength of the regulariser []
    lam: Float[Array, ""]


class Offer(NamedTuple):
    """What the server sends when it has the models."""

    # [M, ...] the mixture of the learned graph
    mixture: Params
    # [M, ...] its mixture of normalised models if the gradient passes through local steps
    anchor: Params
    # [M, ...] the mixture of the first graph if there is a guard
    first: Params


class Answer(NamedTuple):
    """What a client says of its mixtures beside the gradient."""

    # [M] whether it has validation data
    validates: Bool[Array, "m"]
    # [M] its validation loss at the mixture of the learned graph if there is a guard
    learned: Any = ()
    # [M] the same at that of the first graph
    first: Any = ()


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
    advice="raise --val, from which the graph is learned; then rate",
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

    State: memory = `Aligned`; server = `Server`. Metrics: `alpha`, the balance; `lam`; with a guard
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
    chooses count as no gradients. The client of a round without learning sends zeros in the place
    of its gradient, which are not counted.

    Example:
      >>> state, info = one_round(learned_graph(task))
      >>> state.server.learned.graph.similarity.shape, info.weights.shape
      ((9,), (4, 4))
    """
    loss = data_loss(task.problem)
    has_guard = guard != "none"

    def objective(params: Params, batch: Dataset, aligned: tuple, key: PRNGKey):
        centre, strength = aligned
        value, aux = loss(params, batch, None, key)
        distance = misalignment(params, centre, strength, "cosine")
        return value + distance / 2, aux

    fit = task.trainer(objective)
    # The derivative computes each step again, so that only the models between steps are kept.
    few_steps = task.trainer(jax.checkpoint(objective), steps=max(through, 1))
    gradient = task.gradient(loss)
    losses_of = deployed_losses(task)
    optimizer = optax.adam(rate, eps=EPSILON, eps_root=UNDER_ROOT)
    start_clients = steps.init_aligned(task.problem, "cosine", keep_initial=True)

    def first(model: Params) -> Learned:
        layers = len(jax.tree.leaves(trainable(model)))
        return Learned(initial_parameters(layers), jnp.asarray(lam, float))

    def init(key: PRNGKey, train: Dataset) -> tuple[steps.Aligned, ServerState]:
        memory, (model, *_) = start_clients(key, train)
        learned = first(model)
        rounds = jnp.zeros((), jnp.int32)
        return memory, ServerState(Server(model, learned, optimizer.init(learned), rounds))

    def download(state: ServerState) -> Down:
        # One number beside the models is not counted.
        return Down(state.server.learned.lam, floats=jnp.zeros((), int))

    def client(key: PRNGKey, memory: steps.Aligned, down: Down, cohort: Cohort) -> Turn[tuple]:
        strength = jnp.full(cohort.ids.size, down.common)
        anchor = (memory.anchor, strength)
        trained, up, report = steps.train_and_send(fit, key, memory.model, anchor, cohort)
        return (trained, strength), up, report

    def graphs(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        """The mixtures of the graph as learned so far, and of the first one."""
        initial, learned, _, rounds = state.server
        _, sizes, reported, received, start, _ = uploads
        latest = jax.tree.map(jnp.subtract, received, start)
        measures = layer_similarities(tree.subtract(received, initial), latest, snap)

        def weigh(graph: GraphParameters) -> Float[Array, "m m"]:
            return isolate(learned_rows(graph, measures, sizes, reported, alpha, soft), reported)

        normalised = tree.scale(received, inverse_norms(received))
        weights, pull_back = jax.vjp(weigh, learned.graph)
        of_first = weigh(first(initial).graph) if has_guard else ()
        offer = Offer(
            mix(weights, received),
            mix(weights, normalised) if through else (),
            mix(of_first, received) if has_guard else (),
        )
        memo = (pull_back, weights, of_first, received, normalised, reported)
        floats = jnp.full(reported.size, size_of(received) * (1 + has_guard))
        return Outcome(state._replace(memo=memo), Down(rounds % every == 0, offer, floats=floats))

    def gradients(
        key: PRNGKey, offer: Offer, strength: Float[Array, "m"], cohort: Cohort
    ) -> tuple[tuple, Int[Array, "m"]]:
        """The gradients of L_i by its mixture [M, ...] and by its lam [M]; batches."""
        evaluate_key = stream(key, "evaluate")
        if through == 0:
            answer = gradient(evaluate_key, offer.mixture, cohort.val, cohort.ids)
            return (answer.grads,), answer.batches

        def train(models: Params, strength: Float[Array, "m"]) -> Params:
            anchor = (offer.anchor, strength)
            return few_steps(stream(key, "second_fit"), models, anchor, cohort).params

        after, pull_back = jax.vjp(train, offer.mixture, strength)
        answer = gradient(evaluate_key, after, cohort.val, cohort.ids)
        has_train = (cohort.train.mask > 0).any(axis=1)
        return pull_back(answer.grads), answer.batches + 3 * through * has_train

    def answer(key: PRNGKey, memory: tuple, down: Down, cohort: Cohort) -> Turn[tuple]:
        trained, strength = memory
        learns, offer = down.common, down.each

        def ask() -> tuple[tuple, Int[Array, "m"]]:
            return gradients(key, offer, strength, cohort)

        def ask_nothing() -> tuple[tuple, Int[Array, "m"]]:
            return tree.zeros_like(jax.eval_shape(ask))

        grads, batches = ask() if every == 1 else lax.cond(learns, ask, ask_nothing)
        said = Answer((cohort.val.weights > 0).any(axis=1))
        if has_guard:
            said = said._replace(
                learned=losses_of(offer.mixture, cohort.val, cohort),
                first=losses_of(offer.first, cohort.val, cohort),
            )
        size = size_of(trained) + (through > 0)
        floats = jnp.full(cohort.ids.size, size * learns + has_guard)
        up = Up(grads, tree.zeros_like(grads), said, floats)
        return (trained, offer), up, Report(batches=batches)

    def takers_of(said: Answer, counts: Bool[Array, "m"]) -> Bool[Array, "m"]:
        """Which clients take the mixture of the learned graph."""
        if guard == "client":
            return counts & (said.learned <= said.first)
        difference = jnp.where(counts, said.learned - said.first, 0.0).sum()
        return jnp.broadcast_to(difference <= 0, counts.shape)

    def learn(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        initial, learned, opt_state, rounds = state.server
        pull_back, weights, of_first, received, normalised, reported = state.memo
        said: Answer = uploads.plain
        M = reported.size
        counts = said.validates & reported

        # The gradient of the mean of the validation losses at these mixtures by theta.
        def move() -> tuple[Learned, optax.OptState]:
            grads, *by_lam = uploads.received
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
            return jax.tree.map(jnp.add, learned, updates), after

        if every == 1:
            learned, opt_state = move()
        else:
            learned, opt_state = lax.cond(rounds % every == 0, move, lambda: (learned, opt_state))

        # The guard: the learned graph or the first one.
        metrics = {"alpha": alpha_of(learned, M), "lam": learned.lam}
        takers = jnp.ones(M, bool)
        if has_guard:
            counts = counts & jnp.isfinite(said.learned) & jnp.isfinite(said.first)
            takers = takers_of(said, counts)
            weights = jnp.where(takers[:, None], weights, of_first)
            gains = jnp.where(counts & takers, said.first - said.learned, 0.0)
            metrics["chosen"] = takers.mean()
            metrics["gain"] = gains.sum() / jnp.maximum(counts.sum(), 1)
        floats = jnp.full(M, size_of(received))
        reply = Down(each=(takers, mix(weights, normalised)), floats=floats)
        server = Server(initial, learned, opt_state, rounds + 1)
        return Outcome(ServerState(server), reply, weights, metrics)

    take_mixture = steps.take_aligned(task, "cosine")

    def take(key: PRNGKey, memory: tuple, down: Down, cohort: Cohort) -> Turn[steps.Aligned]:
        trained, offer = memory
        takers, anchor = down.each
        mixture = tree.choose(takers, offer.mixture, offer.first) if has_guard else offer.mixture
        chosen = down._replace(each=(mixture, anchor))
        return take_mixture(key, steps.Aligned(trained, ()), chosen, cohort)

    def size_of(models: Params) -> int:
        """D, of models [M, ...]."""
        return tree.size(models) // len(jax.tree.leaves(models)[0])

    def alpha_of(learned: Learned, clients: int) -> Float[Array, ""]:
        balance = 0.08 * clients if alpha is None else alpha
        return balance * jnp.exp(learned.graph.log_alpha)

    exchanges = (Exchange(client, graphs), Exchange(answer, learn), Exchange(take))
    return steps.compose(
        task, Wire(init, exchanges, steps.deploy_aligned, download), validates=True
    )
