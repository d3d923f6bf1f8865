"""The client's side of many methods: how it starts, how it trains and sends, what it deploys."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import PyTree

from jaxfl.algorithms.steps.personal import Personal, personal_models, start_personal
from jaxfl.core import tree
from jaxfl.core.messages import Down, Report, ServerState, Turn, Up, report_of
from jaxfl.core.streams import stream
from jaxfl.core.tree import Layers
from jaxfl.core.types import Cohort, Dataset, Fit, Params, PRNGKey, Problem, Task

# `Wire.init`
Init = Callable[[PRNGKey, Dataset], tuple[PyTree, ServerState]]


def train_and_send(
    fit: Fit,
    key: PRNGKey,
    start: Params,
    anchor: PyTree,
    cohort: Cohort,
    sends: Callable[[Params], Params] = lambda model: model,
) -> tuple[Params, Up, Report]:
    """Local training of a cohort on the stream `fit`, and the message with the trained models.

    Args:
      fit: local training, made by `task.trainer`.
      key: of the round.
      start: the model from which each client trains [M, ...]; the update is measured from it.
      anchor: what the objective needs for each client [M, ...], or None.
      cohort: the clients of the round.
      sends: model -> the part that a client sends; the whole model by default.

    Returns:
      The trained models [M, ...], the message and the report.

    Example:
      >>> start = tree.broadcast(jnp.zeros(3), 4)
      >>> fit = lambda key, params, anchor, cohort: jaxfl.types.Fitted(params + 1, jnp.ones(4), 5)
      >>> trained, up, report = train_and_send(fit, jax.random.key(0), start, None, cohort)
      >>> up.before[0].tolist(), up.after[0].tolist()
      ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    """
    fitted = fit(stream(key, "fit"), start, anchor, cohort)
    return fitted.params, Up(sends(fitted.params), sends(start)), report_of(fitted)


def init_global(problem: Problem) -> Init:
    """The start of a method whose server has one model, and whose clients keep nothing.

    Example:
      >>> memory, state = init_global(task.problem)(jax.random.key(0), cohort.train)
      >>> memory, state.record
      ((), ())
    """
    return lambda key, train: ((), ServerState(problem.init(key)))


def init_own(problem: Problem) -> Init:
    """The start of a method whose clients each keep a model, and whose server keeps nothing.

    Example:
      >>> memory, state = init_own(task.problem)(jax.random.key(0), cohort.train)
      >>> tree.size(memory), state
      (360, ServerState(server=(), record=(), memo=None))
    """
    return lambda key, train: (tree.broadcast(problem.init(key), len(train.mask)), ServerState())


def init_personal(problem: Problem) -> Init:
    """The start of a method whose clients keep a `Personal` model beside the server's model.

    Example:
      >>> memory, _ = init_personal(task.problem)(jax.random.key(0), cohort.train)
      >>> memory.seen.tolist()
      [False, False, False, False]
    """

    def init(key: PRNGKey, train: Dataset) -> tuple[Personal, ServerState]:
        model = problem.init(key)
        return start_personal(model, len(train.mask)), ServerState(model)

    return init


def deploy_common(memory: PyTree, down: Down, cohort: Cohort) -> Params:
    """What clients deploy if it is the model that the server sends to all.

    Example:
      >>> deploy_common((), Down(jnp.array([90.0])), cohort).tolist()
      [[90.0], [90.0], [90.0], [90.0]]
    """
    return tree.broadcast(down.common, cohort.ids.size)


def deploy_memory(memory: Params, down: Down, cohort: Cohort) -> Params:
    """What clients deploy if it is the model that they keep.

    Example:
      >>> deploy_memory("the models", Down(), cohort)
      'the models'
    """
    return memory


def deploy_personal(memory: Personal, down: Down, cohort: Cohort) -> Params:
    """What clients deploy if it is a `Personal` model; one that was never seen has the server's.

    Example:
      >>> memory = Personal(jnp.array([[1.0], [2.0], [3.0], [4.0]]), seen=jnp.arange(4) > 0)
      >>> deploy_personal(memory, Down(jnp.array([90.0])), cohort).tolist()
      [[90.0], [2.0], [3.0], [4.0]]
    """
    return personal_models(memory, down.common)


def seen(models: Params, cohort: Cohort) -> Personal:
    """The personal models of clients that have taken part.

    Example:
      >>> seen(jnp.zeros((4, 3)), cohort).seen.tolist()
      [True, True, True, True]
    """
    return Personal(models, jnp.ones(cohort.ids.size, bool))


def take_offered(task: Task) -> Callable[[PRNGKey, Params, Down, Cohort], tuple]:
    """The last step of a round in which each client takes the model that it is offered, or not.

    Args:
      task: it says whether clients refuse.

    Returns:
      `Exchange.client`, for clients that keep one model: the one that they have trained.

    Example:
      >>> take = take_offered(task)
      >>> offered = Down(each=jnp.ones((4, 3)))
      >>> take(jax.random.key(0), jnp.zeros((4, 3)), offered, cohort)[0][0].tolist()
      [1.0, 1.0, 1.0]
    """

    def take(key: PRNGKey, memory: Params, down: Down, cohort: Cohort) -> Turn[Params]:
        model, accepted = task.accept(memory, down.each, cohort)
        return model, None, Report(accepted=accepted)

    return take


def init_parts(problem: Problem, layers: Layers) -> Init:
    """The start of a method whose clients keep some layers of the model; the server has the rest.

    Example:
      >>> memory, state = init_parts(task.problem, "Dense_1")(jax.random.key(0), cohort.train)
      >>> tree.size(memory), tree.size(state.server)
      (72, 72)
    """

    def init(key: PRNGKey, train: Dataset) -> tuple[Params, ServerState]:
        part, rest = tree.split(problem.init(key), layers)
        return tree.broadcast(part, len(train.mask)), ServerState(rest)

    return init


def deploy_parts(memory: Params, down: Down, cohort: Cohort) -> Params:
    """What clients deploy if they keep one part of the model and the server sends the other.

    Example:
      >>> memory = {"head": jnp.ones((4, 2)), "body": None}
      >>> deploy_parts(memory, Down({"head": None, "body": jnp.zeros(3)}), cohort)["body"].shape
      (4, 3)
    """
    return tree.join(memory, deploy_common((), down, cohort))
