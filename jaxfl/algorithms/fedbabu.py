"""FedBABU: the body is trained and averaged; the head stays as it was at first.

each round t, with the head h that is never trained:                        (Algorithm 1)
  client i:  b_i = local training of F_i(b, h) from the body b, and sends it
  server:    b = sum_i p_i b_i, where p_i are the clients' shares of the examples
client i deploys (b, h), and fine-tunes it.
"""

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import Paper, method
from jaxfl.core.messages import Down, Exchange, Outcome, ServerState, Turn, Uploads, Wire
from jaxfl.core.types import Algorithm, Cohort, PRNGKey, Task
from jaxfl.training import data_loss, of_part


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
    advice="look at the scores of the fine-tuned models: the method is made for models that "
    "clients fine-tune",
)
def fedbabu(task: Task, *, head: tree.Layers | None = None) -> Algorithm:
    """FedAvg of the body, below a head that is the same random one for everybody and never trained.

    As no client changes the head, their bodies learn features for one common classifier. The
    personalized models of the paper are those after each client has fine-tuned the whole model,
    which an evaluation reports as `fine_tuned`: `make_evaluate(..., after="fine_tuned")`.

    State: server = the global model. Weights: "body" and "head".

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
    head = steps.head_of(task.problem, head)
    step = steps.take_part("body", "head")

    def client(key: PRNGKey, memory: tuple, down: Down, cohort: Cohort) -> Turn[tuple]:
        heads, start = tree.split(steps.deploy_common(memory, down, cohort), head)
        trained, up, report = steps.train_and_send(fit, key, start, heads, cohort)
        return memory, up, report._replace(trained=tree.join(trained, heads))

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        initial_head, _ = tree.split(state.server, head)
        outcome = step(key, state, uploads)
        return outcome._replace(state=ServerState(tree.join(outcome.state.server, initial_head)))

    init = steps.init_global(task.problem)
    return steps.compose(
        task, Wire(init, (Exchange(client, server),), steps.deploy_common, steps.download_server)
    )
