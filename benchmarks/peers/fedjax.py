"""One round of federated averaging by FedJAX: `python -m benchmarks.peers.fedjax 100 16 20`.

Environment: `pip install fedjax==0.0.17 jax==0.10.2`; with jax 0.5.3 it takes at least 1.3 times as
long. With its jit backend FedJAX loops over clients and steps in Python and calls a compiled step.
"""

# pyright: reportAttributeAccessIssue=false
# Where FedJAX is not installed, a checker takes `fedjax` for this file.

from collections.abc import Callable
from importlib.metadata import version

import fedjax
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.peers.work import (
    DECAY,
    LEARNING_RATE,
    MOMENTUM,
    client,
    ms,
    print_json,
    timed,
    work_from_arguments,
)

jax.tree_map = jax.tree.map  # FedJAX calls it by a name that jax no longer has


def lenet(batch) -> jax.Array:
    """MOON's LeNet, 62,006 parameters."""
    x = batch["x"]
    for width in (6, 16):
        x = hk.max_pool(jax.nn.relu(hk.Conv2D(width, 5, padding="VALID")(x)), 2, 2, "VALID")
    return hk.nets.MLP((120, 84, 10))(x.reshape(x.shape[0], -1))


def federated_averaging(
    batches: fedjax.ShuffleRepeatBatchHParams,
    shape: tuple[int, ...] = (32, 32, 3),
    parameters: int = 62_006,
) -> tuple[fedjax.FederatedAlgorithm, fedjax.algorithms.fed_avg.ServerState]:
    """The algorithm and its first state, for images of this shape."""
    fedjax.set_for_each_client_backend("jit")
    example = {"x": jnp.zeros((1, *shape)), "y": jnp.zeros(1, int)}
    model = fedjax.create_model_from_haiku(
        transformed_forward_pass=hk.transform(lenet),
        sample_batch=example,
        train_loss=lambda batch, out: optax.softmax_cross_entropy_with_integer_labels(
            out, batch["y"]
        ),
    )
    sgd = optax.chain(optax.add_decayed_weights(DECAY), optax.sgd(LEARNING_RATE, MOMENTUM))
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        fedjax.model_grad(model),
        fedjax.optimizers.create_optimizer_from_optax(sgd),
        fedjax.optimizers.sgd(1.0),
        batches,
    )
    state = algorithm.init(model.init(jax.random.PRNGKey(0)))
    assert sum(x.size for x in jax.tree.leaves(state.params)) == parameters
    return algorithm, state


def rounds_of(
    clients: list[tuple[np.ndarray, np.ndarray]], batches: fedjax.ShuffleRepeatBatchHParams
) -> Callable[[], None]:
    """A function that runs the next round over the clients, each with its x and y."""
    algorithm, state = federated_averaging(batches)
    data = [fedjax.ClientDataset(dict(zip("xy", own, strict=True))) for own in clients]
    keys = jax.random.split(jax.random.PRNGKey(0), len(data))
    cohort = [(str(number), own, keys[number]) for number, own in enumerate(data)]

    def one_round():
        nonlocal state
        state, _ = algorithm.apply(state, cohort)
        jax.block_until_ready(state.params)

    return one_round


def versions() -> str:
    """The versions that run."""
    return f"{version('fedjax')}, jax {jax.__version__}"


def main() -> None:
    """Runs rounds and prints the best."""
    work = work_from_arguments()
    one_round = rounds_of(
        [client(number) for number in range(work.clients)],
        fedjax.ShuffleRepeatBatchHParams(
            batch_size=work.batch, num_epochs=None, num_steps=work.steps
        ),
    )
    print_json(ms=ms(timed(one_round), work), version=versions())


if __name__ == "__main__":
    main()
