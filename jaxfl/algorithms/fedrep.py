"""FedRep: personal heads on a shared body; a client trains its head before the body.

each round t, with the client's head h_i:                                   (Algorithm 1)
  client i:  h_i = local training of F_i(b, h) from h_i
             b_i = local training of F_i(b, h_i) from b, and sends it
  server:    b = the mean of the b_i
client i deploys (b, h_i).
"""

from typing import Annotated

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import COUNT, Paper, method
from jaxfl.core.messages import Down, Exchange, Turn, Wire
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Params, PRNGKey, Task
from jaxfl.training import data_loss, of_part


@method(
    title="FedRep",
    paper=Paper(
        authors="Collins, Liam and Hassani, Hamed and Mokhtari, Aryan and Shakkottai, Sanjay",
        title="Exploiting Shared Representations for Personalized Federated Learning",
        venue="ICML",
        year=2021,
        link="https://arxiv.org/abs/2102.07078",
    ),
    place="Algorithm 1",
    personal="the head",
    sends="its body",
    defaults="the authors' code",
    advice="head_epochs: fewer if clients have few examples, more if the head lags behind the body",
)
def fedrep(
    task: Task,
    *,
    head_epochs: Annotated[int, COUNT] = 10,
    head_steps: Annotated[int | None, COUNT] = None,
    head: tree.Layers | None = None,
) -> Algorithm:
    """Each client trains its own head with the global body, and then the body with that head.

    The server takes the unweighted mean of the bodies. A client deploys the mean body with its own
    head. If all layers are the head, nothing is shared.

    State: memory = each client's head; server = the global body. Weights: "body" and "head". The
    loss of a round is that of the body's training.

    Args:
      task: the model and its training, which is that of the body.
      head_epochs: passes over the data to train the head; the authors' experiments on CIFAR use 10,
        and 1 for the body.
      head_steps: steps in place of epochs; pFedGraph's tables use 80, and 200 for the body.
      head: the personal layers: a regular expression to find in their paths, or a predicate. None:
        the model's head.

    Raises:
      InputError: the model names no head and none is given, or no layer matches.

    Example:
      >>> _, info = one_round(fedrep(task, head_steps=2))
      >>> sorted(info.weights)
      ['body', 'head']
    """
    amount = {"epochs": head_epochs} if head_steps is None else {"steps": head_steps}
    objective = of_part(data_loss(task.problem))
    fit_head = task.trainer(objective, **amount)
    fit_body = task.trainer(objective)
    head = steps.head_of(task.problem, head)

    def client(key: PRNGKey, memory: Params, down: Down, cohort: Cohort) -> Turn[Params]:
        start = steps.deploy_common(memory, down, cohort)
        # The head with the body fixed, then the body with the head fixed.
        heads = fit_head(stream(key, "second_fit"), memory, start, cohort)
        trained, up, report = steps.train_and_send(fit_body, key, start, heads.params, cohort)
        report = report._replace(
            batches=report.batches + heads.batches, trained=tree.join(heads.params, trained)
        )
        return heads.params, up, report

    init = steps.init_parts(task.problem, head)
    # The unweighted mean of the bodies.
    exchange = Exchange(client, steps.take_part("body", "head", steps.equal_mean))
    return steps.compose(task, Wire(init, (exchange,), steps.deploy_parts, steps.download_server))
