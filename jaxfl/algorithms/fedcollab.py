"""FedCollab: coalitions that are found before training, from divergences and sizes of the data.

before the first round:
  clients i, k:  train a discriminator of their examples (x, y); a_i and a_k are the shares of their
                 held-out examples whose owner it names, and d_ik = max(a_i + a_k - 1, 0)
  server:        the coalitions S with the lowest mean over their clients i of
                 C / m_S^(1/2) + the mean of d_ik over k in S, weighted by size
each round t: FedAvg in each coalition.
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxfl.algorithms.steps import class_count, compose, has_labels, train_and_send
from jaxfl.core import tree
from jaxfl.core.errors import check
from jaxfl.core.facts import COUNT, NOT_NEGATIVE, POSITIVE, Paper, method
from jaxfl.core.messages import Down, Exchange, Joining, Outcome, ServerState, Turn, Uploads, Wire
from jaxfl.core.over_clients import over_clients
from jaxfl.core.ragged import is_ragged
from jaxfl.core.streams import client_keys, stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Problem, Scalar, Task
from jaxfl.kernels import coalition_weights, find_coalitions, leave_out, mix
from jaxfl.training import data_loss
from jaxfl.training.batches import minibatches, read

# Inputs of more numbers are projected at random to so many; ids are counted in so many bins.
WIDTH = 256
HIDDEN = 64
BATCH = 32
# Pairs of clients whose discriminators are trained side by side.
PAIRS = 32
# Labels count so much more than the numbers of an example, as in the authors' code.
EMPHASIS = 2.0
INT32_MAX = np.iinfo(np.int32).max


class Record(NamedTuple):
    """What the server keeps for each client."""

    # [C] its coalition, which never changes
    coalition: Int[Array, "*c"]
    # [C] floats that it sent and received in the estimation, until its first round has counted them
    up: Int[Array, "*c"]
    down: Int[Array, "*c"]


@method(
    title="FedCollab",
    paper=Paper(
        authors="Bao, Wenxuan and Wang, Haohan and Wu, Jun and He, Jingrui",
        title="Optimizing the Collaboration Structure in Cross-Silo Federated Learning",
        venue="ICML",
        year=2023,
        link="https://arxiv.org/abs/2306.06508",
    ),
    personal="the coalition",
    sends="its model; before its first round gradients of the discriminators",
    defaults="the authors' scripts for C; the discriminators' training is ours",
    separating={"trade": 1.0},
    advice="trade, the constant C: lower it for more coalitions, raise it for fewer",
)
def fedcollab(
    task: Task,
    *,
    trade: Annotated[Scalar, NOT_NEGATIVE] = 10.0,
    coalitions: Annotated[int, COUNT] = 10,
    starts: Annotated[int, COUNT] = 20,
    steps: Annotated[int, COUNT] = 200,
    rate: Annotated[Scalar, POSITIVE] = 0.1,
    examples: Annotated[int, COUNT] = 500,
) -> Algorithm:
    """FedAvg in coalitions, which are found from divergences and sizes before the first round.

    For each pair of clients a discriminator learns to tell their examples (x, y) apart; from its
    accuracy follows the divergence of their data, see `estimate_divergences`. The coalitions are
    those of the smallest mean bound of the clients' errors, trade / sqrt(m_S) plus the mean
    divergence from the coalition S weighted by size, that a search finds, see `kernels.coalitions`.
    m_S is the number of training examples of the coalition. Then each coalition is a federation of
    its own.

    State: record = `Record`; server = the models of the coalitions [K, ...]. Metrics: the number of
    `coalitions` of the cohort.

    Args:
      task: the model and its training.
      trade: the constant C of the paper, what few examples cost against divergences, which lie
        between 0 and 1. The authors' scripts have 10 and, for CIFAR-100, 8.
      coalitions: K, the largest number of coalitions.
      starts: searches for the coalitions, each with another order of the clients; 100 in the
        authors' code.
      steps: of SGD for each discriminator; C clients have C (C - 1) / 2 discriminators.
      rate: learning rate of the discriminators.
      examples: at most so many of each client serve the estimation, half of them for the accuracy.

    Differs: beyond its abstract the paper was not at hand; bound, divergence and search are those
    of the authors' code. Its discriminator has a hidden layer of 200 (here 64), or a ResNet that
    was trained before; it takes up to 2,000 steps of rate .01 until the held-out accuracy has not
    grown for 100 of them, and its best value counts; here the value after the last step counts,
    which is not biased upward. All of its clients train on half as many examples as the smallest
    one has, here on half of their own. The authors' search draws a new order in each pass, and does
    not limit the number of coalitions. The estimation is an exchange of all clients before round 0,
    which `init` does with the data of all of them at hand. It does not pass the task's upload, so
    attacks, noise and compression do not reach it, and counts in `up` and `down` of a client's
    first round.
    The gradients of discriminators, `steps` for each other client, are not counted in `batches`,
    which is of the model.

    Example:
      >>> _, info = one_round(fedcollab(task, trade=1.0))
      >>> info.weights.shape, list(info.metrics)
      ((4, 4), ['coalitions'])
    """
    fit = task.trainer(data_loss(task.problem))

    # One program: operation by operation, it takes twice as long to compile.
    @jax.jit
    def init(key: PRNGKey, train: Dataset) -> tuple[tuple, ServerState]:
        sizes = jnp.sum(train.mask > 0, axis=1)
        divergences = estimate_divergences(
            key, task.problem, train, steps=steps, rate=rate, most=examples
        )
        coalition, _ = find_coalitions(
            stream(key, "evaluate"),
            divergences.matrix,
            sizes,
            trade,
            coalitions=coalitions,
            starts=starts,
        )
        record = Record(
            coalition,
            jnp.full_like(coalition, divergences.up),
            jnp.full_like(coalition, divergences.down),
        )
        models = tree.broadcast(task.problem.init(key), coalitions)
        return (), ServerState(models, record)

    def download(state: ServerState) -> Down:
        return Down(each=tree.take(state.server, state.record.coalition))

    def client(key: PRNGKey, memory: tuple, down: Down, cohort: Cohort) -> Turn[tuple]:
        _, up, report = train_and_send(fit, key, down.each, None, cohort)
        return (), up, report

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        coalition, up, down = state.record
        # FedAvg in each coalition; one without a model that arrived keeps its own.
        weights = leave_out(coalition_weights(coalition, uploads.sizes), uploads.reported)
        mixed = mix(weights, uploads.received)
        present = coalition[None] == jnp.arange(coalitions)[:, None]  # [K, M]
        reported = present & uploads.reported[None]
        of_member = tree.take(mixed, jnp.argmax(reported, axis=1))
        models = tree.choose(reported.any(axis=1), of_member, state.server)
        nothing = jnp.zeros_like(up)
        return Outcome(
            ServerState(models, Record(coalition, nothing, nothing)),
            weights=weights,
            metrics={"coalitions": present.any(axis=1).sum().astype(float)},
            joining=Joining(up, down),
        )

    def deploy(memory: tuple, down: Down, cohort: Cohort) -> Params:
        return down.each

    return compose(task, Wire(init, (Exchange(client, server),), deploy, download))


class Examples(NamedTuple):
    """What discriminators see of the clients' examples; in random order, some of each client."""

    # [C, E, F] standardised numbers
    x: Float[Array, "c e f"]
    # [C, E, K] labels
    y: Float[Array, "c e k"]
    # [C, E] which count
    real: Bool[Array, "c e"]


