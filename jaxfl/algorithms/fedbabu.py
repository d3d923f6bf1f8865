"""FedBABU: the body is trained and averaged; the head stays as it was at first."""

from jaxfl.algorithms.steps.heads import head_of, part_weights
from jaxfl.algorithms.steps.uploads import mean_by_size, train_and_upload
from jaxfl.core import tree
from jaxfl.core.facts import method
from jaxfl.core.papers import Paper
from jaxfl.core.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, State, Task
from jaxfl.training.objectives import data_loss, of_part


@method(
    title="FedBABU",
    paper=Paper(
        authors="Oh, Jaehoon and Kim, Sangmook and Yun, Se-Young",
        title="FedBABU: Towards Enhanced Representation for Federated Image Classification",
        venue="ICLR",
        year=2022,
        link="https://arxiv.org/abs/2106.06042",
    ),
    place="Algorithm 1",
    personal="",
    sends="its body",
    turn_first="look at the scores of the fine-tuned models: the method is made for models that "
    "clients fine-tune",
)
def fedbabu(task: Task, *, head: tree.Layers | None = None) -> Algorithm:
    """FedAvg of the body, below a head that is the same random one for everybody and never trained.

    As no client changes the head, their bodies learn features for one common classifier. The
    personalized models of the paper are those after each client has fine-tuned the whole model,
    which an evaluation reports as `fine_tuned`: `make_evaluate(..., after="fine_tuned")`.

    State: clients = nothing; server = (the global body, the head). Weights: "body" and "head".

    Args:
      task: the model and its training.
      head: the layers that are not trained: a regular expression to find in their paths, or a
        predicate. None: the model's head.

    Raises:
      InputError: the model names no head and none is given, or no layer matches.

    Example:
      >>> _, info = one_round(fedbabu(task))
      >>> sorted(info.weights)
      ['body', 'head']
    """
    fit = task.trainer(of_part(data_loss(task.problem)))
    head = head_of(task.problem, head)

    def init(key: PRNGKey, train: Dataset) -> State:
        initial_head, body = tree.split(task.problem.init(key), head)
        return State((), (body, initial_head))

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        clients = cohort.ids.size
        body, initial_head = state.server
        start = tree.broadcast(body, clients)
        heads = tree.broadcast(initial_head, clients)
        _, received, info = train_and_upload(task, fit, key, start, heads, cohort)
        body, weights = mean_by_size(received, start, info.reported, cohort)
        matrix = tree.broadcast(weights, clients)
        info = info._replace(
            weights=part_weights(matrix, "body", "head", received),
            trained=tree.join(info.trained, heads),
        )
        return State((), (body, initial_head)), info

    def models(state: State, cohort: Cohort) -> Params:
        return tree.broadcast(tree.join(*state.server), cohort.ids.size)

    return Algorithm(init, round, models, task.problem.apply)
