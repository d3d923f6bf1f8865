"""safe_graph: a graph beside a global model, between which clients choose by held-out scores."""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxfl.algorithms.steps.client import deploy_common, deploy_personal
from jaxfl.algorithms.steps.composition import compose
from jaxfl.algorithms.steps.embeddings import embeddings
from jaxfl.algorithms.steps.held_out import hold_out, pick, relative_scores
from jaxfl.algorithms.steps.personal import Personal, start_personal
from jaxfl.algorithms.steps.server import mean_by_size
from jaxfl.core import tree
from jaxfl.core.facts import method
from jaxfl.core.messages import (
    Down,
    Exchange,
    Outcome,
    Report,
    ServerState,
    Up,
    Uploads,
    Wire,
    download_server,
)
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Task
from jaxfl.kernels.evidence import all_for_one_rows, embedding_rows, shrunk_means
from jaxfl.kernels.mixing import isolate, mix
from jaxfl.training.objectives import data_loss


class Memory(NamedTuple):
    """What each client keeps."""

    own: Params  # [C, ...] from which it trains
    chosen: Personal  # what it deploys; one that is not `seen` deploys the global model


class Candidates(NamedTuple):
    """What a client may deploy [M, ...]; where nothing is known of them, it is the first."""

    tuned: Params  # the global model, trained: FedAvg with fine-tuning
    own: Params  # the personal model, trained
    mixture: Params = ()  # the graph's, of the personal models
    tuned_mixture: Params = ()  # the graph's, of the global model as clients trained it
    common: Params = ()  # the mean of these: FedAvg


@method(
    title="safe graph",
    paper="none; jaxfl's own (2026), with weights after arXiv 2603.02233 and 2507.06844",
    personal="the choice of a model",
    sends="two models, the mean of its examples in random features, and scores",
    turn_first="raise --val, by which clients choose",
)
def safe_graph(
    task: Task, *, graph: Literal["embeddings", "binary", "continuous"] = "embeddings"
) -> Algorithm:
    """Local training, FedAvg, FedAvg with fine-tuning, or a graph, as held-out examples say.

    For clients of which nobody knows how they differ. In a round a client trains the global and its
    personal model. It has five candidates: both of them, the new global model, and a graph's
    mixtures of what the clients trained, of either model. It deploys the one with the best expected
    score (before its first round the global model), and goes on with the best of its personal model
    and the two mixtures. So a wrong graph leaves local training, and FedAvg is always there.

    The graph has no strength to choose, see `kernels.evidence`. With "embeddings" a client mixes
    with those whose examples differ from its own by no more than their means err; with "binary" and
    "continuous" with those whose update of the global model is nearer to its own than 0 is.

    The choice: s_ic is the mean over held-out examples of client i of (score of candidate c - mean
    score of all five). The server, which has them all, answers with expectations (`shrunk_means`):
    near the common mean where clients do not differ in what suits them, near s_ic where they do.
    Held out are the validation examples; without any, every fifth of a client's training.

    State: memory = `Memory`; server = the global model. Metrics: who takes each candidate.

    Args:
      task: the model and its training.
      graph: of what the weights are made.

    Example:
      >>> _, info = one_round(safe_graph(task))
      >>> info.weights.shape, list(info.metrics)
      ((4, 4), ['common', 'mixture', 'own', 'tuned', 'tuned_mixture'])
    """
    fit = task.trainer(data_loss(task.problem))
    embed, of_data = embeddings(task.problem), graph == "embeddings"
    scores_of = relative_scores(task)

    def init(key: PRNGKey, train: Dataset) -> tuple[Memory, ServerState]:
        model = task.problem.init(key)
        stacked = tree.broadcast(model, len(train.mask))
        return Memory(stacked, start_personal(model, len(train.mask))), ServerState(model)

    def client(
        key: PRNGKey, memory: Memory, down: Down, cohort: Cohort
    ) -> tuple[Candidates, Up, Report]:
        cohort, _ = hold_out(cohort)
        common = deploy_common((), down, cohort)
        tuned = fit(stream(key, "fit"), common, None, cohort)
        own = fit(stream(key, "second_fit"), memory.own, None, cohort)
        plain = embed(cohort.train) if of_data else ()
        up = Up((tuned.params, own.params), (common, memory.own), plain)
        report = Report((tuned.loss + own.loss) / 2, tuned.batches + own.batches, own.params)
        return Candidates(tuned.params, own.params), up, report

    def weigh(uploads: Uploads) -> Float[Array, "m m"]:
        if of_data:
            mean, variance = uploads.plain
            return embedding_rows(mean, variance, uploads.reported)
        updates = jax.tree.map(jnp.subtract, uploads.received[0], uploads.before[0])
        return all_for_one_rows(updates, uploads.sizes, uploads.reported, graph == "binary")

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        model, _ = mean_by_size(uploads._replace(received=uploads.received[0]))
        weights = isolate(weigh(uploads), uploads.reported)
        tuned, own = mix(weights, uploads.received)
        return Outcome(ServerState(model), Down(model, (own, tuned)), weights)

    def compare(
        key: PRNGKey, memory: Candidates, down: Down, cohort: Cohort
    ) -> tuple[Candidates, Up, Report]:
        mixture, tuned_mixture = down.each
        common = deploy_common((), down, cohort)
        candidates = Candidates(memory.tuned, memory.own, mixture, tuned_mixture, common)
        return candidates, Up((), (), scores_of(candidates, cohort)), Report()

    def judge(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        means, squares, counts = uploads.plain
        return Outcome(state, Down(each=shrunk_means(means, squares, counts * uploads.reported)))

    def take(
        key: PRNGKey, memory: Candidates, down: Down, cohort: Cohort
    ) -> tuple[Memory, None, Report]:
        finite = [tree.finite(model, cohort.ids.size) for model in memory]
        values = jnp.where(jnp.stack(finite, axis=1), down.each, -jnp.inf)
        best = values.argmax(axis=1)
        going = 1 + values[:, 1:4].argmax(axis=1)
        takes = {name: (best == i).astype(float) for i, name in enumerate(Candidates._fields)}
        chosen = Personal(pick(memory, best), takes["common"] < 1)
        return Memory(pick(memory, going), chosen), None, Report(metrics=takes)

    def deploy(memory: Memory, down: Down, cohort: Cohort) -> Params:
        return deploy_personal(memory.chosen, down, cohort)

    trips = (Exchange(client, server), Exchange(compare, judge), Exchange(take))
    return compose(task, Wire(init, trips, deploy, download_server))
