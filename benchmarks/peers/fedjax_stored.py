"""Federated averaging by FedJAX on clients in SQLite.

`python -m benchmarks.peers.fedjax_stored 1000` runs it. It needs the environment of `fedjax`.
"""

# pyright: reportAttributeAccessIssue=false
# Where FedJAX is not installed, a checker takes `fedjax` for the file beside this one.

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import fedjax
import jax
import numpy as np

from benchmarks.peers import stored
from benchmarks.peers.fedjax import federated_averaging, versions
from benchmarks.peers.work import timed


def examples(clients: int) -> Iterator[tuple[bytes, dict[str, np.ndarray]]]:
    """Each client's name and training examples."""
    y = stored.labels(stored.TRAIN)
    number = 0
    for block in stored.blocks(clients, stored.TRAIN):
        for x in np.split(block, len(block) // stored.TRAIN):
            yield f"{number:07}".encode(), {"x": x, "y": y}
            number += 1


def scaled(name: bytes, own: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A client's pixels in [0, 1], and its labels."""
    return {"x": own["x"].astype(np.float32) / 255, "y": own["y"]}


def main() -> None:
    """Runs rounds and prints the best."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "clients.sqlite")
        with fedjax.SQLiteFederatedDataBuilder(file) as builder:
            builder.add_many(examples(int(sys.argv[1])))
        data = fedjax.SQLiteFederatedData.new(file).preprocess_client(scaled)
        cohort = fedjax.client_samplers.UniformGetClientSampler(data, stored.COHORT, seed=0)
        algorithm, state = federated_averaging(
            fedjax.ShuffleRepeatBatchHParams(stored.BATCH, num_epochs=stored.EPOCHS),
            (stored.SIDE, stored.SIDE, 1),
            stored.LENET,
        )

        def one_round():
            nonlocal state
            state, _ = algorithm.apply(state, cohort.sample())
            jax.block_until_ready(state.params)

        stored.print_round(timed(one_round, stored.ALL_ROUNDS), versions())


if __name__ == "__main__":
    main()
