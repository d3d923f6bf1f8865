"""Per-FedAvg (Fallah et al., "Personalized Federated Learning with Theoretical Guarantees", NeurIPS 2020)."""

import jax
import jax.numpy as jnp
from jax import lax

from jaxfl import tree
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task


def per_fedavg(task: Task, *, alpha: Scalar = 0.01, hessian: bool = False) -> Algorithm:
    """FedAvg of the model from which one gradient step suits each client best (3), and that step.

    Algorithm 1. Personal is the deployed model w - alpha grad f(w), the step on all of a client's
    data from the new global model; a client sends its w.

    State: clients = each client's model after its step, first the initial one; server = the global
    model. The loss of a round is that after the inner step.

    Args:
      task: the model and its training, which is that of w, its rate the paper's beta.
      alpha: rate of the inner and of the deployed step; pFedGraph's tables take .001.
      hessian: False: its term is left out, the paper's Per-FedAvg (FO); True: it is computed
        exactly.

    Differs: the inner gradient is of one random half of a batch and the outer one of the other,
    where the paper takes new batches; the Hessian is of the inner half. Clients count alike, as in
    the paper.
    """

    def objective(params: Params, batch: Dataset, anchor: None, key: PRNGKey):
        split_key, inner_key, outer_key = jax.random.split(key, 3)
        order = jax.random.permutation(split_key, batch.mask.size)
        batch = jax.tree.map(lambda x: x[order], batch)
        number = jnp.cumsum(batch.mask)  # counts the real examples; a single one is both halves
        inner, outer = (
            batch._replace(mask=batch.mask & ((number % 2 == odd) | (number[-1] == 1)))
            for odd in (1, 0)
        )
        slope, _ = jax.grad(task.loss, has_aux=True)(params, inner, None, inner_key)
        if not hessian:
            slope = lax.stop_gradient(slope)
        return task.loss(step(params, slope), outer, None, outer_key)

    def step(params: Params, slope: Params) -> Params:
        return jax.tree.map(lambda w, g: w - alpha * g, params, slope)

    fit = task.trainer(objective, micro=None)  # the halves are of the batch as a whole

    def init(key: PRNGKey, train: Dataset) -> State:
        model = task.init(key)
        return State(clients=tree.broadcast(model, train.mask.shape[0]), server=model)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        start = tree.broadcast(state.server, cohort.ids.size)
        trained, loss = fit(fit_key, start, None, cohort)
        received, heard = task.uplink(uplink_key, start, trained, cohort.ids)
        share = size_weights(heard)  # [M], the same for every receiver
        model = mix(share, received)
        deployed = tree.broadcast(model, loss.size)
        _, slope = task.gradient(jax.random.fold_in(fit_key, 1), deployed, cohort.train, cohort.ids)
        floats = jnp.full_like(cohort.ids, tree.size(model))
        batches = (1 + hessian) * task.batches(cohort) + task.batches(cohort, epochs=1)
        info = Info(
            loss,
            tree.broadcast(share, loss.size),
            up=floats,
            down=floats,
            batches=batches,
            heard=heard,
        )
        return State(step(deployed, slope), model), info

    def models(state: State, ids):
        return tree.take(state.clients, ids)

    return Algorithm(init, round, models, task.apply)