class Divergences(NamedTuple):
    """An estimate for all pairs of clients, and what it has cost."""

    # [C, C] from 0, for data that cannot be told apart, to 1; symmetric, with a zero diagonal
    matrix: Float[Array, "c c"]
    # floats that each client sends and receives for it, at most 2^31 - 1
    up: int
    down: int


def take_examples(key: PRNGKey, problem: Problem, train: Dataset, most: int) -> Examples:
    """Some examples of each client as numbers.

    Numbers are flattened, and projected at random to 256 if there are more; each of them has mean 0
    over the clients. x of a signed whole-number type holds ids, of words for example: their numbers
    in 256 bins count, where an id has the bin id mod 256. Whole-number labels are one-hot, in the
    unit of the authors' code; other targets are numbers.

    Args:
      key: for the choice and for the projection.
      problem: its model says how many classes there are.
      train: the clients' examples [C, n, ...].
      most: of how many examples of each client.

    Example:
      >>> examples = take_examples(jax.random.key(0), task.problem, cohort.train, 5)
      >>> examples.x.shape, examples.y.shape
      ((4, 5, 8), (4, 5, 2))
    """
    clients, n = train.mask.shape
    check(
        is_ragged(train.x) or hasattr(train.x, "shape"),
        "divergences of clients are those of examples of one array, and these have several: choose "
        "another algorithm for this data",
    )
    count = min(most, n)
    feature = int(np.prod(train.x.shape[2:]))
    ids = jnp.issubdtype(train.x.dtype, jnp.signedinteger)
    classes = class_count(problem, train)
    labels = has_classes(problem, train)
    check(
        train.y.ndim == 2 or not jnp.issubdtype(train.y.dtype, jnp.integer),
        "divergences of clients are those of examples with one label or with numbers, and these "
        "have a label for each position: choose another algorithm for this data",
    )
    project = jax.random.normal(stream(key, "server"), (feature, WIDTH)) / np.sqrt(feature)

    def of_client(key: PRNGKey, data: Dataset) -> tuple[Array, Array, Array]:
        rows, real = minibatches(key, data.mask > 0, count, steps=1)
        index = (rows[0],)
        x = read(data.x, index, real.any()).reshape(count, feature)
        y = read(data.y, index, real.any())
        if ids:
            x = (jax.nn.one_hot(x % WIDTH, WIDTH) * (x >= 0)[..., None]).sum(axis=1)
        elif feature > WIDTH:
            x = jnp.matmul(x.astype(jnp.float32), project, precision="highest")
        y = jax.nn.one_hot(y, classes) if labels else y.reshape(count, -1)
        return x.astype(jnp.float32), y.astype(jnp.float32), real[0]

    keys = client_keys(stream(key, "fit"), jnp.arange(clients))
    x, y, real = over_clients(of_client, "auto")(keys, train)
    unit = classes / np.sqrt(max(classes - 1, 1))
    return Examples(standardise(x, real), unit * y if labels else standardise(y, real), real)


