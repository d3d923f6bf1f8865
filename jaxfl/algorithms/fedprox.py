"""FedProx: local models stay near the global model."""

from typing import Annotated

from jaxfl.algorithms.steps.templates import global_model
from jaxfl.core import papers
from jaxfl.core.facts import method
from jaxfl.core.options import NOT_NEGATIVE
from jaxfl.core.types import Algorithm, Scalar, Task
from jaxfl.training.objectives import data_loss, proximal


@method(
    title="FedProx",
    paper=papers.FEDPROX,
    place="Algorithm 2",
    personal="",
    sends="its model",
    defaults="pFedGraph's tables",
    turn_first="raise mu if clients drift apart; one model cannot fit clients that differ",
)
def fedprox(task: Task, *, mu: Annotated[Scalar, NOT_NEGATIVE] = 0.01) -> Algorithm:
    """FedAvg with a proximal term: clients minimise (2), their loss plus mu / 2 |w - w^t|^2.

    w^t is the global model.

    State: memory = nothing; server = the global model.

    Args:
      task: the model and its training.
      mu: strength of the proximal term; section 5 chooses from .001, .01, .1 and 1, pFedGraph's
        tables use .01.

    Differs: clients are weighted by their numbers of examples; in the paper they are drawn with
    probabilities proportional to these. Stragglers that take fewer steps, as in the paper, are an
    option of the run: `work.stragglers`.

    Example:
      >>> state = initial_state(fedprox(task, mu=0.1))
      >>> state.clients.memory
      ()
    """
    objective = proximal(data_loss(task.problem), mu)
    return global_model(task, objective=objective, anchor=lambda start, trained: start)
