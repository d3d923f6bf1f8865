"""GFed: several servers on a graph learn one model for all clients.

each round t, with s the server of client i:
  client i:  w_i = local training of F_i from w_s, and sends it
  server s:  psi_s = the mean of the w_i of its clients
             w_s = the mean of psi over s and its neighbours
client i deploys w_s. With ADMM it is GFedMtl with one cluster.
"""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from jaxtyping import ArrayLike, Int, PyTree, Shaped

from jaxfl.algorithms.steps import admm, compose, report_of, train_and_send
from jaxfl.core import tree
from jaxfl.core.errors import check
from jaxfl.core.facts import COUNT, NOT_NEGATIVE, POSITIVE, Paper, method
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
from jaxfl.graphs import topology
from jaxfl.graphs.topology import check_graph, check_groups
from jaxfl.kernels import consensus, mix
from jaxfl.training import data_loss


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
    advice="rho (with form=admm) and --local-steps; one model cannot fit clients that differ",
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

    State: memory = nothing, or `admm.Client` with the form "admm"; record = the number of the
    client's server [C]; server = models w_s [S, ...]. Metrics: `disagreement` of the servers.

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

    def init(key: PRNGKey, train: Dataset) -> tuple[PyTree, ServerState]:
        model = task.problem.init(key)
        ids = jnp.arange(train.mask.shape[0])
        server = ids % servers if server_of is None else server_of
        check_groups(ids.size, server_of=(server, servers))
        cell = jnp.asarray(server)
        memory = side.enlist(model, train, cell, servers) if by_admm else ()
        return memory, ServerState(tree.broadcast(model, servers), cell)

    def download(state: ServerState) -> Down:
        return Down(each=tree.take(state.server, state.record))

    def client(key: PRNGKey, memory: PyTree, down: Down, cohort: Cohort) -> Turn[PyTree]:
        if not by_admm:
            _, up, report = train_and_send(fit, key, down.each, None, cohort)
            return (), up, report
        fitted = side.solve(stream(key, "fit"), memory, down.each, cohort)
        up = Up(admm.message(fitted.params, memory.dual, rho), down.each)
        memory = memory._replace(model=fitted.params, seen=jnp.ones_like(memory.seen))
        return memory, up, report_of(fitted)

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        before, cell = state.server, state.record
        # The means of the servers, as weights of the uploads and of the models before.
        stack = jax.tree.map(lambda r, b: jnp.concatenate([r, b]), uploads.received, before)
        cells = jnp.where(uploads.reported, cell, -1)
        u, w = consensus.server_round(cells, adjacency, 0.0, 1)
        models = mix(w, stack)
        one_cluster = jax.tree.map(lambda x: x[:, None], models)
        return Outcome(
            ServerState(models, cell),
            Down(each=mix(u[cell], stack)) if by_admm else Down(),
            consensus.upload_weights(w[cell]),
            {"disagreement": consensus.disagreement(one_cluster)},
        )

    def ascend(key: PRNGKey, memory: admm.Client, down: Down, cohort: Cohort) -> Turn[admm.Client]:
        # (16) of GFedMtl: the duals of the clients.
        dual = admm.ascend(memory.dual, memory.model, down.each, step)
        return memory._replace(dual=dual), None, Report()

    def deploy(memory: PyTree, down: Down, cohort: Cohort) -> Params:
        return tree.choose(memory.seen, memory.model, down.each) if by_admm else down.each

    exchanges = (Exchange(client, server), Exchange(ascend))
    return compose(task, Wire(init, exchanges if by_admm else exchanges[:1], deploy, download))