def standardise(x: Float[Array, "c e f"], real: Bool[Array, "c e"]) -> Float[Array, "c e f"]:
    """Numbers with mean 0 and a deviation of about 1 over all examples that count.

    A number that hardly varies stays smaller. Clients with numbers that are not finite do not count
    in the means.

    Args:
      x: [C, E, F].
      real: which examples count [C, E].

    Example:
      >>> standardise(jnp.array([[[1.0]], [[3.0]]]), jnp.ones((2, 1), bool)).round(1).tolist()
      [[[-0.9]], [[0.9]]]
    """
    sound = jnp.isfinite(jnp.where(real[..., None], x, 0.0)).all(axis=(1, 2))
    counts = (real & sound[:, None])[..., None]
    total = jnp.maximum(counts.sum(), 1)
    mean = jnp.where(counts, x, 0.0).sum(axis=(0, 1), keepdims=True) / total
    squares = jnp.where(counts, x - mean, 0.0) ** 2
    spread = jnp.sqrt(squares.sum(axis=(0, 1), keepdims=True) / total)
    return (x - mean) / (spread + 0.1 * spread.mean() + 1e-6)


def discriminator(key: PRNGKey, features: int, labels: int) -> Params:
    """A network with a hidden layer of 64 that x and y enter, and one output.

    Example:
      >>> tree.size(discriminator(jax.random.key(0), 8, 2))
      769
    """
    of_x, of_y, of_hidden = jax.random.split(key, 3)
    return {
        "x": jax.random.normal(of_x, (features, HIDDEN)) / np.sqrt(features),
        "y": jax.random.normal(of_y, (labels, HIDDEN)) / np.sqrt(labels),
        "bias": jnp.zeros(HIDDEN),
        "out": jax.random.normal(of_hidden, (HIDDEN,)) / np.sqrt(HIDDEN),
        "out_bias": jnp.zeros(()),
    }


def logits(model: Params, x: Float[Array, "b f"], y: Float[Array, "b k"]) -> Float[Array, "b"]:
    """Positive where the discriminator says that an example is the second client's [B]."""
    hidden = x @ model["x"] + EMPHASIS * (y @ model["y"]) + model["bias"][None]
    return jax.nn.relu(hidden) @ model["out"] + model["out_bias"]


