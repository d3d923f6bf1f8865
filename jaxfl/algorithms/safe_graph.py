"""safe_graph: a graph beside a global model, between which clients choose by held-out scores.

each round t, with v_i the client's own model:
  client i:  w_i = local training of F_i from w, v_i = the same from v_i; sends both, and the kernel
             mean of its examples (`embeddings`)
  server:    w = sum_i p_i w_i; weights r by the kernel means; sends w, sum_j r_ij v_j and
             sum_j r_ij w_j
  client i:  sends the scores of the five models on held-out examples, also of earlier rounds
  server:    sends what each will surely gain, given the scores of all (`gains`)
client i deploys the best of the five; v_i is the best of v_i and of the two mixtures.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import method
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
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Problem, Task
from jaxfl.kernels import (
    embedding_rows,
    isolate,
    mix,
    predictable,
    shrunk_means,
)
from jaxfl.training import data_loss
from jaxfl.training.held_out import HeldOut, held_out_values, hold_out
from jaxfl.training.loop import sum_parts

# of the signs that stand for the inputs of an example
SIGNS = 64
# Targets have at most so many numbers; gradients of more are projected at random.
TARGETS = 32
# Ids are counted in so many bins.
BINS = 256
# number of examples that are embedded at a time
PART = 32
# A candidate has to be better by so many standard deviations than the one that is best for all.
DEVIATIONS = 2.0
# decides between equal ones
LEAST = 1e-12


class Memory(NamedTuple):
    """What each client keeps."""

    own: Params  # [C, ...] from which it trains
    chosen: steps.Personal  # what it deploys; one that is not `seen` deploys the global model
    held_out: HeldOut  # half of the last round, a quarter of the one before, ...
    rounds: Int[Array, "c"]  # that it was there


class Candidates(NamedTuple):
    """What a client may deploy [M, ...]; where nothing is known of them, it is the first."""

    tuned: Params  # the global model, trained: FedAvg with fine-tuning
    own: Params  # the personal model, trained
    mixture: Params = ()  # the graph's, of the personal models
    tuned_mixture: Params = ()  # the graph's, of the global model as clients trained it
    common: Params = ()  # the mean of these: FedAvg


class Trial(NamedTuple):
    """What a client keeps within a round."""

    candidates: Candidates
    held_out: HeldOut
    rounds: Int[Array, "m"]


@method(
    title="safe graph",
    paper="none; jaxfl's own (2026), with weights after arXiv 2603.02233",
    personal="the choice of a model",
    sends="two models, the mean of its examples in random features, and scores",
    advice="raise --val, by which clients choose",
)
def safe_graph(task: Task) -> Algorithm:
    """Local training, FedAvg, FedAvg with fine-tuning, or a graph, as held-out examples say.

    For clients of which nobody knows how they differ. In a round a client trains the global and its
    personal model. It has five candidates: both of them, the new global model, and a graph's
    mixtures of what the clients trained, of either model. It deploys the one with the best expected
    score (before its first round the global model), and goes on with the best of its personal model
    and the two mixtures. So a wrong graph leaves local training, and FedAvg is always there.

    The graph has no strength to choose: a client mixes with those whose examples differ from its
    own by no more than their means err (`embedding_rows`).

    The choice: the value of a model on an example is its score, by which one with the same score
    and a smaller error is better, see `training.held_out.value`. s_ic is the mean over held-out
    examples of client i of (value of candidate c - mean value of all five), half of this round and
    half of those before. The server, which has them all, expects of each candidate (`shrunk_means`)
    a value near the common mean where clients do not differ in what suits them, near s_ic where
    they do. It answers with the gains over the candidate that is best for all, less two of their
    deviations (`gains`): who differs from all others must have shown it. Where no candidate
    predicts a client's targets better than chance, while the others' are predicted (`predictable`),
    its scores tell others nothing, and it takes FedAvg's model unless they clearly speak for
    another one. Held out are the validation examples; without any, every fifth of a client's
    training.

    State: memory = `Memory`; server = the global model. Metrics: who takes each candidate.

    Args:
      task: the model and its training.

    Example:
      >>> _, info = one_round(safe_graph(task))
      >>> info.weights.shape, list(info.metrics)
      ((4, 4), ['common', 'mixture', 'own', 'tuned', 'tuned_mixture'])
    """
    fit = task.trainer(data_loss(task.problem))
    embed = embeddings(task.problem)
    values_of = held_out_values(task)

    def init(key: PRNGKey, train: Dataset) -> tuple[Memory, ServerState]:
        model = task.problem.init(key)
        clients, models = len(train.mask), len(Candidates._fields)
        stacked = tree.broadcast(model, clients)
        each, two = jnp.zeros((clients, models)), jnp.zeros((clients, 2))
        held_out = HeldOut(each, each, two, two)
        chosen = steps.start_personal(model, clients)
        return Memory(stacked, chosen, held_out, jnp.zeros(clients, int)), ServerState(model)

    def client(key: PRNGKey, memory: Memory, down: Down, cohort: Cohort) -> Turn[Trial]:
        cohort, _ = hold_out(cohort)
        common = steps.deploy_common((), down, cohort)
        tuned = fit(stream(key, "fit"), common, None, cohort)
        own = fit(stream(key, "second_fit"), memory.own, None, cohort)
        up = Up((tuned.params, own.params), (common, memory.own), embed(cohort.train))
        report = Report((tuned.loss + own.loss) / 2, tuned.batches + own.batches, own.params)
        candidates = Candidates(tuned.params, own.params)
        return Trial(candidates, memory.held_out, memory.rounds), up, report

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        model, _ = steps.mean_by_size(uploads._replace(received=uploads.received[0]))
        mean, variance = uploads.plain
        rows = embedding_rows(mean, variance, uploads.reported)
        weights = isolate(rows, uploads.reported)
        tuned, own = mix(weights, uploads.received)
        return Outcome(ServerState(model), Down(model, (own, tuned)), weights)

    def compare(key: PRNGKey, memory: Trial, down: Down, cohort: Cohort) -> Turn[Trial]:
        mixture, tuned_mixture = down.each
        common = steps.deploy_common((), down, cohort)
        candidates = Candidates(*memory.candidates[:2], mixture, tuned_mixture, common)
        now, counts = values_of(candidates, cohort)

        def average(before: Array, now: Array) -> Array:
            now = jnp.where(jnp.isfinite(now), now, before)
            known = (memory.rounds > 0)[:, None] & jnp.isfinite(before)
            return jnp.where(known, (before + now) / 2, now)

        held_out = jax.tree.map(average, memory.held_out, now)
        up = Up((), (), (held_out, counts))
        return Trial(candidates, held_out, memory.rounds + 1), up, Report()

    def judge(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        held_out, counts = uploads.plain
        return Outcome(state, Down(each=gains(held_out, counts * uploads.reported)))

    def take(key: PRNGKey, memory: Trial, down: Down, cohort: Cohort) -> Turn[Memory]:
        candidates, held_out, rounds = memory
        finite = [tree.finite(model, cohort.ids.size) for model in candidates]
        values = jnp.where(jnp.stack(finite, axis=1), down.each, -jnp.inf)
        best = values.argmax(axis=1)
        going = 1 + values[:, 1:4].argmax(axis=1)
        takes = {name: (best == i).astype(float) for i, name in enumerate(Candidates._fields)}
        chosen = steps.Personal(pick(candidates, best), takes["common"] < 1)
        after = Memory(pick(candidates, going), chosen, held_out, rounds)
        return after, None, Report(metrics=takes)

    def deploy(memory: Memory, down: Down, cohort: Cohort) -> Params:
        return steps.deploy_personal(memory.chosen, down, cohort)

    trips = (Exchange(client, server), Exchange(compare, judge), Exchange(take))
    return steps.compose(task, Wire(init, trips, deploy, steps.download_server))


class Embedding(NamedTuple):
    """What a client sends of its examples."""

    # [M, D] the mean of the examples' embeddings
    mean: Float[Array, "m d"]
    # [M] tr(S) / n, the expected squared distance of the mean from that of endless examples
    variance: Float[Array, "m"]


def input_numbers(x: PyTree) -> Float[Array, "f"]:
    """The inputs of one example as numbers: ids as counts in 256 bins, all others as they are.

    Example:
      >>> input_numbers({"a": jnp.array([1.0, 2.0]), "b": jnp.array([[3.0]])}).tolist()
      [1.0, 2.0, 3.0]
    """

    def leaf(x: Array) -> Array:
        if jnp.issubdtype(x.dtype, jnp.signedinteger):
            # Negative ids stand behind the end of a shorter text.
            flat = x.ravel()
            return (jax.nn.one_hot(flat % BINS, BINS) * (flat >= 0)[:, None]).sum(axis=0)
        return x.ravel().astype(jnp.float32)

    return jnp.concatenate([leaf(jnp.asarray(x)) for x in jax.tree.leaves(x)])


def embeddings(problem: Problem) -> Callable[[Dataset], Embedding]:
    """The kernel means of clients' examples, in random features that all clients have in common.

    The embedding of an example is the product of two unit vectors: the signs of 64 random
    projections of its input, less the input's mean, and the gradient of its error by a prediction
    of 0. It is the direction in which the example would move a linear model of the signs. So
    it separates clients that differ in inputs, in targets, or in what a target means, and needs
    neither a trained model nor the scale of the data. The kernel of the signs is 1 - 2 a / pi
    of the angle a of two inputs (Charikar, 2002, https://doi.org/10.1145/509907.509965).

    Args:
      problem: of the model; its error and the shape of its predictions are used.

    Returns:
      (data [M, n]) -> `Embedding`.

    Example:
      >>> embedding = embeddings(task.problem)(cohort.train)
      >>> embedding.mean.shape, embedding.variance.shape
      ((4, 128), (4,))
    """
    zero = jax.random.key(0)
    model = jax.eval_shape(problem.init, zero)

    def predictions(model: Params, part: Dataset) -> PyTree:
        complete = model if problem.recall is None else problem.recall(model, part)
        return problem.apply(complete, part.x)

    def pulls_of(part: Dataset) -> Array:
        """The gradient of each example's error by predictions of 0, [B, k]."""
        shape = jax.eval_shape(predictions, model, part)
        start = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)
        target = problem.compared(part.x, part.y)
        mask = part.mask > 0
        by_prediction = jax.grad(lambda p: problem.errors(p, target, mask).sum())(start)
        return tree.ravel(by_prediction).astype(jnp.float32)

    def sums(part: Dataset) -> tuple[Array, Array]:
        """The sum of the embeddings of some examples, and that of their squared lengths."""
        inputs, pulls = jax.vmap(input_numbers)(part.x), pulls_of(part)
        projected = jnp.matmul(
            inputs - inputs.mean(axis=1, keepdims=True),
            jax.random.normal(zero, (inputs.shape[1], SIGNS)),
            precision="highest",
        )
        signs = jnp.where(projected >= 0, 1.0, -1.0) / np.sqrt(SIGNS)
        if pulls.shape[1] > TARGETS:
            of_targets = jax.random.normal(zero, (pulls.shape[1], TARGETS))
            pulls = jnp.matmul(pulls, of_targets, precision="highest")
        norms = jnp.sqrt(jnp.sum(pulls**2, axis=1, keepdims=True))
        pulls = pulls / jnp.where(norms > 0, norms, 1.0)
        pulls = jnp.where((part.mask > 0)[:, None] & jnp.isfinite(pulls), pulls, 0.0)
        return jnp.matmul(signs.T, pulls, precision="highest").ravel(), jnp.sum(pulls**2)

    def of_client(data: Dataset) -> Embedding:
        total, squares = sum_parts(sums, data, PART)
        count = (jnp.asarray(data.mask) > 0).sum()
        mean = total / jnp.maximum(count, 1)
        # tr(S), from n - 1 degrees of freedom
        spread = jnp.maximum(squares - count * jnp.sum(mean**2), 0.0) / jnp.maximum(count - 1, 1)
        # A client of one example or none may be anything.
        return Embedding(mean, jnp.where(count > 1, spread / jnp.maximum(count, 1), 1.0))

    return over_clients(of_client, "auto")


