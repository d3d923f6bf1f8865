"""GFedMtl (Gauthier et al., "Personalized Graph Federated Learning", Asilomar 2022)."""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import ArrayLike, Int, Shaped

from jaxfl import tree
from jaxfl.errors import check, check_graph, check_groups, check_not_negative, check_positive
from jaxfl.kernels import admm, consensus, coupling, grouping, similarity
from jaxfl.kernels.mixing import mix
from jaxfl.types import Algorithm, Cohort, Dataset, Info, PRNGKey, Scalar, State, Task


def gfedmtl(
    task: Task,
    *,
    tau: Scalar | Literal["learned", "learned_pairs"] = 0.5,
    rho: Scalar = 0.1,
    lam: Scalar = 1e-3,
    rate: Scalar = 0.1,
    servers: int = 3,
    clusters: int = 2,
    server_of: Int[ArrayLike, "c"] | None = None,
    cluster_of: Int[ArrayLike, "c"] | None = None,
    graph: Literal["ring", "alone"] | Shaped[ArrayLike, "s s"] = "ring",
    primal: Literal["fit", "exact"] = "fit",
) -> Algorithm:
    """Servers learn a model for each cluster of clients by ADMM, with their neighbours and from the other clusters.

    Personal is w_k; a client sends one model. State: clients = `admm.Client`; server = w_qs [S, Q,
    ...], tau's learner.

    Args:
      task: the model and its training.
      tau: strength of learning between clusters, a number or [Q, Q] (receiver, sender). "learned":
        goes down the validation loss at the models u of (15), from .5; "learned_pairs": each pair
        of clusters its own.
      rho: penalty of (13); with a large one servers agree more, and later. 3 suits the paper's
        ridge regression.
      lam: weight of |w|^2 in the loss of each cluster at a server, shared by all its clients.
      rate: learning rate of tau.
      servers: S.
      clusters: Q.
      server_of: the server of each client [C]. None: i mod S.
      cluster_of: the cluster of each client [C]. None: by the direction in which its data first
        move the model.
      graph: of the servers, by name or as adjacency [S, S].
      primal: how (13) is solved: by the task's training, or exactly if the loss is quadratic, see
        `admm.primal`.

    Differs: a client sends w_k - phi_k / rho, all that (14) needs. Without reports a cluster keeps
    its model, a client its w_k, phi_k. All start at the initial model, not 0. Not counted: traffic
    of servers, an upload to find clusters.
    """
    learned, adjacency = isinstance(tau, str), consensus.adjacency(graph, servers)
    check(
        clusters > 1 or not learned,
        "tau is learned between clusters: give clusters=2 or more, or a number for tau",
    )
    check_not_negative(tau=tau, lam=lam)
    check_positive(rho=rho, rate=rate, servers=servers, clusters=clusters)
    check_graph(adjacency, servers)
    side, explore = (
        admm.primal(task.loss, task.trainer, rho, lam, primal == "exact"),
        task.trainer(task.loss),
    )

    def init(key: PRNGKey, train: Dataset) -> State:
        model, ids, cluster = task.init(key), jnp.arange(train.mask.shape[0]), cluster_of
        if cluster is None:
            start = tree.broadcast(model, ids.size)
            moved, _ = explore(key, start, None, Cohort(ids, train, train))
            received, _ = task.uplink(jax.random.fold_in(key, 1), start, moved, ids)
            cluster = grouping.group(similarity.cosine(tree.subtract(received, model)), clusters)
        server = ids % servers if server_of is None else server_of
        check_groups(ids.size, server_of=(server, servers), cluster_of=(cluster, clusters))
        clients = side.enlist(
            model, train, jnp.asarray(server * clusters + cluster), servers * clusters
        )
        return State(
            clients,
            (
                tree.broadcast(tree.broadcast(model, clusters), servers),
                coupling.begin(tau, clusters),
            ),
        )

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        client, (models, learner) = state
        before = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), models)  # [S * Q, ...]
        centre = tree.take(before, client.cell)
        model, loss = side.solve(fit_key, client, centre, cohort)
        received, heard = task.uplink(
            uplink_key, centre, admm.message(model, client.dual, rho), cohort.ids
        )
        stack = jax.tree.map(
            lambda r, b: jnp.concatenate([r, b]), received, before
        )  # [M + S * Q, ...]
        strength = coupling.strength(learner) if learned else jnp.asarray(tau, float)
        cells = jnp.where(heard, client.cell, -1)  # that the uploads enter
        coupled, onward = consensus.server_round(
            cells, adjacency, strength, clusters
        )  # [S * Q, M + S * Q]
        u = mix(coupled[client.cell], stack)
        models = jax.tree.map(lambda w, old: w.reshape(old.shape), mix(onward, stack), models)
        metrics, batches = (
            {"disagreement": consensus.disagreement(models)},
            task.batches(cohort) * (primal == "fit"),
        )
        if learned:  # a client sends the gradient of its validation loss at u
            _, slopes = task.gradient(jax.random.fold_in(key, 2), u, cohort.val, cohort.ids)
            nothing = jax.tree.map(jnp.zeros_like, slopes)
            slopes, _ = task.uplink(jax.random.fold_in(uplink_key, 1), nothing, slopes, cohort.ids)
            batches += task.batches(cohort._replace(train=cohort.val), epochs=1)
            slope = consensus.tau_slope(
                similarity.gram(slopes, stack), cells, adjacency, strength, clusters
            )
            learner, metrics["tau"] = (
                coupling.descend(learner, slope, rate),
                coupling.mean(strength, clusters),
            )
        client = client._replace(model=model, dual=admm.ascend(client.dual, model, u, rho))
        floats = jnp.full_like(cohort.ids, tree.size(model) // loss.size)
        traffic, weights = (
            ((1 + learned) * floats, 2 * floats),
            consensus.upload_weights(onward[client.cell]),
        )
        return State(client, (models, learner)), Info(
            loss, weights, *traffic, metrics, batches, heard=heard
        )

    def models(state: State, ids):
        return tree.take(state.clients.model, ids)

    return Algorithm(init, round, models, task.apply)
