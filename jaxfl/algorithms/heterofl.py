"""HeteroFL: clients with narrower models train parts of one wide model.

each round t, with the wide model w and the part P_i of its entries that client i's model has:
  client i:  w_i = local training of F_i from w[P_i], and sends it
  server:    w[e] = sum_i p_i w_i[e] / sum_i p_i over the clients i whose model has the entry e,
             where p_i are the clients' shares of the examples           (equations 3 to 5)
an entry that no client of a round has keeps its value;
client i deploys w[P_i].
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.core.facts import Paper, method
from jaxfl.core.messages import Down, Exchange, Outcome, ServerState, Turn, Up, Uploads, Wire
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Task
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.training.objectives import data_loss
from jaxfl.training.widths import gather_part, part_of, scatter_part


@method(
    title="HeteroFL",
    paper=Paper(
        authors="Diao, Enmao and Ding, Jie and Tarokh, Vahid",
        title="HeteroFL: Computation and Communication Efficient Federated Learning for "
        "Heterogeneous Clients",
        venue="ICLR",
        year=2021,
        link="https://arxiv.org/abs/2010.01264",
    ),
    place="equations 3 to 5",
    personal="",
    sends="its part of the wide model",
    defaults="the paper",
    advice="the widths of the models: a part that few clients have learns from few",
)
def heterofl(task: Task) -> Algorithm:
    """One wide model, of which a client with a narrower one has the first units of each layer.

    Clients have models of one kind with different widths, such as mlp and mlp/2, by
    `jaxfl.heterogeneous`: convolutions and then dense layers, one after the other as their names
    are sorted. Where all have one architecture it is FedAvg.

    State: memory = nothing; server = the wide model, and the number of each client's architecture.
    Weights: a client's row is the mean, over the entries of its model that are trained, of the
    senders' weights in each.

    Args:
      task: the model and its training.

    Raises:
      InputError: the architectures are no widths of one model, or it cannot be told from names and
        shapes which inputs of a layer a narrower one has.

    Differs: clients weigh by their numbers of examples, in the paper equally. Activations are not
    scaled by the width in training, and classes that a client does not have are not left out of its
    loss and of the mean of heads. A message has the size of the wide model, of which `up` and
    `down` count the client's part; top-k of an upload counts the wide model's entries.

    Example:
      >>> state, info = one_round(heterofl(task))
      >>> info.weights.shape
      (4, 4)
    """
    problems = task.problems or (task.problem,)
    wide = steps.wide_problem(task)
    shapes = steps.model_shapes(wide)
    try:
        parts = [part_of(shapes, steps.model_shapes(one)) for one in problems]
    except InputError as error:
        raise InputError(
            "heterofl takes architectures that are widths of one model, such as mlp and mlp/2: "
            f"{error}"
        ) from None
    # [A] whether the model of each architecture has each entry of the wide one
    masks = jax.tree.map(_entries, shapes, *parts)
    sizes = np.array([tree.size(part) for part in parts])
    number = problems.index(task.problem)
    part = parts[number]
    fit = task.trainer(data_loss(task.problem))

    def init(key: PRNGKey, train: Dataset) -> tuple[tuple, ServerState]:
        return (), ServerState(wide.init(key), jnp.full(len(train.mask), number))

    def download(state: ServerState) -> Down:
        return Down(state.server, floats=jnp.asarray(sizes)[state.record])

    def client(key: PRNGKey, memory: tuple, down: Down, cohort: Cohort) -> Turn[tuple]:
        clients = cohort.ids.size
        fitted = fit(stream(key, "fit"), deploy(memory, down, cohort), None, cohort)
        # Entries that the client does not have are those of the server: their update is zero.
        after = jax.vmap(lambda model: scatter_part(model, part, down.common))(fitted.params)
        before = tree.broadcast(down.common, clients)
        up = Up(after, before, floats=jnp.full(clients, sizes[number]))
        return memory, up, steps.report_of(fitted)

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        of = state.record
        weights = size_weights(uploads.sizes * uploads.reported)
        # what the clients of each architecture weigh together [A]
        together = jnp.zeros(len(parts)).at[of].add(weights)
        has = jax.tree.map(lambda mask: jnp.asarray(mask, float), masks)
        total = mix(together, has)
        own = jax.tree.map(lambda x, each: x * each[of], uploads.received, has)
        found = mix(weights, own)
        model = jax.tree.map(_divide, found, total, state.server)
        # of each architecture the sum of 1 / total over the entries that another has too [A, A]
        flat = tree.ravel(has)
        scaled = _divide(flat, tree.ravel(jax.tree.map(lambda x: x[None], total)), 0.0)
        common = jnp.matmul(scaled, flat.T, precision="highest")
        rows = common[of][:, of] * weights[None]
        return Outcome(ServerState(model, of), weights=rows / rows.sum(axis=1, keepdims=True))

    def deploy(memory: tuple, down: Down, cohort: Cohort) -> Params:
        return tree.broadcast(gather_part(down.common, part), cohort.ids.size)

    wire = Wire(init, (Exchange(client, server),), deploy, download)
    return steps.compose(task, wire)


def _divide(found: Array, total: Array, otherwise: Array | float) -> Array:
    """The quotient where the total is positive."""
    return jnp.where(total > 0, found / jnp.where(total > 0, total, 1.0), otherwise)


def _entries(whole: jax.ShapeDtypeStruct, *parts: np.ndarray) -> Bool[np.ndarray, "A *_"]:
    """Whether each part of a wide array has each of its entries."""
    numbers = np.arange(whole.size).reshape(whole.shape)
    return np.stack([np.isin(numbers, part) for part in parts])
