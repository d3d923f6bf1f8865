"""HeurFedAMP: FedAMP with a softmax of cosines."""

from typing import Annotated, Literal

from jaxtyping import Array, Bool, Float

from jaxfl.algorithms.steps.attraction import attracted_models
from jaxfl.core import papers, tree
from jaxfl.core.facts import method
from jaxfl.core.options import FRACTION, NOT_NEGATIVE
from jaxfl.core.types import Algorithm, Params, Scalar, Task
from jaxfl.kernels.amp import heuristic
from jaxfl.kernels.similarity import Measure, similarities


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
    measure: Measure = "cosine",
) -> Algorithm:
    """FedAMP for deep networks: the weights are a softmax of cosines, not a function of distances.

    At the start of a round the server sends each client of the cohort its mixture u of the models
    that it last received from the cohort. The client minimises its loss plus lam / 2 |w - u|^2,
    starting from its own model. A client from which the server has received nothing is in nobody's
    mixture. The defaults are those of pFedGraph's tables (FedAMP there, 2023).

    State: memory = each client's model (`Personal`); record = `attraction.Record`; server = the
    initial model if differences from it are compared, otherwise nothing.

    Args:
      task: the model and its training.
      own: xi_ii, the weight of a client's own model.
      sigma: sharpness of the softmax over the cosines with the other models.
      lam: strength of the attraction, lam / alpha_k in the paper.
      similarity: "delta" compares the differences from the initial model, "raw" the models, as in
        the paper.
      measure: in place of the cosine, not the paper's, of which sigma must suit the range: see
        `kernels.similarity.similarities`.

    Differs: there is no attraction before the server has received a model of the client.

    Example:
      >>> state = initial_state(heurfedamp(task, similarity="raw"))
      >>> state.server
      ()
    """

    def weigh(received: Params, initial: Params) -> Float[Array, "m m"]:
        delta = similarity == "delta"
        features = tree.subtract(received, initial) if delta else received
        # The weights xi of the others' models.
        return heuristic(similarities(features, measure), own, sigma)

    def factor(step: tuple, seen: Bool[Array, "m"]) -> Array:
        return lam / 2 * seen

    return attracted_models(task, weigh=weigh, factor=factor, compare=similarity == "delta")
