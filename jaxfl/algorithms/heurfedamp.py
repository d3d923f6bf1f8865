"""HeurFedAMP: FedAMP with a softmax of cosines."""

from typing import Annotated, Literal

from jaxfl.algorithms.steps.attraction import attraction, attraction_round, first_clients
from jaxfl.algorithms.steps.personal import models_in_state
from jaxfl.core import papers, tree
from jaxfl.core.facts import method
from jaxfl.core.options import FRACTION, NOT_NEGATIVE
from jaxfl.core.types import Algorithm, Cohort, Dataset, Info, PRNGKey, Scalar, State, Task
from jaxfl.kernels.amp import heuristic
from jaxfl.kernels.mixing import isolate
from jaxfl.kernels.similarity import cosine


@method(
    title="HeurFedAMP",
    paper=papers.FEDAMP,
    personal="the whole model",
    sends="its model",
    defaults="pFedGraph's tables",
    offers_mixture=True,
    takes_top_edges=True,
    mixes_before_training=True,
    turn_first="raise own, the weight of a client's own model; then sigma: higher prefers similar "
    "clients",
)
def heurfedamp(
    task: Task,
    *,
    own: Annotated[Scalar, FRACTION] = 0.3,
    sigma: Scalar = 10.0,
    lam: Annotated[Scalar, NOT_NEGATIVE] = 1.0,
    similarity: Literal["delta", "raw"] = "delta",
) -> Algorithm:
    """FedAMP for deep networks: the weights are a softmax of cosines, not a function of distances.

    At the start of a round the server sends each client of the cohort its mixture u of the models
    that it last received from the cohort. The client minimises its loss plus lam / 2 |w - u|^2,
    starting from its own model. A client from which the server has received nothing is in nobody's
    mixture. The defaults are those of pFedGraph's tables (FedAMP there, 2023).

    State: clients = `attraction.Client`; server = the initial model if differences from it are
    compared, otherwise nothing.

    Args:
      task: the model and its training.
      own: xi_ii, the weight of a client's own model.
      sigma: sharpness of the softmax over the cosines with the other models.
      lam: strength of the attraction, lam / alpha_k in the paper.
      similarity: "delta" compares the differences from the initial model, "raw" the models, as in
        the paper.

    Differs: there is no attraction before the server has received a model of the client.

    Example:
      >>> state = initial_state(heurfedamp(task, similarity="raw"))
      >>> state.server
      ()
    """
    fit = task.trainer(attraction(task.problem))

    def init(key: PRNGKey, train: Dataset) -> State:
        initial = task.problem.init(key)
        server = initial if similarity == "delta" else ()
        return State(first_clients(initial, train.mask.shape[0]), server)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        clients, initial = state
        features = clients.received
        if similarity == "delta":
            features = tree.subtract(features, initial)
        # The weights xi of the others' models.
        weights = isolate(heuristic(cosine(features), own, sigma), clients.seen)
        factor = lam / 2 * clients.seen
        clients, info = attraction_round(task, fit, key, clients, weights, factor, cohort)
        return State(clients, initial), info

    return Algorithm(init, round, models_in_state, task.problem.apply)
