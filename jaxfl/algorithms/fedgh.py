"""FedGH: personal bodies with a shared head, which the server trains on the clients' mean features.

each round t, with the client's body b_i and the shared head h:
  client i:  (b_i, h_i) = local training of F_i from (b_i, h)
             sends p_ik, its mean features of each class k
  server:    h = steps of gradient descent from h on the mean cross-entropy of h(p_ik) and k
client i deploys (b_i, h).
"""

from functools import partial
from typing import Annotated

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import COUNT, POSITIVE, Paper, method
from jaxfl.core.messages import Down, Exchange, Outcome, ServerState, Turn, Up, Uploads, Wire
from jaxfl.core.over_clients import over_clients
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Scalar, Task
from jaxfl.training.objectives import cross_entropy, data_loss, masked_mean


@method(
    title="FedGH",
    paper=Paper(
        authors="Yi, Liping and Wang, Gang and Liu, Xiaoguang and Shi, Zhuan and Yu, Han",
        title="FedGH: Heterogeneous Federated Learning with Generalized Global Header",
        venue="ACM MM",
        year=2023,
        link="https://arxiv.org/abs/2303.13137",
    ),
    personal="the body",
    sends="the mean features of each class that it has",
    defaults="HtFLlib's; rate is ours",
    advice="rate and server_steps, the training of the head",
)
def fedgh(
    task: Task,
    *,
    rate: Annotated[Scalar, POSITIVE] = 0.1,
    server_steps: Annotated[int, COUNT] = 100,
) -> Algorithm:
    """Each client keeps a body of its own, and all have one head, which the server trains.

    A client trains its whole model and sends the mean features of its classes. The server trains
    the head to tell from them which class they are of, and sends it to all.

    State: memory = the client's body; server = the head.

    Args:
      task: the model and its training.
      rate: learning rate of the server.
      server_steps: of gradient descent in a round.

    Raises:
      InputError: the model does not define its features, it names no head or one that is not a
        dense layer, or the task has no labels.

    Differs: a step of the server is on all that clients have sent, in HtFLlib's code on ten of them
    in turn.

    Example:
      >>> state, info = one_round(fedgh(task))
      >>> state.server["params"]["Dense_1"]["kernel"].shape, info.up.shape
      ((8, 2), (4,))
    """
    problem = task.problem
    head = steps.linear_head_of(problem)
    features = steps.features_of(problem)
    fit = task.trainer(data_loss(problem))

    def init(key: PRNGKey, train: Dataset) -> tuple[Params, ServerState]:
        steps.require_labels(problem, train, "FedGH")
        shared, body = tree.split(problem.init(key), head)
        return tree.broadcast(body, len(train.mask)), ServerState(shared)

    def client(key: PRNGKey, memory: Params, down: Down, cohort: Cohort) -> Turn[Params]:
        fitted = fit(stream(key, "fit"), deploy(memory, down, cohort), None, cohort)
        classes = steps.class_count(problem, cohort.train)
        measure = partial(steps.class_features, features, classes=classes)
        means, counts = over_clients(measure, "auto")(fitted.params, cohort.train)
        _, body = tree.split(fitted.params, head)
        up = Up(means, tree.zeros_like(means), plain=counts > 0)
        return body, up, steps.report_of(fitted)

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        sent = steps.Prototypes(uploads.received, uploads.plain)
        data = steps.examples_of(sent, uploads.reported)

        def loss(shared: Params) -> Scalar:
            kernel, bias = steps.linear_head(shared)
            return masked_mean(cross_entropy(data.x @ kernel + bias[None], data.y), data.mask)

        return Outcome(ServerState(steps.descend(loss, state.server, rate, server_steps)))

    def deploy(memory: Params, down: Down, cohort: Cohort) -> Params:
        return tree.join(tree.broadcast(down.common, cohort.ids.size), memory)

    wire = Wire(init, (Exchange(client, server),), deploy, steps.download_server)
    return steps.compose(task, wire)
