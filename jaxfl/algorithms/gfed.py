"""GFed: several servers on a graph learn one model for all clients."""

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
from jaxfl.kernels import consensus
from jaxfl.kernels.mixing import mix
from jaxfl.training.objectives import data_loss


@method(
    title="GFed",
    paper=Paper(
        authors="Rizk, Elsa and Sayed, Ali H.",
        title="A Graph Federated Architecture with Privacy Preserving Learning",
        venue="SPAWC",
        year=2021,
        link="https://arxiv.org/abs/2104.13215",
    ),
    personal="",
    sends="its model",
    defaults="ours",
    turn_first="rho (with form=admm) and --local-steps; one model cannot fit clients that differ",
)
def gfed(
    task: Task,
    *,
    form: Literal["gradient", "admm"] = "gradient",
    servers: Annotated[int, COUNT] = 3,
    server_of: Int[ArrayLike, "c"] | None = None,
    graph: Literal["ring", "alone"] | Shaped[ArrayLike, "s s"] = "ring",
    rho: Annotated[Scalar | None, POSITIVE] = None,
    lam: Annotated[Scalar | None, NOT_NEGATIVE] = None,
    primal: Literal["fit", "exact"] = "fit",
    dual_step: Annotated[Scalar | None, NOT_NEGATIVE] = None,
) -> Algorithm:
    """Each server takes the mean of its clients' models, then the mean over its neighbours.

    The form "gradient" is the method of Rizk and Sayed. The clients of server s train from w_s, and
    psi_s is the mean of their models. The new w_s is the mean of psi over the server and its
    neighbours. A client deploys the model w_s of its server. The form "admm" is GFedMtl with one
    cluster, a baseline as fast as GFedMtl; a client deploys its own w_k.

    State: clients = nothing, or `admm.Client` with the form "admm"; server = models w_s [S, ...].
    Metrics: `disagreement` of the servers.

    Args:
      task: the model and its training.
      form: "gradient" or "admm".
      servers: S, the number of servers.
      server_of: the server of each client [C]. None: client i has server i mod S.
      graph: the graph of the servers, by name or as an adjacency matrix [S, S].
      rho: as in `gfedmtl`, only for the form "admm". None: .1.
      lam: as in `gfedmtl`, only for the form "admm". None: .001.
      primal: as in `gfedmtl`, only for the form "admm".
      dual_step: as in `gfedmtl`, of "admm" alone.

    Raises:
      InputError: an option of "admm" is given with the form "gradient", or the graph or the groups
        do not fit.

    Differs: servers weigh their neighbours equally and add no noise. A server without a client that
    has reported keeps its model. With "admm" a client sends one model, as in `gfedmtl`. The traffic
    between servers is not counted.

    Example:
      >>> state = initial_state(gfed(task, servers=2))
      >>> state.server["params"]["Dense_1"]["bias"].shape
      (2, 2)
    """
    by_admm = form == "admm"
    plain = rho is None and lam is None and primal == "fit" and dual_step is None
    check(
        by_admm or plain,
        "rho, lam, primal and dual_step are for ADMM: choose form=admm, or leave them out",
    )
    adjacency = topology.adjacency(graph, servers)
    check_graph(adjacency, servers)
    rho = 0.1 if rho is None else rho
    lam = 1e-3 if lam is None else lam
    loss = data_loss(task.problem)
    side = admm.primal(loss, task.trainer, rho, lam, primal == "exact")
    step = admm.dual_rate(rho, dual_step, primal == "exact")
    fit = task.trainer(loss)

    def server_of_client(ids: Int[Array, "m"]) -> Int[Array, "m"]:
        return ids % servers if server_of is None else jnp.asarray(server_of)[ids]

    def init(key: PRNGKey, train: Dataset) -> State:
        model = task.problem.init(key)
        ids = jnp.arange(train.mask.shape[0])
        server = ids % servers if server_of is None else server_of
        check_groups(ids.size, server_of=(server, servers))
        clients = side.enlist(model, train, server_of_client(ids), servers) if by_admm else ()
        return State(clients, tree.broadcast(model, servers))

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        client, before = state
        cell = server_of_client(cohort.ids)
        centre = tree.take(before, cell)
        if by_admm:
            fitted = side.solve(stream(key, "fit"), client, centre, cohort)
            uploads = admm.message(fitted.params, client.dual, rho)
        else:
            fitted = fit(stream(key, "fit"), centre, None, cohort)
            uploads = fitted.params
        received, info = upload(task, key, fitted, centre, uploads, cohort)
        # The means of the servers, as weights of the uploads and of the models before.
        stack = jax.tree.map(lambda r, b: jnp.concatenate([r, b]), received, before)
        cells = jnp.where(info.reported, cell, -1)
        u, w = consensus.server_round(cells, adjacency, 0.0, 1)
        models = mix(w, stack)
        if by_admm:
            # (16) of GFedMtl: the duals of the clients.
            dual = admm.ascend(client.dual, fitted.params, mix(u[cell], stack), step)
            client = client._replace(
                model=fitted.params, seen=jnp.ones_like(client.seen), dual=dual
            )
        one_cluster = jax.tree.map(lambda x: x[:, None], models)
        info = info._replace(
            weights=consensus.upload_weights(w[cell]),
            down=(1 + by_admm) * info.down,
            metrics={"disagreement": consensus.disagreement(one_cluster)},
        )
        return State(client, models), info

    def models(state: State, cohort: Cohort) -> Params:
        model = tree.take(state.server, server_of_client(cohort.ids))
        if by_admm:
            client = tree.take(state.clients, cohort.ids)
            return tree.choose(client.seen, client.model, model)
        return model

    return Algorithm(init, round, models, task.problem.apply)
