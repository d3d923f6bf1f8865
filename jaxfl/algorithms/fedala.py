"""FedALA and FedAH: clients mix a part of their own model and of the global one by parameter.

each round t, with g the part in the global model w, and h_i the client's own:
  client i:  A_i = argmin_A F_i at the mixture h_i + A (g - h_i), each entry of A in [0, 1]
             FedALA:  w_i = local training of F_i from w with the mixture in it
             FedAH:   the part, which is the head, is trained from the mixture, then the body
             h_i = the part of w_i; sends w_i
  server:    w = sum_i p_i w_i, where p_i are the clients' shares of the examples
client i deploys w with the mixture in it.
"""

from collections.abc import Callable
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import COUNT, POSITIVE, Paper, method
from jaxfl.core.messages import (
    Down,
    Exchange,
    Outcome,
    Report,
    ServerState,
    Turn,
    Up,
    Uploads,
    Wire,
)
from jaxfl.core.streams import stream
from jaxfl.core.tree import Layers
from jaxfl.core.types import Algorithm, Cohort, Dataset, Fit, Params, PRNGKey, Problem, Scalar, Task
from jaxfl.training import data_loss, of_part, of_statistics


class Memory(NamedTuple):
    """What each client keeps."""

    # [C, ...] the part of the model that clients mix, as the client last trained it
    part: Params
    # [C, ...] A, of the shape of that part: the weight of the global one, from 0 to 1
    blend: Params


def init_blended(problem: Problem, layers: Layers) -> steps.Init:
    """The start of a method whose clients keep a `Memory`, where A is 1, and whose server a model.

    Args:
      problem: what is learned.
      layers: the part of the model that clients mix.

    Example:
      >>> memory, _ = init_blended(task.problem, "Dense_1")(jax.random.key(0), cohort.train)
      >>> tree.size(memory.part), tree.size(memory.blend)
      (72, 72)
    """

    def init(key: PRNGKey, train: Dataset) -> tuple[Memory, ServerState]:
        model = problem.init(key)
        part = tree.broadcast(tree.split(model, layers)[0], len(train.mask))
        return Memory(part, jax.tree.map(jnp.ones_like, part)), ServerState(model)

    return init


def blended(local: Params, other: Params, blend: Params) -> Params:
    """The mixture local + A (other - local).

    Example:
      >>> blended(jnp.array([0.0, 0.0]), jnp.array([2.0, 4.0]), jnp.array([1.0, 0.5])).tolist()
      [2.0, 2.0]
    """
    return jax.tree.map(lambda h, g, a: h + (g - h) * a, local, other, blend)


def deploy_blended(layers: Layers) -> Callable[[Memory, Down, Cohort], Params]:
    """`Wire.deploy` of clients that deploy the server's model with the mixture of some layers.

    Args:
      layers: the part of the model that clients mix.

    Example:
      >>> memory, state = init_blended(task.problem, "Dense_1")(jax.random.key(0), cohort.train)
      >>> tree.size(deploy_blended("Dense_1")(memory, Down(state.server), cohort))
      360
    """

    def deploy(memory: Memory, down: Down, cohort: Cohort) -> Params:
        part, rest = tree.split(steps.deploy_common(memory, down, cohort), layers)
        return tree.join(blended(memory.part, part, memory.blend), rest)

    return deploy


def learned_blend(task: Task, rate: Scalar, epochs: int) -> Fit:
    """A function that lowers the loss of the mixture by gradient steps on A, clipped to [0, 1].

    Its anchor is (local [M], other [M], rest [M]): both forms of the part, and the model's rest.

    Args:
      task: the model and its batches.
      rate: learning rate of A.
      epochs: passes over the data.

    Example:
      >>> fit = learned_blend(task, 1.0, 1)
      >>> model = tree.broadcast(task.problem.init(jax.random.key(0)), 4)
      >>> local, rest = tree.split(model, "Dense_1")
      >>> blend = jax.tree.map(jnp.ones_like, local)
      >>> start = (jax.random.key(0), blend, (local, local, rest), cohort)
      >>> jax.eval_shape(fit, *start).loss.shape
      (4,)
    """
    loss = of_part(data_loss(task.problem))

    def objective(blend: Params, batch: Dataset, anchor: tuple, key: PRNGKey):
        local, other, rest = anchor
        # A of a statistic stays: the change of a statistic is no derivative.
        blend = tree.combine(of_statistics, jax.lax.stop_gradient(blend), blend)
        return loss(blended(local, other, blend), batch, rest, key)

    clip = optax.stateless(
        lambda updates, blend: jax.tree.map(lambda u, a: jnp.clip(a + u, 0, 1) - a, updates, blend)
    )
    return task.trainer(objective, epochs=epochs, optimizer=optax.chain(optax.sgd(rate), clip))


