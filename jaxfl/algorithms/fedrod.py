"""FedRoD: a global model with a balanced loss, and a personal head beside the global head.

each round t, with the client's head h_i on the features of w:
  client i:  w_i = local training from w of F_i with log n_c added to the logit of class c
             h_i = local training from h_i of F_i at the sum of both logits, where w_i is fixed
             sends w_i
  server:    w = sum_i p_i w_i, where p_i are the clients' shares of the examples
client i deploys (w, h_i).
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import Paper, method
from jaxfl.core.messages import Down, Exchange, ServerState, Turn, Wire
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Task
from jaxfl.training import loss_of, training_predictions


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
    advice="raise --local-steps: the personal head has no option of its own",
)
def fedrod(task: Task) -> Algorithm:
    """A global model with a loss that balances the classes, and a linear head for each client.

    The loss of the global model is the balanced softmax: log n_c is added to the logit of class c,
    where n_c is the client's number of examples of c. The input of the personal head is the
    features of the global model. Its logits are added to those of the global model in a plain
    softmax, whose loss trains the personal head alone. A client deploys both.

    State: memory = each client's head {"kernel" [C, d, classes], "bias" [C, classes]}, at first
    zero; server = the global model. Weights: "global" and "head". The loss of a round is that of
    the deployed prediction. Each of the two losses counts as a gradient on its batch.

    Raises:
      InputError: the model does not define its features, or the task is not classification.

    Differs: the personal head starts at zero, so that a client first predicts as the global model.

    Example:
      >>> state = initial_state(fedrod(task))
      >>> state.clients.memory["kernel"].shape
      (4, 8, 2)
    """
    problem = task.problem
    features = steps.features_of(problem)
    training_features = steps.training_features_of(problem)
    predict = training_predictions(problem)

    def apply(params: dict, x: PyTree) -> Float[Array, "b classes"]:
        head_input = features(params["global"], x)
        head = params["head"]
        return problem.apply(params["global"], x) + head_input @ head["kernel"] + head["bias"][None]

    def personal_logits(params: dict, x: PyTree, mask: Array, key: PRNGKey) -> tuple:
        """The same in training, and the term of the loss."""
        head_input = training_features(params["global"], x, mask, key)
        head = params["head"]
        logits, term = predict(params["global"], x, mask, key)
        return logits + head_input @ head["kernel"] + head["bias"][None], term

    def objective(params: dict, batch: Dataset, prior: Float[Array, "classes"], key: PRNGKey):
        def balanced_logits(model: Params, x: PyTree, mask: Array, key: PRNGKey):
            logits, term = predict(model, x, mask, key)
            return logits + prior[None], term

        # The balanced softmax trains the global model.
        loss, _ = loss_of(problem, balanced_logits)(params["global"], batch, None, key)
        # The plain softmax trains the personal head alone.
        frozen = params | {"global": lax.stop_gradient(params["global"])}
        personal, aux = loss_of(problem, personal_logits)(frozen, batch, None, key)
        return loss + personal, aux

    fit = task.trainer(objective)

    def init(key: PRNGKey, train: Dataset) -> tuple[dict, ServerState]:
        model = problem.init(key)
        steps.require_labels(problem, train, "FedRoD")
        example = tree.shapes(train.x, 1, axes=2)
        d = jax.eval_shape(features, model, example).shape[-1]
        logits = jax.eval_shape(problem.apply, model, example)
        classes = logits.shape[-1]
        kernel = jnp.zeros((d, classes), logits.dtype)
        head = {"kernel": kernel, "bias": jnp.zeros(classes, logits.dtype)}
        return tree.broadcast(head, train.mask.shape[0]), ServerState(model)

    def client(key: PRNGKey, memory: dict, down: Down, cohort: Cohort) -> Turn[dict]:
        start = deploy(memory, down, cohort)
        # log n_c of each client and class [M, classes].
        counts = steps.class_sizes(cohort.train, memory["bias"].shape[-1])
        prior = jnp.where(counts > 0, jnp.log(counts), -1e9)
        trained, up, report = steps.train_and_send(
            fit, key, start, prior, cohort, sends=lambda model: model["global"]
        )
        return trained["head"], up, report._replace(batches=2 * report.batches)

    def deploy(memory: dict, down: Down, cohort: Cohort) -> dict:
        return {"global": steps.deploy_common(memory, down, cohort), "head": memory}

    exchange = Exchange(client, steps.take_part("global", "head"))
    wire = Wire(init, (exchange,), deploy, steps.download_server)
    return steps.compose(task, wire, apply, predict=personal_logits)