def gains(held_out: HeldOut, counts: Float[Array, "m"]) -> Float[Array, "m k"]:
    """By how much each candidate is better than the one that is best for all, less two deviations.

    The variance of the difference is taken as the sum of the two, as if they were independent.

    Args:
      held_out: of the clients.
      counts: their numbers of held-out examples [M].

    Returns:
      [M, K]; 0 for the candidate that is best for all. For a client whose targets are not
      `predictable` it is by how much its own examples say that a candidate is better than the last
      one, less two deviations, by a bound of their variance, and 0 for that.

    Example:
      >>> means = jnp.array([[0.1, -0.1], [0.1, -0.1], [-0.1, 0.1]])
      >>> two = jnp.array([[0.9, 0.9]] * 3)
      >>> held_out = HeldOut(means, means**2 + 0.01, two, two)
      >>> gains(held_out, jnp.full(3, 9.0)).argmax(axis=1).tolist()
      [0, 0, 1]
      >>> gains(held_out, jnp.ones(3)).argmax(axis=1).tolist()
      [0, 0, 0]
    """
    signal = predictable(held_out.best, held_out.chance, counts)
    expected, variance, common = shrunk_means(held_out.means, held_out.squares, counts * signal)
    lead = common.argmax()
    deviation = jnp.sqrt(variance + variance[:, lead, None])
    gain = expected - expected[:, lead, None] - DEVIATIONS * deviation
    # Of those for whom the last one stands, with a bound of the variance of a difference.
    means, squares, *_ = held_out
    size = jnp.maximum(counts, 1)[:, None]
    deviation = jnp.sqrt(2 * (squares + squares[:, -1:]) / size)
    alone = means - means[:, -1:] - DEVIATIONS * deviation
    places = jnp.arange(common.size)[None]
    gain = jnp.where(places == lead, 0.0, gain)
    # Where nothing differs it is the last one.
    alone = jnp.where(places == common.size - 1, LEAST, alone)
    return jnp.where(signal[:, None], gain, alone)


def pick(models: Sequence[Params], places: Int[Array, "m"]) -> Params:
    """The model of each client at its place among several.

    Args:
      models: K stacked models [M, ...].
      places: of the client's among them [M].

    Example:
      >>> pick((jnp.zeros(3), jnp.ones(3)), jnp.array([0, 1, 1])).tolist()
      [0.0, 1.0, 1.0]
    """
    chosen = models[0]
    for place, model in enumerate(models[1:], start=1):
        chosen = tree.choose(places == place, model, chosen)
    return chosen