def mean_blend(blend: Params) -> Float[Array, "m"]:
    """The mean of A over the parameters: how much each client takes of the global part [M].

    Args:
      blend: A [M, ...].

    Example:
      >>> mean_blend(jnp.array([[0.5, 1.0], [0.0, 0.0]])).tolist()
      [0.75, 0.0]
    """
    return tree.ravel(blend).mean(axis=1)


def take_blended(layers: Layers, shared: str, mixed: str) -> steps.Step:
    """FedAvg's step, with the weights of both parts as if clients took the whole global model.

    Args:
      layers: the part of the model that clients mix.
      shared: the name of the other part.
      mixed: the name of the part that clients mix.

    Example:
      >>> received = tree.broadcast(task.problem.init(jax.random.key(0)), 4)
      >>> uploads = Uploads(cohort.ids, cohort.sizes, jnp.ones(4, bool), received, received)
      >>> step = take_blended("Dense_1", "lower", "upper")
      >>> sorted(step(jax.random.key(0), ServerState(), uploads).weights)
      ['lower', 'upper']
    """
    step = steps.take_mean(steps.mean_by_size)

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        outcome = step(key, state, uploads)
        matrix = outcome.weights
        rest = tree.split(uploads.received, layers)[1]
        return outcome._replace(weights=steps.part_weights(matrix, shared, mixed, rest, matrix))

    return server


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
    advice="blend_epochs: with more of them the upper layers are more the client's own",
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

    State: memory = `Memory`, where W starts at 1; server = the global model. Weights:
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
    layers = steps.head_of(task.problem, layers)
    loss = data_loss(task.problem)
    fit_blend = learned_blend(task, rate, blend_epochs)
    fit = task.trainer(loss)

    def client(key: PRNGKey, memory: Memory, down: Down, cohort: Cohort) -> Turn[Memory]:
        local = memory.part
        start = steps.deploy_common(memory, down, cohort)
        upper, lower = tree.split(start, layers)
        # The weights W, by gradients at the mixture.
        blend = fit_blend(stream(key, "second_fit"), memory.blend, (local, upper, lower), cohort)
        mixture = tree.join(blended(local, upper, blend.params), lower)
        # Local training of the whole model.
        fitted = fit(stream(key, "fit"), mixture, None, cohort)
        report = steps.report_of(
            fitted,
            batches=fitted.batches + blend.batches,
            fractions={"upper": mean_blend(blend.params)},
        )
        memory = Memory(tree.split(fitted.params, layers)[0], blend.params)
        return memory, Up(fitted.params, start), report

    init = init_blended(task.problem, layers)
    exchange = Exchange(client, take_blended(layers, "lower", "upper"))
    return steps.compose(
        task, Wire(init, (exchange,), deploy_blended(layers), steps.download_server)
    )


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
    advice="blend_epochs and head_epochs: with more of them the head is more the client's own",
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

    State: memory = `Memory`, where A starts at 1; server = the global model. Weights:
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
    head = steps.head_of(task.problem, head)
    loss = of_part(data_loss(task.problem))

    fit_blend = learned_blend(task, rate, blend_epochs)
    fit_head = task.trainer(loss, epochs=head_epochs)
    fit_body = task.trainer(loss)

    def client(key: PRNGKey, memory: Memory, down: Down, cohort: Cohort) -> Turn[Memory]:
        heads = memory.part
        start = steps.deploy_common(memory, down, cohort)
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
    return steps.compose(task, Wire(init, (exchange,), deploy_blended(head), steps.download_server))
