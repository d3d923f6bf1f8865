"""q-FFL: clients count the more, the larger their loss, by a power of it.

each round t, for the objective sum_i p_i F_i(w)^(q + 1) / (q + 1):         (Algorithm 2)
  client i:  w_i = local training of F_i from w; sends it, F_i = F_i(w), and |a_i|, how far its
             steps go along a constant gradient of 1
  server:    L = 1 / the mean of the |a_i|
             D_i = F_i^q L (w - w_i)
             h_i = q F_i^(q - 1) |L (w - w_i)|^2 + L F_i^q
             w = w - sum_i p_i D_i / sum_i p_i h_i
client i deploys w.
"""

from typing import Annotated

import jax
import jax.numpy as jnp

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import NOT_NEGATIVE, Paper, method
from jaxfl.core.messages import Down, Exchange, Outcome, ServerState, Turn, Uploads, Wire
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, PRNGKey, Scalar, Task
from jaxfl.kernels import mix, size_weights
from jaxfl.training import of_statistics, trainable

# Smaller losses count as this one: the number that the authors' code adds to a loss.
SMALLEST = 1e-10


@method(
    title="q-FFL",
    paper=Paper(
        authors="Li, Tian and Sanjabi, Maziar and Beirami, Ahmad and Smith, Virginia",
        title="Fair Resource Allocation in Federated Learning",
        venue="ICLR",
        year=2020,
        link="https://arxiv.org/abs/1905.10497",
    ),
    place="Algorithm 2, q-FedAvg",
    personal="",
    sends="its model, the loss of the model that it received, and how far its local steps go",
    defaults="the paper, for Synthetic and Sent140",
    advice="lower q: the larger it is, the shorter are the steps of the server; one model cannot "
    "fit clients that differ",
)
def qffl(task: Task, *, q: Annotated[Scalar, NOT_NEGATIVE] = 1.0) -> Algorithm:
    """FedAvg in which a client's weight is a power of its loss, and steep losses shorten the step.

    With `q=0` this is FedAvg. h_i bounds the curvature of F_i^(q + 1) / (q + 1), whatever q is, so
    that no step size has to be found for each q. A client is believed what it tells of its loss.

    State: memory = nothing; server = the global model.

    Args:
      task: the model and its training by SGD.
      q: how much the clients with large losses count.

    Differs: L is 1 / learning rate in the paper. Here the mean of the |a_i|, measured on the task's
    optimiser, is in the place of the learning rate: it is the same for one step without momentum,
    and with more the steps of the server would be very short. The paper samples clients by their
    sizes and has no p_i in the update. Statistics of BatchNorm are averaged.

    Example:
      >>> _, info = one_round(qffl(task, q=5.0))
      >>> info.weights.shape
      (4, 4)
    """
    train = steps.train_and_tell(task)
    measure = steps.displacement(task)

    def client(key: PRNGKey, memory: tuple, down: Down, cohort: Cohort) -> Turn[tuple]:
        memory, up, report = train(key, memory, down, cohort)
        distance = measure(stream(key, "second_fit"), cohort)
        return memory, up._replace(plain=(up.plain, distance)), report

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        losses, distances = uploads.plain
        losses, sizes = steps.client_losses(uploads, losses)
        losses = jnp.maximum(losses, SMALLEST)
        # The weights of the D_i, relative to the largest loss, so that no power overflows.
        weights = size_weights(sizes * (losses / losses.max()) ** q)
        # Without L and the sum of the p_i F_i^q, which the sums of D_i and h_i share, the step is
        # sum_i a_i (w - w_i) / (1 + q L sum_i a_i |w - w_i|^2 / F_i), for weights a_i.
        rate = weights @ jnp.where(sizes > 0, jnp.maximum(distances, 0.0), 0.0)
        rate = jnp.maximum(rate, SMALLEST)
        models = trainable(uploads.received), trainable(uploads.before)
        squares = jax.vmap(tree.squared_distance)(*models)
        curvature = q * weights @ jnp.where(weights > 0, squares / losses, 0.0)
        mean = mix(weights, uploads.received)
        model = tree.interpolate(state.server, mean, rate / (rate + curvature))
        # Statistics of BatchNorm are averaged.
        model = tree.combine(of_statistics, mean, model)
        return Outcome(ServerState(model), weights=tree.broadcast(weights, sizes.size))

    init = steps.init_global(task.problem)
    wire = Wire(init, (Exchange(client, server),), steps.deploy_common, steps.download_server)
    return steps.compose(task, wire)
