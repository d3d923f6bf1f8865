"""FedAH: personal heads that start from a learned mixture with the global head."""

from typing import Annotated

from jaxfl.algorithms.steps.blending import (
    Memory,
    blended,
    deploy_blended,
    init_blended,
    learned_blend,
    mean_blend,
    take_blended,
)
from jaxfl.algorithms.steps.client import deploy_common
from jaxfl.algorithms.steps.composition import compose
from jaxfl.algorithms.steps.heads import head_of
from jaxfl.core import tree
from jaxfl.core.facts import method
from jaxfl.core.messages import Down, Exchange, Report, Up, Wire, download_server
from jaxfl.core.options import COUNT, POSITIVE
from jaxfl.core.papers import Paper
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, PRNGKey, Scalar, Task
from jaxfl.training.objectives import data_loss, of_part


@method(
    title="FedAH",
    paper=Paper(
        authors="Zhou, Pengzhan and He, Yuepeng and Zhai, Yijun and Gao, Kaixin and Chen, Chao "
        "and Qin, Zhida and Zhang, Chong and Guo, Songtao",
        title="FedAH: Aggregated Head for Personalized Federated Learning",
        venue="",
        year=2024,
        link="https://arxiv.org/abs/2412.01295",
    ),
    personal="the head",
    sends="its model",
    defaults="the authors' code",
    turn_first="blend_epochs and head_epochs: with more of them the head is more the client's own",
)
def fedah(
    task: Task,
    *,
    rate: Annotated[Scalar, POSITIVE] = 1.0,
    blend_epochs: Annotated[int, COUNT] = 1,
    head_epochs: Annotated[int, COUNT] = 1,
    head: tree.Layers | None = None,
) -> Algorithm:
    """FedRep whose heads start from a mixture of the client's head and the global head.

    The mixture is h + A (global - h), with one entry of A for each parameter of the head. In a
    round, a client first learns A: it lowers its loss at the global body and the mixture. Then it
    trains the head from the mixture, and then the body. The server averages bodies and heads. A
    client deploys the global body with the mixture of its head h and the global head.

    State: memory = `blending.Memory`, where A starts at 1; server = the global model. Weights:
    "body", and "head" with the mean of A over the parameters.

    Args:
      task: the model and its training, which is that of the body.
      rate: learning rate of A; 1 in the authors' code.
      blend_epochs: passes over the data to learn A.
      head_epochs: passes over the data to train the head.
      head: the layers of the head: a regular expression to find in their paths, or a predicate.
        None: the model's head.

    Raises:
      InputError: the model names no head and none is given, or no layer matches.

    Differs: a client deploys the mixture with the A of its last round; the authors' code learns A
    again before each evaluation.

    Example:
      >>> _, info = one_round(fedah(task, head="Dense_1"))
      >>> sorted(info.weights)
      ['body', 'head']
    """
    head = head_of(task.problem, head)
    loss = of_part(data_loss(task.problem))

    fit_blend = learned_blend(task, rate, blend_epochs)
    fit_head = task.trainer(loss, epochs=head_epochs)
    fit_body = task.trainer(loss)

    def client(
        key: PRNGKey, memory: Memory, down: Down, cohort: Cohort
    ) -> tuple[Memory, Up, Report]:
        heads = memory.part
        start = deploy_common(memory, down, cohort)
        global_head, body = tree.split(start, head)
        # Each client learns its A, then trains the head, then the body.
        blend = fit_blend(
            stream(key, "third_fit"), memory.blend, (heads, global_head, body), cohort
        )
        begin = blended(heads, global_head, blend.params)
        trained_head = fit_head(stream(key, "second_fit"), begin, body, cohort)
        trained_body = fit_body(stream(key, "fit"), body, trained_head.params, cohort)
        trained = tree.join(trained_head.params, trained_body.params)
        report = Report(
            trained_body.loss,
            trained_body.batches + trained_head.batches + blend.batches,
            trained,
            fractions={"head": mean_blend(blend.params)},
        )
        return Memory(trained_head.params, blend.params), Up(trained, start), report

    init = init_blended(task.problem, head)
    exchange = Exchange(client, take_blended(head, "body", "head"))
    return compose(task, Wire(init, (exchange,), deploy_blended(head), download_server))
