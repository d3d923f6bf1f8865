"""Ditto: a personal model near the global one.

each round t:                                                               (Algorithm 1)
  client i:  v_i = local training of F_i(v) + lam / 2 |v - w|^2 from v_i                    (2)
             w_i = local training of F_i from w, and sends it
  server:    w = the mean of the w_i
client i deploys v_i.
"""

from typing import Annotated

from jaxfl.algorithms import steps
from jaxfl.core.facts import NOT_NEGATIVE, Paper, method
from jaxfl.core.messages import Down, Exchange, Turn, Wire
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, PRNGKey, Scalar, Task
from jaxfl.training import data_loss, proximal


@method(
    title="Ditto",
    paper=Paper(
        authors="Li, Tian and Hu, Shengyuan and Beirami, Ahmad and Smith, Virginia",
        title="Ditto: Fair and Robust Federated Learning Through Personalization",
        venue="ICML",
        year=2021,
        link="https://arxiv.org/abs/2012.04221",
    ),
    place="Algorithm 1",
    personal="the whole model v",
    sends="the model that it trained from the global model",
    defaults="pFedGraph's tables",
    advice="lower lam: at 0 the personal model is local training",
)
def ditto(task: Task, *, lam: Annotated[Scalar, NOT_NEGATIVE] = 1.0) -> Algorithm:
    """FedAvg, and a second model for each client, which stays near the global model.

    Clients count equally in the global model w, as in the authors' code; pFedGraph's tables weigh
    them by size. A client trains its own model v to lower (2), its loss plus lam / 2 |v - w^t|^2,
    where w^t is the global model.

    A client that never took part deploys the current global model and trains its first v from it.

    State: memory = v (`Personal`); server = the global model. The loss of a round is that of v.

    Args:
      task: the model and its training, the same for both models.
      lam: strength of the proximal term; the authors use values from .05 to 2, pFedGraph's tables
        use 1.

    Differs: the two models are trained one after the other on different batches, as in pFedGraph's
    tables; the authors' code takes one step of each in turn, both on the same batch.

    Example:
      >>> state = initial_state(ditto(task, lam=0.5))
      >>> state.clients.memory.seen.shape
      (4,)
    """
    loss = data_loss(task.problem)
    fit = task.trainer(loss)
    fit_personal = task.trainer(proximal(loss, lam))

    def client(
        key: PRNGKey, memory: steps.Personal, down: Down, cohort: Cohort
    ) -> Turn[steps.Personal]:
        start = steps.deploy_common(memory, down, cohort)
        personal = steps.deploy_personal(memory, down, cohort)
        fitted = fit_personal(stream(key, "second_fit"), personal, start, cohort)
        _, up, report = steps.train_and_send(fit, key, start, None, cohort)
        report = steps.report_of(fitted, batches=report.batches + fitted.batches)
        return steps.seen(fitted.params, cohort), up, report

    init = steps.init_personal(task.problem)
    exchange = Exchange(client, steps.take_mean())
    return steps.compose(
        task, Wire(init, (exchange,), steps.deploy_personal, steps.download_server)
    )
