"""HeteroFL: clients with narrower models train parts of one wide model.

each round t, with the wide model w and the part P_i of its entries that client i's model has:
  client i:  w_i = local training of F_i from w[P_i], and sends it
  server:    w[e] = sum_i p_i w_i[e] / sum_i p_i over the clients i whose model has the entry e,
             where p_i are the clients' shares of the examples; an entry of none stays   (3) to (5)
client i deploys w[P_i].
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import Paper, method
from jaxfl.core.messages import Down, Exchange, Outcome, ServerState, Turn, Up, Uploads, Wire
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Task
from jaxfl.kernels.mixing import size_weights
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
    `jaxfl.heterogeneous`. Where all have one architecture it is FedAvg.

    State: memory = nothing; server = the wide model, and the number of each client's architecture.
    Weights: of a client's row the mean over the entries of its model.

    Args:
      task: the model and its training.

    Raises:
      InputError: the architectures are no widths of one model.

    Differs: clients weigh by their numbers of examples, in the paper equally. Activations are not
    scaled by the width in training, and classes that a client does not have are not left out of its
    loss and of the mean of heads.

    Example:
      >>> state, info = one_round(heterofl(task))
      >>> info.weights.shape
      (4, 4)
    """
    problems = task.problems or (task.problem,)
    wide = steps.wide_problem(task)
    shapes = steps.model_shapes(wide)
    parts = [part_of(shapes, steps.model_shapes(one)) for one in problems]
    # [A] whether the model of each architecture has each entry of the wide one
    masks = jax.tree.map(_entries, shapes, *parts)
    sizes = np.array([tree.size(part) for part in parts])
    number = problems.index(task.problem)
    own = parts[number]
    fit = task.trainer(data_loss(task.problem))

    def init(key: PRNGKey, train: Dataset) -> tuple[tuple, ServerState]:
        return (), ServerState(wide.init(key), jnp.full(len(train.mask), number))

    def download(state: ServerState) -> Down:
        return Down(state.server, floats=jnp.asarray(sizes)[state.record])

    def client(key: PRNGKey, memory: tuple, down: Down, cohort: Cohort) -> Turn[tuple]:
        start = deploy(memory, down, cohort)
        fitted = fit(stream(key, "fit"), start, None, cohort)
        widen = jax.vmap(lambda model: scatter_part(model, own, shapes))
        floats = jnp.full(cohort.ids.size, sizes[number])
        up = Up(widen(fitted.params), widen(start), floats=floats)
        return memory, up, steps.report_of(fitted)

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        weights = size_weights(uploads.sizes * uploads.reported)
        of = state.record
        # what the clients of each architecture weigh together [A]
        together = jnp.zeros(len(parts)).at[of].add(weights)

        def mean(old: Array, received: Array, has: Bool[Array, "A *_"]) -> Array:
            total = jnp.tensordot(together, has, 1)
            found = jnp.tensordot(weights, received * has[of], 1)
            return jnp.where(total > 0, found / jnp.where(total > 0, total, 1), old)

        def common(has: Bool[Array, "A *_"]) -> Float[Array, "A A"]:
            """The sum of one over the total, over the entries that two architectures have."""
            flat = has.reshape(len(parts), -1).astype(float)
            total = together @ flat
            return flat / jnp.where(total > 0, total, 1)[None] @ flat.T

        has = jax.tree.map(jnp.asarray, masks)
        model = jax.tree.map(mean, state.server, uploads.received, has)
        rows = sum(common(one) for one in jax.tree.leaves(has)) / sizes[:, None]
        return Outcome(ServerState(model, of), weights=rows[of][:, of] * weights[None])

    def deploy(memory: tuple, down: Down, cohort: Cohort) -> Params:
        return tree.broadcast(gather_part(down.common, own), cohort.ids.size)

    wire = Wire(init, (Exchange(client, server),), deploy, download)
    return steps.compose(task, wire)


def _entries(whole: jax.ShapeDtypeStruct, *parts: np.ndarray) -> Bool[np.ndarray, "A *_"]:
    """Whether each part of a wide array has each of its entries."""
    numbers = np.arange(whole.size).reshape(whole.shape)
    return np.stack([np.isin(numbers, part) for part in parts])
