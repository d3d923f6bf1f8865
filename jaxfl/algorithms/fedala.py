"""FedALA: clients start from a mixture of their own and the global model, learned by parameter."""

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
from jaxfl.core.messages import Down, Exchange, Report, Up, Wire, download_server, report_of
from jaxfl.core.options import COUNT, POSITIVE
from jaxfl.core.papers import Paper
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, PRNGKey, Scalar, Task
from jaxfl.training.objectives import data_loss


@method(
    title="FedALA",
    paper=Paper(
        authors="Zhang, Jianqing and Hua, Yang and Wang, Hao and Song, Tao and Xue, Zhengui and "
        "Ma, Ruhui and Guan, Haibing",
        title="FedALA: Adaptive Local Aggregation for Personalized Federated Learning",
        venue="AAAI",
        year=2023,
        link="https://arxiv.org/abs/2212.01197",
    ),
    place="Algorithm 1",
    personal="the upper layers",
    sends="its model",
    defaults="the authors' code",
    turn_first="blend_epochs: with more of them the upper layers are more the client's own",
)
def fedala(
    task: Task,
    *,
    rate: Annotated[Scalar, POSITIVE] = 1.0,
    blend_epochs: Annotated[int, COUNT] = 1,
    layers: tree.Layers | None = None,
) -> Algorithm:
    """FedAvg whose clients start from local + W (global - local), with one entry of W a parameter.

    This holds for the upper layers; the lower layers are those of the global model. In a round a
    client first learns W: it lowers its loss at this mixture by gradient steps, and each entry is
    clipped to [0, 1]. Then it trains the whole model from the mixture and sends it. A client
    deploys the mixture.

    State: memory = `blending.Memory`, where W starts at 1; server = the global model. Weights:
    "lower", and "upper" with the mean of W over the parameters.

    Args:
      task: the model and its training.
      rate: learning rate eta of W.
      blend_epochs: passes over the data to learn W in a round.
      layers: the upper layers: a regular expression to find in their paths, or a predicate. None:
        the model's head, as in the authors' code.

    Raises:
      InputError: the model names no head and no layers are given, or none matches.

    Differs: W is learned on all examples and with the same number of passes in each round; the
    authors draw 80 % of them, and go on until the loss changes no more in the first round. A client
    deploys the mixture with the W of its last round; the authors' code learns W again before each
    evaluation.

    Example:
      >>> _, info = one_round(fedala(task))
      >>> sorted(info.weights)
      ['lower', 'upper']
    """
    layers = head_of(task.problem, layers)
    loss = data_loss(task.problem)
    fit_blend = learned_blend(task, rate, blend_epochs)
    fit = task.trainer(loss)

    def client(
        key: PRNGKey, memory: Memory, down: Down, cohort: Cohort
    ) -> tuple[Memory, Up, Report]:
        local = memory.part
        start = deploy_common(memory, down, cohort)
        upper, lower = tree.split(start, layers)
        # The weights W, by gradients at the mixture.
        blend = fit_blend(stream(key, "second_fit"), memory.blend, (local, upper, lower), cohort)
        mixture = tree.join(blended(local, upper, blend.params), lower)
        # Local training of the whole model.
        fitted = fit(stream(key, "fit"), mixture, None, cohort)
        report = report_of(
            fitted,
            batches=fitted.batches + blend.batches,
            fractions={"upper": mean_blend(blend.params)},
        )
        memory = Memory(tree.split(fitted.params, layers)[0], blend.params)
        return memory, Up(fitted.params, start), report

    init = init_blended(task.problem, layers)
    exchange = Exchange(client, take_blended(layers, "lower", "upper"))
    return compose(task, Wire(init, (exchange,), deploy_blended(layers), download_server))
