"""FedNova: updates are divided by how far local steps go, so that busy clients do not rule.

each round t:
  client i:  w_i = local training of F_i from w; sends it, and |a_i|, how far its steps go along
             a constant gradient of 1
  server:    w = w + (sum_i p_i |a_i|) sum_i p_i (w_i - w) / |a_i|                          (7)
client i deploys w.
"""

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.errors import warn
from jaxfl.core.facts import Paper, method
from jaxfl.core.messages import Down, Exchange, Outcome, ServerState, Turn, Uploads, Wire
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, PRNGKey, Task
from jaxfl.kernels import mix, size_weights
from jaxfl.training import data_loss, of_statistics

# From this factor on the update of a client is multiplied by more than its first steps can carry.
MUCH = 5.0
# Between these is how far a client gets along a gradient of 1: its steps times their rates.
SHORTEST, LONGEST = 1e-9, 1e9


@method(
    title="FedNova",
    paper=Paper(
        authors="Wang, Jianyu and Liu, Qinghua and Liang, Hao and Joshi, Gauri and "
        "Poor, H. Vincent",
        title="Tackling the Objective Inconsistency Problem in Heterogeneous Federated "
        "Optimization",
        venue="NeurIPS",
        year=2020,
        link="https://arxiv.org/abs/2007.07481",
    ),
    place="equation (7)",
    personal="",
    sends="its model and how far its local steps go",
    advice="--local-epochs: with fewer of them clients drift less; one model cannot fit all "
    "clients",
    defaults="the paper",
)
def fednova(task: Task) -> Algorithm:
    """FedAvg in which a client that takes more local steps does not count more.

    With epochs of local training, a client with more examples takes more steps, and FedAvg counts
    it twice: by its size and by its steps. Here each update is divided by |a_i|, how far the
    client's steps go along a constant gradient of 1. The mean of these, weighted by the fractions
    p_i of the examples, is taken times sum_i p_i |a_i|. If all clients take equally many steps,
    this is FedAvg. A client that takes a part of its epochs (`work.stragglers`) is measured so.

    State: server = the global model.

    Args:
      task: the model and its training by SGD, with or without momentum; |a_i| is measured on its
        optimiser.

    Differs: without the paper's variants for FedProx and for momentum on the server.
    Statistics of BatchNorm are averaged.

    Example:
      >>> _, info = one_round(fednova(task))
      >>> info.weights.shape
      (4, 4)
    """
    fit = task.trainer(data_loss(task.problem))
    measure = steps.displacement(task)

    def client(key: PRNGKey, memory: tuple, down: Down, cohort: Cohort) -> Turn[tuple]:
        start = steps.deploy_common(memory, down, cohort)
        _, up, report = steps.train_and_send(fit, key, start, None, cohort)
        distance = measure(stream(key, "second_fit"), cohort)
        return memory, up._replace(plain=distance), report

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        _, sizes, reported, received, _, distance = uploads
        mask = reported & (distance > SHORTEST) & (distance < LONGEST)
        inverse = jnp.where(mask, 1 / jnp.where(mask, distance, 1.0), 0.0)
        fractions = size_weights(sizes * mask)
        # (7): sum_i p_i |a_i| times sum_i p_i (y_i - x) / |a_i|. The second sum is a mean of the
        # updates with weights in proportion to p_i / |a_i|, times the sum of the p_i / |a_i|.
        shares = fractions * inverse
        total = shares.sum()
        weights = jnp.where(total > 0, shares / jnp.where(total > 0, total, 1.0), fractions)
        factor = (fractions @ jnp.where(mask, distance, 0.0)) * total
        mean = mix(weights, received)
        model = tree.interpolate(state.server, mean, factor)
        # Statistics of BatchNorm are averaged.
        model = tree.combine(of_statistics, mean, model)
        return Outcome(ServerState(model), weights=tree.broadcast(weights, sizes.size))

    def warn_of_sizes(sizes: np.ndarray) -> None:
        counts, numbers = np.unique(sizes[sizes > 0], return_counts=True)
        if counts.size < 2:
            return
        # Clients of these sizes without examples: the measurement looks at none.
        mask = jnp.asarray(np.arange(counts.max())[None] < counts[:, None])
        examples = Dataset(jnp.zeros(mask.shape), jnp.zeros(mask.shape), mask)
        cohort = Cohort(jnp.arange(counts.size), examples, examples, round=0)
        distance = np.asarray(jax.jit(measure)(jax.random.key(0), cohort))
        mean = np.average(distance, weights=counts * numbers)
        factor = mean / distance[0]
        if factor > MUCH:
            warn(
                f"fednova multiplies the updates of clients with {counts[0]} training examples by "
                f"{factor:.3g}, because they take few local steps: expected clients of more equal "
                "sizes; choose fedavg, or --local-steps, of which all clients take the same number"
            )

    init = steps.init_global(task.problem)
    wire = Wire(init, (Exchange(client, server),), steps.deploy_common, steps.download_server)
    return steps.compose(task, wire, warn_of_sizes=warn_of_sizes)
