"""pFedMe (Dinh et al., "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020, Algorithm 1)."""

import jax
import jax.numpy as jnp
import optax
from jax import lax

from jaxfl import tree
from jaxfl.errors import check, check_positive
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task


def pfedme(
    task: Task,
    *,
    lam: Scalar = 15.0,
    inner_steps: int = 5,
    inner_rate: Scalar = 0.09,
    beta: Scalar = 1.0,
) -> Algorithm:
    """Each client has a model theta near its copy w of the global one, and moves w towards theta.

    theta minimises f(theta) + lam / 2 |theta - w|^2 (3), by `inner_steps` of gradient descent on
    one batch, and lam (w - theta) is the gradient of the Moreau envelope, down which w goes.
    Personal is the deployed theta; a client sends its w.

    State: clients = each client's theta, first the common initial model; server = the global model.
    The loss of a round is that at theta.

    Args:
      task: the model and its training, which is that of w.
      lam: strength of the proximal term; the paper's experiments take 15.
      inner_steps: K, 5 there.
      inner_rate: of these steps: .09 there for networks, .1 for the convex model.
      beta: how far the server goes to the mean of the clients' w; pFedGraph's tables take 1, the
        paper up to 2.

    Differs: w moves by the task's optimiser (the paper: SGD of rate .005). Each search for theta
    starts from w, and the deployed one takes its steps on batches of its own, from the last w. Only
    the cohort trains; in the paper all do and some are heard.
    """
    check(inner_steps >= 1, f"inner_steps is {inner_steps}: expected 1 or more")
    check_positive(inner_rate=inner_rate)

    def proximal(theta: Params, batch: Dataset, w: Params, key: PRNGKey):
        loss, aux = task.loss(theta, batch, None, key)
        return loss + lam / 2 * tree.squared_distance(theta, w), aux

    def envelope(w: Params, batch: Dataset, anchor: None, key: PRNGKey):
        centre = lax.stop_gradient(w)

        def step(theta: Params, number: jax.Array):
            slope, aux = jax.grad(proximal, has_aux=True)(
                theta, batch, centre, jax.random.fold_in(key, number)
            )
            return jax.tree.map(lambda t, g: t - inner_rate * g, theta, slope), aux

        theta, aux = lax.scan(step, centre, jnp.arange(inner_steps))
        return lam / 2 * tree.squared_distance(w, theta), aux[-1]

    fit = task.trainer(envelope, micro=None)  # theta depends on the batch as a whole
    personalise = task.trainer(proximal, steps=inner_steps, optimizer=optax.sgd(inner_rate))

    def init(key: PRNGKey, train: Dataset) -> State:
        model = task.init(key)
        return State(clients=tree.broadcast(model, train.mask.shape[0]), server=model)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        start = tree.broadcast(state.server, cohort.ids.size)
        trained, loss = fit(fit_key, start, None, cohort)
        theta, _ = personalise(jax.random.fold_in(fit_key, 1), trained, trained, cohort)
        received, heard = task.uplink(uplink_key, start, trained, cohort.ids)
        share = size_weights(heard)  # [M], the same for every receiver
        model = jax.tree.map(
            lambda w, mean: (1 - beta) * w + beta * mean, state.server, mix(share, received)
        )
        floats = jnp.full_like(cohort.ids, tree.size(model))
        batches = inner_steps * task.batches(cohort) + task.batches(cohort, steps=inner_steps)
        weights = tree.broadcast(share, loss.size)
        return State(theta, model), Info(
            loss, weights, up=floats, down=floats, batches=batches, heard=heard
        )

    def models(state: State, ids):
        return tree.take(state.clients, ids)

    return Algorithm(init, round, models, task.apply)
