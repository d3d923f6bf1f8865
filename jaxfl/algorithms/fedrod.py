"""FedRoD: a global model with a balanced loss, and a personal head beside the global head."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jaxfl.algorithms.steps.heads import features_of, part_weights
from jaxfl.algorithms.steps.labels import class_sizes, require_labels
from jaxfl.algorithms.steps.uploads import mean_by_size, train_and_upload
from jaxfl.core import tree
from jaxfl.core.facts import method
from jaxfl.core.papers import Paper
from jaxfl.core.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, State, Task
from jaxfl.training.objectives import data_loss, loss_of


@method(
    title="FedRoD",
    paper=Paper(
        authors="Chen, Hong-You and Chao, Wei-Lun",
        title="On Bridging Generic and Personalized Federated Learning for Image Classification",
        venue="ICLR",
        year=2022,
        link="https://arxiv.org/abs/2107.00778",
    ),
    place="the linear personal head of section 4",
    personal="a second head",
    sends="the global model as it trained it",
    turn_first="raise --local-steps: the personal head has no option of its own",
)
def fedrod(task: Task) -> Algorithm:
    """A global model with a loss that balances the classes, and a linear head for each client.

    The loss of the global model is the balanced softmax: log n_c is added to the logit of class c,
    where n_c is the client's number of examples of c. The input of the personal head is the
    features of the global model. Its logits are added to those of the global model in a plain
    softmax, whose loss trains the personal head alone. A client deploys both.

    State: clients = each client's head {"kernel" [C, d, classes], "bias" [C, classes]}, at first
    zero; server = the global model. Weights: "global" and "head". The loss of a round is that of
    the deployed prediction. Each of the two losses counts as a gradient on its batch.

    Raises:
      InputError: the model does not define its features, or the task is not classification.

    Differs: the personal head starts at zero, so that a client first predicts as the global model.

    Example:
      >>> state = initial_state(fedrod(task))
      >>> state.clients["kernel"].shape
      (4, 8, 2)
    """
    problem = task.problem
    features = features_of(problem)

    def predict(model: Params, x: Array, mask: Array, key: PRNGKey):
        if problem.predict is None:
            return problem.apply(model, x), None
        return problem.predict(model, x, mask, key)

    def apply(params: dict, x: Array) -> Float[Array, "b classes"]:
        head_input = features(params["global"], x)
        head = params["head"]
        return problem.apply(params["global"], x) + head_input @ head["kernel"] + head["bias"][None]

    def objective(params: dict, batch: Dataset, prior: Float[Array, "classes"], key: PRNGKey):
        def balanced_logits(model: Params, x: Array, mask: Array, key: PRNGKey):
            logits, term = predict(model, x, mask, key)
            return logits + prior[None], term

        # The balanced softmax trains the global model.
        loss, _ = loss_of(problem, balanced_logits)(params["global"], batch, None, key)
        # The plain softmax trains the personal head alone.
        frozen = params | {"global": lax.stop_gradient(params["global"])}
        personal, aux = data_loss(problem, apply)(frozen, batch, None, key)
        return loss + personal, aux

    fit = task.trainer(objective)

    def init(key: PRNGKey, train: Dataset) -> State:
        model = problem.init(key)
        require_labels(train, "FedRoD")
        example = jax.ShapeDtypeStruct((1, *train.x.shape[2:]), train.x.dtype)
        d = jax.eval_shape(features, model, example).shape[-1]
        classes = jax.eval_shape(problem.apply, model, example).shape[-1]
        head = {"kernel": jnp.zeros((d, classes)), "bias": jnp.zeros(classes)}
        return State(tree.broadcast(head, train.mask.shape[0]), model)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        start = {
            "global": tree.broadcast(state.server, cohort.ids.size),
            "head": state.clients,
        }
        # log n_c of each client and class [M, classes].
        counts = class_sizes(cohort.train, state.clients["bias"].shape[-1])
        prior = jnp.where(counts > 0, jnp.log(counts), -1e9)
        trained, received, info = train_and_upload(
            task, fit, key, start, prior, cohort, sends=lambda model: model["global"]
        )
        server, weights = mean_by_size(received, start, info.reported, cohort)
        matrix = tree.broadcast(weights, cohort.ids.size)
        info = info._replace(
            weights=part_weights(matrix, "global", "head", received), batches=2 * info.batches
        )
        return State(trained["head"], server), info

    def models(state: State, cohort: Cohort) -> Params:
        return {
            "global": tree.broadcast(state.server, cohort.ids.size),
            "head": tree.take(state.clients, cohort.ids),
        }

    return Algorithm(init, round, models, apply)