def estimate_divergences(
    key: PRNGKey,
    problem: Problem,
    train: Dataset,
    *,
    steps: int = 200,
    rate: Scalar = 0.1,
    most: int = 500,
) -> Divergences:
    """The divergence of the data of each pair of clients: d = max(a_i + a_j - 1, 0).

    The clients of a pair train a discriminator of their examples (x, y) on one half of them, with
    as many of either client in a batch. a_i is the share of the other half of client i's examples
    whose owner it names. So d is half an A-distance of the joint distributions, as the authors'
    code has it (Bao et al., 2023, https://arxiv.org/abs/2306.06508). A client whose examples are
    not finite has divergence 1 from all others.

    All discriminators are one program; 32 pairs are computed side by side.

    Args:
      key: for the choice of examples and of batches, and the first discriminator.
      problem: see `take_examples`.
      train: the clients' examples [C, n, ...].
      steps: of SGD, each on 32 examples of either client.
      rate: learning rate.
      most: how many examples of each client take part.

    Returns:
      The matrix, and what the estimation sends: in each step and for each other client, a
      client receives the discriminator and sends a gradient, and then receives the trained
      discriminator and sends its share. Sums for means and deviations are included.

    Example:
      >>> result = estimate_divergences(jax.random.key(0), task.problem, cohort.train, steps=5)
      >>> result.matrix.shape, result.up > result.down / 2
      ((4, 4), True)
    """
    examples = take_examples(key, problem, train, most)
    clients, count, features = examples.x.shape
    # Every second example of the random order is held out.
    learns = jnp.arange(count) % 2 == 0
    keys = client_keys(stream(key, "second_fit"), jnp.arange(clients))
    rows, counts = jax.vmap(lambda key, real: minibatches(key, real & learns, BATCH, steps=steps))(
        keys, examples.real
    )
    held_out = examples.real & ~learns[None]
    start = discriminator(stream(key, "third_fit"), features, examples.y.shape[-1])
    optimizer = optax.sgd(rate)

    def loss(model: Params, client: Array, step: Array, sign: float) -> Array:
        row, real = rows[client, step], counts[client, step]
        output = logits(model, examples.x[client][row], examples.y[client][row])
        errors = jnp.where(real, jax.nn.softplus(sign * output), 0.0)
        return errors.sum() / jnp.maximum(real.sum(), 1)

    def error_share(model: Params, client: Int[Array, ""], sign: float) -> Float[Array, ""]:
        """The share of a client's held-out examples that are taken for the other's."""
        output = sign * logits(model, examples.x[client], examples.y[client])
        mask = held_out[client]
        wrong = jnp.where(mask, (output > 0) + 0.5 * (output == 0), 0.0).sum()
        share = jnp.where(mask.any(), wrong / jnp.maximum(mask.sum(), 1), 0.5)
        finite = jnp.isfinite(jnp.where(mask, output, 0.0)).all()
        return jnp.where(finite, share, 0.0)

    def of_pair(pair: tuple[Array, Array]) -> Float[Array, ""]:
        one, other = pair

        def step(carry: tuple, number: Array) -> tuple[tuple, None]:
            model, opt_state = carry
            grads = jax.grad(
                lambda model: (loss(model, one, number, 1.0) + loss(model, other, number, -1.0)) / 2
            )(model)
            updates, opt_state = optimizer.update(grads, opt_state, model)
            return (optax.apply_updates(model, updates), opt_state), None

        (model, _), _ = lax.scan(step, (start, optimizer.init(start)), jnp.arange(steps))
        return 1.0 - error_share(model, one, 1.0) - error_share(model, other, -1.0)

    first, second = np.triu_indices(clients, 1)
    matrix = jnp.zeros((clients, clients))
    if first.size:
        # Parts of equal size are one program; the last part may repeat some pairs.
        parts = -(-first.size // PAIRS)
        places = np.resize(np.arange(first.size), (parts, -(-first.size // parts)))
        pairs = (jnp.asarray(first[places]), jnp.asarray(second[places]))
        values = lax.map(jax.vmap(of_pair), pairs).ravel()[: first.size]
        matrix = matrix.at[first, second].set(jnp.clip(values, 0.0, 1.0))
    floats, others = tree.size(start), clients - 1
    width = 0 if has_classes(problem, train) else examples.y.shape[-1]
    means = 2 * (features + width)
    return Divergences(
        matrix + matrix.T,
        up=min(others * (steps * floats + 1) + means + 1, INT32_MAX),
        down=min(others * (steps + 1) * floats + means, INT32_MAX),
    )


def has_classes(problem: Problem, train: Dataset) -> bool:
    """Whether the targets are classes, a whole number for each example, of several.

    Example:
      >>> has_classes(task.problem, cohort.train)
      True
    """
    return has_labels(problem, train) and class_count(problem, train) > 1
