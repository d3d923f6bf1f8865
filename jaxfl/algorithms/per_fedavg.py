"""Per-FedAvg: a global model from which one step suits each client."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from jaxfl import tree
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.objectives import data_loss
from jaxfl.registry import method
from jaxfl.skeleton import train_and_upload
from jaxfl.streams import stream
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task


@method(
    title="Per-FedAvg",
    paper='Fallah et al., "Personalized Federated Learning with Theoretical Guarantees: A '
    'Model-Agnostic Meta-Learning Approach", NeurIPS 2020, Algorithm 1',
    link="https://arxiv.org/abs/2002.07948",
    personal="the model after a step on the client's data",
    sends="its copy of the global model w",
)
def per_fedavg(task: Task, *, alpha: Scalar = 0.01, hessian: bool = False) -> Algorithm:
    """FedAvg of the model from which one gradient step suits each client best (3), and that step.

    The deployed model is w - alpha grad f(w), the step on all of a client's data from the new
    global model. Clients count equally, as in the paper.

    State: clients = each client's model after its step, first the initial one; server = the global
    model. The loss of a round is that after the inner step.

    Args:
      task: the model and its training, which is that of w; its rate is the paper's beta.
      alpha: rate of the inner and of the deployed step; pFedGraph's tables take .001.
      hessian: False: its term is left out, the paper's Per-FedAvg (FO); True: it is computed
        exactly.

    Differs: the inner gradient is of one random half of a batch and the outer one of the other,
    where the paper takes new batches; the Hessian is of the inner half.
    """
    loss = data_loss(task.problem)

    def objective(params: Params, batch: Dataset, anchor: None, key: PRNGKey):
        split_key, inner_key, outer_key = jax.random.split(key, 3)
        order = jax.random.permutation(split_key, batch.mask.size)
        batch = jax.tree.map(lambda x: x[order], batch)
        # Counts the real examples; a single one is in both halves.
        number = jnp.cumsum(batch.mask)
        inner, outer = (
            batch._replace(mask=batch.mask & ((number % 2 == odd) | (number[-1] == 1)))
            for odd in (1, 0)
        )
        grads, _ = jax.grad(loss, has_aux=True)(params, inner, None, inner_key)
        if not hessian:
            grads = lax.stop_gradient(grads)
        return loss(step(params, grads), outer, None, outer_key)

    def step(params: Params, grads: Params) -> Params:
        return jax.tree.map(lambda w, g: w - alpha * g, params, grads)

    # The halves are of the batch as a whole.
    fit = task.trainer(objective, whole_batch=True)
    gradient = task.gradient(loss)

    def init(key: PRNGKey, train: Dataset) -> State:
        model = task.problem.init(key)
        return State(tree.broadcast(model, train.mask.shape[0]), model)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        start = tree.broadcast(state.server, cohort.ids.size)
        _, received, info = train_and_upload(task, fit, key, start, None, cohort)
        weights = size_weights(info.reported)
        model = mix(weights, received)
        deployed = tree.broadcast(model, cohort.ids.size)
        asked = gradient(stream(key, "evaluate"), deployed, cohort.train, cohort.ids)
        info = info._replace(
            weights=tree.broadcast(weights, cohort.ids.size),
            batches=(1 + hessian) * info.batches + asked.batches,
        )
        return State(step(deployed, asked.grads), model), info

    def models(state: State, ids: Array) -> Params:
        return tree.take(state.clients, ids)

    return Algorithm(init, round, models, task.problem.apply)
