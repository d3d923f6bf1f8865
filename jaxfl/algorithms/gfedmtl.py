"""GFedMtl: several servers on a graph, clients that train by ADMM, learning between clusters."""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Int, Shaped

from jaxfl.algorithms.steps import admm
from jaxfl.algorithms.steps.uploads import upload
from jaxfl.core import tree
from jaxfl.core.errors import check
from jaxfl.core.facts import method
from jaxfl.core.options import COUNT, NOT_NEGATIVE, POSITIVE
from jaxfl.core.papers import Paper
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task
from jaxfl.graphs import topology
from jaxfl.graphs.topology import check_graph, check_groups
from jaxfl.kernels import consensus, coupling, similarity
from jaxfl.kernels.cluster import kmeans
from jaxfl.kernels.mixing import mix
from jaxfl.training.objectives import data_loss


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
    turn_first="clusters: as many as you expect groups of clients; then lower tau, at 0 clusters "
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

    State: clients = `admm.Client`; server = (w_qs [S, Q, ...], the learner of tau or nothing, the
    integral e_qs [S, Q, ...] or nothing).
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
        return kmeans(stream(key, "server"), direction, ids, clusters).assignment, fitted.batches

    def in_cells(models: Params) -> Params:
        """Models [S, Q, ...] as one axis [S * Q, ...]."""
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), models)

    def of_servers(models: Params) -> Params:
        """Models [S * Q, ...] as [S, Q, ...]."""
        return jax.tree.map(lambda x: x.reshape(servers, clusters, *x.shape[1:]), models)

    def init(key: PRNGKey, train: Dataset) -> State:
        model = task.problem.init(key)
        ids = jnp.arange(train.mask.shape[0])
        if cluster_of is None:
            cluster, joining = find_clusters(key, model, train, ids)
        else:
            cluster, joining = cluster_of, jnp.zeros_like(ids)
        server = ids % servers if server_of is None else server_of
        check_groups(ids.size, server_of=(server, servers), cluster_of=(cluster, clusters))
        cell = jnp.asarray(server * clusters + cluster)
        clients = side.enlist(model, train, cell, servers * clusters)._replace(joining=joining)
        models = tree.broadcast(tree.broadcast(model, clusters), servers)
        integral = jax.tree.map(jnp.zeros_like, models) if agreement == "integral" else ()
        return State(clients, (models, coupling.init(tau, clusters), integral))

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        client = state.clients
        models, learner, integral = state.server
        if agreement == "integral":
            models = jax.tree.map(jnp.add, models, integral)
        before = in_cells(models)
        centre = tree.take(before, client.cell)
        # (13): the new models of the clients.
        fitted = side.solve(stream(key, "fit"), client, centre, cohort)
        uploads = admm.message(fitted.params, client.dual, rho)
        received, info = upload(task, key, fitted, centre, uploads, cohort)
        floats = info.up
        # (14) to (18): the steps of the servers, as weights of the uploads and of the models
        # before. (14) and (15) give u, (17) and (18) give w.
        stack = jax.tree.map(lambda r, b: jnp.concatenate([r, b]), received, before)
        strength = coupling.strength(learner) if learned else jnp.asarray(tau, float)
        cells = jnp.where(info.reported, client.cell, -1)
        u_rows, w_rows = consensus.server_round(cells, adjacency, strength, clusters, average)
        u_of_cells = mix(u_rows, stack)
        u = tree.take(u_of_cells, client.cell)
        models = of_servers(mix(w_rows, stack))
        if agreement == "integral":
            # The integral of the distance from the neighbours.
            towards = of_servers(mix(consensus.disagreement_rows(adjacency, clusters), u_of_cells))
            integral = jax.tree.map(lambda e, d: e + kappa * d, integral, towards)
        # (16): the new duals of the clients.
        dual = admm.ascend(client.dual, fitted.params, u, step)
        # The search for clusters counts in a client's first round.
        first = ~client.seen & info.reported
        info = info._replace(
            weights=consensus.upload_weights(w_rows[client.cell]),
            up=info.up * jnp.where(first & (cluster_of is None), 2, 1),
            batches=info.batches + jnp.where(first, client.joining, 0),
            down=2 * info.down,
            metrics={"disagreement": consensus.disagreement(models)},
        )
        if learned:
            # Each client sends the gradient of its validation loss at u. From these the server
            # computes the gradient of the sum of the losses with respect to tau.
            answer = gradient(stream(key, "evaluate"), u, cohort.val, cohort.ids)
            zero = jax.tree.map(jnp.zeros_like, answer.grads)
            answer_key = stream(key, "second_upload")
            received_grads, _ = task.upload(answer_key, zero, answer.grads, cohort.ids, cohort.lost)
            products = similarity.gram(received_grads, stack)
            grad = consensus.tau_grad(products, cells, adjacency, strength, clusters)
            learner = coupling.update(learner, grad, rate)
            info = info._replace(
                up=info.up + floats,
                batches=info.batches + answer.batches,
                metrics=info.metrics | {"tau": coupling.mean(strength, clusters)},
            )
        client = client._replace(model=fitted.params, seen=jnp.ones_like(client.seen), dual=dual)
        return State(client, (models, learner, integral)), info

    def models(state: State, cohort: Cohort) -> Params:
        client = tree.take(state.clients, cohort.ids)
        # A client that was never seen has the model of its cell.
        centre = tree.take(in_cells(state.server[0]), client.cell)
        return tree.choose(client.seen, client.model, centre)

    return Algorithm(init, round, models, task.problem.apply, validates=learned)
