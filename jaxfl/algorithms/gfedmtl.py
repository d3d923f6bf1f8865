"""GFedMtl: several servers on a graph, clients that train by ADMM, learning between clusters.

each round t, with s the server and q the cluster of client k:
  client k:  w_k by (13) from w_qs, and sends w_k - phi_k / rho
  server s:  v_qs by (14), u_qs by (15), x_qs by (17) and w_qs by (18)
  client k:  phi_k by (16), of u_qs
client k deploys w_k.
"""

from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Int, Shaped

from jaxfl.algorithms.steps import admm, compose, report_of
from jaxfl.core import tree
from jaxfl.core.errors import check
from jaxfl.core.facts import COUNT, NOT_NEGATIVE, POSITIVE, Paper, method
from jaxfl.core.messages import (
    Down,
    Exchange,
    Joining,
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
from jaxfl.graphs import topology
from jaxfl.graphs.topology import check_graph, check_groups
from jaxfl.kernels import consensus, coupling, kmeans, mix, similarity
from jaxfl.training import data_loss, without_statistics


class Record(NamedTuple):
    """What the servers keep for each client."""

    # [C] the number of its cell: the clients of one server and one cluster
    cell: Int[Array, "*c"]
    # [C] whether it has taken part in a round and reported
    seen: Bool[Array, "*c"]
    # [C] batches on which it computed a gradient before its first round
    joining: Int[Array, "*c"]


@method(
    title="GFedMtl",
    paper=Paper(
        authors="Gauthier, François and Gogineni, Vinay Chakravarthi and Werner, Stefan and "
        "Huang, Yih-Fang and Kuh, Anthony",
        title="Personalized Graph Federated Learning with Differential Privacy",
        venue="",
        year=2023,
        link="https://arxiv.org/abs/2306.06399",
        note="the extended version of the authors' paper at Asilomar 2022",
    ),
    personal="the model w_k",
    sends="its model less its dual over rho",
    defaults="ours",
    advice="clusters: as many as you expect groups of clients; then lower tau, at 0 clusters "
    "do not learn from each other",
)
def gfedmtl(
    task: Task,
    *,
    tau: Annotated[Scalar, NOT_NEGATIVE] | Literal["learned", "learned_pairs"] = 0.5,
    rho: Annotated[Scalar, POSITIVE] = 0.1,
    lam: Annotated[Scalar, NOT_NEGATIVE] = 1e-3,
    rate: Annotated[Scalar, POSITIVE] = 0.1,
    servers: Annotated[int, COUNT] = 3,
    clusters: Annotated[int, COUNT] = 2,
    server_of: Int[ArrayLike, "c"] | None = None,
    cluster_of: Int[ArrayLike, "c"] | None = None,
    graph: Literal["ring", "alone"] | Shaped[ArrayLike, "s s"] = "ring",
    agreement: Literal["mean", "integral"] = "mean",
    kappa: Annotated[Scalar, NOT_NEGATIVE] = 0.2,
    primal: Literal["fit", "exact"] = "fit",
    dual_step: Annotated[Scalar | None, NOT_NEGATIVE] = None,
) -> Algorithm:
    """Servers learn a model for each cluster by ADMM, with their neighbours and other clusters.

    The equations, with clients k of server s and cluster q, and N_s the neighbours of s:

    - (13): w_k minimises the client's loss + lam / C_qs w . w - phi_k . (w - w_qs) +
      rho / 2 (w - w_qs) . (w - w_qs), where C_qs is the number of clients of q at s.

    - (14): v_qs is the mean of w_k - phi_k / rho over these clients.

    - (15): u_qs = (v_qs + tau sum_r v_rs) / (1 + tau (Q - 1)), r over the other clusters.

    - (16): phi_k grows by rho (u_qs - w_k).

    - (17): x_qs is the mean of u_qs and of u_qt over t in N_s.

    - (18): w_qs = (x_qs + tau sum_r sum_t u_rt) / (1 + tau (Q - 1) N), N the number of neighbours.

    State: memory = `admm.Client`; record = `Record`; server = (w_qs [S, Q, ...], the learner of tau
    or nothing, the integral e_qs [S, Q, ...] or nothing).
    Metrics: `disagreement` of the servers; if tau is learned, the mean `tau` between clusters.

    Args:
      task: the model and its training.
      tau: strength of learning between clusters, a number or [Q, Q] (receiver, sender). "learned":
        tau starts at .5 and is trained to lower the validation loss at the models u of (15).
        "learned_pairs": the same, with a different tau for each pair of clusters.
      rho: the penalty of (13); with a larger one the servers agree more, but learn more slowly. 3
        suits the paper's ridge regression.
      lam: weight of |w|^2 in the loss of each cluster at a server; each of its clients takes an
        equal part.
      rate: learning rate of tau.
      servers: S, the number of servers.
      clusters: Q, the number of clusters.
      server_of: the server of each client [C]. None: client i has server i mod S.
      cluster_of: the cluster of each client [C]. None: clusters are found from the first updates of
        the clients' models.
      graph: the graph of the servers, by name or as an adjacency matrix [S, S].
      agreement: how servers come to agree: by the mean with their neighbours (17) alone ("mean"),
        which leaves a distance between servers whose clients differ; or with an integral of what is
        left of it ("integral", not the paper's): e_qs grows by kappa times the mean of the
        neighbours' u less the server's own. w_qs + e_qs is where clients train in (13), and what a
        cell without a client that has reported has in (14). All weights of (17) are then those of
        `consensus.symmetric_neighbourhood`. So the e_qs of a cluster sum to 0 over the servers, and
        are at rest only where all neighbours agree, with tau 0 at the best common model. e is the
        dual of the constraint that all servers of a cluster have one model. No further traffic.
      kappa: the rate of the integral.
      primal: how (13) is solved: by the task's training ("fit"), or exactly if the loss is
        quadratic ("exact"), see `admm.primal`.
      dual_step: the step of the dual (16), in units of rho. None: 1 with `primal="exact"`, as in
        the paper, and .1 with "fit".

    Raises:
      InputError: tau is learned with a single cluster, or the graph or the groups do not fit.

    Differs: a client sends w_k - phi_k / rho, which is all that (14) needs. A cluster without a
    client that has reported keeps its model, and a client that has not reported keeps its w_k and
    phi_k. All models start at the initial model, not at 0. The traffic between servers is not
    counted. The training and the upload that find the clusters, of all clients before round 0,
    count in the first round of each client.

    Example:
      >>> _, info = one_round(gfedmtl(task, tau="learned"))
      >>> sorted(info.metrics)
      ['disagreement', 'tau']
    """
    learned = isinstance(tau, str)
    adjacency = topology.adjacency(graph, servers)
    check(
        clusters > 1 or not learned,
        "tau is learned between clusters: give clusters=2 or more, or a number for tau",
    )
    check_graph(adjacency, servers)
    loss = data_loss(task.problem)
    average = consensus.neighbourhood
    if agreement == "integral":
        average = consensus.symmetric_neighbourhood
    side = admm.primal(loss, task.trainer, rho, lam, primal == "exact")
    step = admm.dual_rate(rho, dual_step, primal == "exact")
    explore = task.trainer(loss)
    gradient = task.gradient(loss)

    # One program: operation by operation, it takes five times as long to compile.
    @jax.jit
    def find_clusters(
        key: PRNGKey, model: Params, train: Dataset, ids: Array
    ) -> tuple[Int[Array, "c"], Int[Array, "c"]]:
        """The cluster of each client, and the batches of the training that finds it."""
        start = tree.broadcast(model, ids.size)
        fitted = explore(stream(key, "fit"), start, None, Cohort(ids, train, train, round=0))
        received, _ = task.upload(stream(key, "upload"), start, fitted.params, ids)
        update = tree.subtract(received, model)
        direction = tree.scale(update, similarity.inverse_norms(update))
        return kmeans(stream(key, "server"), direction, clusters, ids).assignment, fitted.batches

    def in_cells(models: Params) -> Params:
        """Models [S, Q, ...] as one axis [S * Q, ...]."""
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), models)

    def of_servers(models: Params) -> Params:
        """Models [S * Q, ...] as [S, Q, ...]."""
        return jax.tree.map(lambda x: x.reshape(servers, clusters, *x.shape[1:]), models)

    def init(key: PRNGKey, train: Dataset) -> tuple[admm.Client, ServerState]:
        model = task.problem.init(key)
        ids = jnp.arange(train.mask.shape[0])
        if cluster_of is None:
            cluster, joining = find_clusters(key, model, train, ids)
        else:
            cluster, joining = cluster_of, jnp.zeros_like(ids)
        server = ids % servers if server_of is None else server_of
        check_groups(ids.size, server_of=(server, servers), cluster_of=(cluster, clusters))
        cell = jnp.asarray(server * clusters + cluster)
        memory = side.enlist(model, train, cell, servers * clusters)
        models = tree.broadcast(tree.broadcast(model, clusters), servers)
        integral = tree.zeros_like(models) if agreement == "integral" else ()
        record = Record(cell, jnp.zeros(ids.size, bool), joining)
        return memory, ServerState((models, coupling.init(tau, clusters), integral), record)

    def centres(state: ServerState) -> Params:
        """Where the clients of each cell train, and what it has without a client [S * Q, ...]."""
        models, _, integral = state.server
        if agreement == "integral":
            models = jax.tree.map(jnp.add, models, integral)
        return in_cells(models)

    def download(state: ServerState) -> Down:
        return Down(each=tree.take(centres(state), state.record.cell))

    def client(key: PRNGKey, memory: admm.Client, down: Down, cohort: Cohort) -> Turn[admm.Client]:
        # (13): the new models of the clients.
        fitted = side.solve(stream(key, "fit"), memory, down.each, cohort)
        up = Up(admm.message(fitted.params, memory.dual, rho), down.each)
        memory = memory._replace(model=fitted.params, seen=jnp.ones_like(memory.seen))
        return memory, up, report_of(fitted)

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        (_, learner, integral), record, _ = state
        reported = uploads.reported
        # (14) to (18): the steps of the servers, as weights of the uploads and of the models
        # before. (14) and (15) give u, (17) and (18) give w.
        stack = jax.tree.map(lambda r, b: jnp.concatenate([r, b]), uploads.received, centres(state))
        strength = coupling.strength(learner) if learned else jnp.asarray(tau, float)
        cells = jnp.where(reported, record.cell, -1)
        u_rows, w_rows = consensus.server_round(cells, adjacency, strength, clusters, average)
        u_of_cells = mix(u_rows, stack)
        u = tree.take(u_of_cells, record.cell)
        models = of_servers(mix(w_rows, stack))
        if agreement == "integral":
            # The integral of the distance from the neighbours; statistics have none.
            towards = of_servers(mix(consensus.disagreement_rows(adjacency, clusters), u_of_cells))
            towards = without_statistics(towards)
            integral = jax.tree.map(lambda e, d: e + kappa * d, integral, towards)
        # The search for clusters counts in a client's first round.
        first = ~record.seen & reported
        floats = tree.size(u) // reported.size * (cluster_of is None)
        return Outcome(
            ServerState(
                (models, learner, integral),
                record._replace(seen=jnp.ones_like(record.seen)),
                (stack, strength, cells),
            ),
            Down(each=u),
            consensus.upload_weights(w_rows[record.cell]),
            {"disagreement": consensus.disagreement(models)},
            joining=Joining(up=first * floats, batches=first * record.joining),
        )

    def ascend(key: PRNGKey, memory: admm.Client, down: Down, cohort: Cohort) -> Turn[admm.Client]:
        # (16): the new duals of the clients.
        memory = memory._replace(dual=admm.ascend(memory.dual, memory.model, down.each, step))
        if not learned:
            return memory, None, Report()
        # Each client sends the gradient of its validation loss at u.
        answer = gradient(stream(key, "evaluate"), down.each, cohort.val, cohort.ids)
        up = Up(answer.grads, tree.zeros_like(answer.grads))
        return memory, up, Report(batches=answer.batches)

    def learn(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        # From these the servers compute the gradient of the sum of the losses with respect to tau.
        (models, learner, integral), record, (stack, strength, cells) = state
        products = similarity.gram(uploads.received, stack)
        grad = consensus.tau_grad(products, cells, adjacency, strength, clusters)
        learner = coupling.update(learner, grad, rate)
        metrics = {"tau": coupling.mean(strength, clusters)}
        return Outcome(ServerState((models, learner, integral), record), metrics=metrics)

    def release(state: ServerState) -> Down:
        return Down(each=tree.take(in_cells(state.server[0]), state.record.cell))

    def deploy(memory: admm.Client, down: Down, cohort: Cohort) -> Params:
        # A client that was never seen has the model of its cell.
        return tree.choose(memory.seen, memory.model, down.each)

    exchanges = (Exchange(client, server), Exchange(ascend, learn if learned else None))
    wire = Wire(init, exchanges, deploy, download, release)
    return compose(task, wire, validates=learned)
