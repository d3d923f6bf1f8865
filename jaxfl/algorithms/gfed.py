"""GFed (Rizk and Sayed, "A Graph Federated Architecture with Privacy Preserving Learning", SPAWC 2021)."""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Int, Shaped

from jaxfl import tree
from jaxfl.errors import check, check_graph, check_groups, check_not_negative, check_positive
from jaxfl.kernels import admm, consensus
from jaxfl.kernels.mixing import mix
from jaxfl.types import Algorithm, Cohort, Dataset, Info, PRNGKey, Scalar, State, Task


def gfed(
    task: Task,
    *,
    form: Literal["gradient", "admm"] = "gradient",
    servers: int = 3,
    server_of: Int[ArrayLike, "c"] | None = None,
    graph: Literal["ring", "alone"] | Shaped[ArrayLike, "s s"] = "ring",
    rho: Scalar | None = None,
    lam: Scalar | None = None,
    primal: Literal["fit", "exact"] = "fit",
) -> Algorithm:
    """Servers learn one model for all: each takes the mean of its clients, then the mean over its neighbours.

    "gradient" is the method of Rizk and Sayed: psi_s is the mean of what the clients of server s
    train from w_s, and w_s the mean of psi over the server and its neighbours; a client deploys its
    server's w_s. "admm" is GFedMtl with one cluster, a baseline as fast as that; a client deploys
    its own w_k.

    Nothing is personal (with "admm", w_k is); a client sends a model.

    State: clients = nothing, or `admm.Client`; server = models w_s [S, ...].

    Args:
      task: the model and its training.
      form: "gradient" or "admm".
      servers: S.
      server_of: the server of each client [C]. None: i mod S.
      graph: of the servers, by name or as adjacency [S, S].
      rho: as in `gfedmtl`, of "admm" alone. None: .1.
      lam: as in `gfedmtl`, of "admm" alone. None: .001.
      primal: as in `gfedmtl`, of "admm" alone.

    Differs: servers weigh their neighbours alike and add no noise. A server without reports keeps
    its model. With "admm" a client sends one model, as in `gfedmtl`. What servers send each other
    is not counted.
    """
    by_admm, adjacency = form == "admm", consensus.adjacency(graph, servers)
    plain = rho is None and lam is None and primal == "fit"
    check(by_admm or plain, "rho, lam and primal are for ADMM: choose form=admm, or leave them out")
    rho, lam = 0.1 if rho is None else rho, 1e-3 if lam is None else lam
    check_not_negative(lam=lam)
    check_positive(rho=rho, servers=servers)
    check_graph(adjacency, servers)
    side, fit = (
        admm.primal(task.loss, task.trainer, rho, lam, primal == "exact"),
        task.trainer(task.loss),
    )

    def home(ids: Int[Array, "m"]) -> Int[Array, "m"]:
        return ids % servers if server_of is None else jnp.asarray(server_of)[ids]

    def init(key: PRNGKey, train: Dataset) -> State:
        model, ids = task.init(key), jnp.arange(train.mask.shape[0])
        check_groups(
            ids.size, server_of=(ids % servers if server_of is None else server_of, servers)
        )
        clients = side.enlist(model, train, home(ids), servers) if by_admm else ()
        return State(clients, tree.broadcast(model, servers))

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        client, before = state
        cell = home(cohort.ids)
        centre = tree.take(before, cell)
        if by_admm:
            model, loss = side.solve(fit_key, client, centre, cohort)
            sent = admm.message(model, client.dual, rho)
        else:
            sent, loss = fit(fit_key, centre, None, cohort)
        received, heard = task.uplink(uplink_key, centre, sent, cohort.ids)
        stack = jax.tree.map(lambda r, b: jnp.concatenate([r, b]), received, before)  # [M + S, ...]
        own, averaged = consensus.server_round(jnp.where(heard, cell, -1), adjacency, 0.0, 1)
        if by_admm:
            client = client._replace(
                model=model, dual=admm.ascend(client.dual, model, mix(own[cell], stack), rho)
            )
        models = mix(averaged, stack)
        floats = jnp.full_like(cohort.ids, tree.size(models) // servers)
        metrics = {
            "disagreement": consensus.disagreement(jax.tree.map(lambda x: x[:, None], models))
        }
        weights = consensus.upload_weights(averaged[cell])
        batches = task.batches(cohort) * (primal == "fit")
        return State(client, models), Info(
            loss, weights, floats, (1 + by_admm) * floats, metrics, batches, heard=heard
        )

    def models(state: State, ids):
        return (
            tree.take(state.clients.model, ids) if by_admm else tree.take(state.server, home(ids))
        )

    return Algorithm(init, round, models, task.apply)
