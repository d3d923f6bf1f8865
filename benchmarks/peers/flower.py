"""One round of federated averaging by Flower: `python -m benchmarks.peers.flower 100 16 20`.

Environment: `pip install "flwr[simulation]==1.42.0" torch==2.13.0` (PyTorch's CPU build; Python
3.11 or 3.12). Flower's simulation on Ray has an actor for each core; after `cuda lenet`, a sixth
argument is another number of actors. They share the GPU. An actor puts all data on its device when
it first trains, in the warm-up round.
"""

import math
import os
import sys
import time
from importlib.metadata import version

os.environ |= {
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers.torch_loop import net_on, tensors, train, use
from benchmarks.peers.work import (
    ROUNDS,
    Work,
    batches,
    ms,
    place_from_arguments,
    print_json,
    work_from_arguments,
)


class Watched(FedAvg):
    """Federated averaging that notes when each round ends."""

    def __init__(self):
        super().__init__(fraction_evaluate=0.0)
        self.ends = [time.perf_counter()]

    def aggregate_train(self, server_round, replies):
        """The mean; a failed client ends the benchmark."""
        replies = list(replies)
        assert not any(reply.has_error() for reply in replies)
        found = super().aggregate_train(server_round, replies)
        self.ends.append(time.perf_counter())
        return found


def client_app(work: Work, device: str, model: str) -> ClientApp:
    """The program of a client."""
    app = ClientApp()

    @app.train()
    def fit(message: Message, context: Context) -> Message:
        place = int(context.node_config["partition-id"])
        use(device)
        x, y = [tensors(number, device) for number in range(work.clients)][place]
        net = net_on(device, model)
        net.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
        train(net, x, y, batches(len(y), work, np.random.default_rng()))
        found = {
            "arrays": ArrayRecord(net.state_dict()),
            "metrics": MetricRecord({"num-examples": len(y)}),
        }
        return Message(content=RecordDict(found), reply_to=message)

    return app


def backend(actors: int, device: str) -> dict:
    """The settings of Ray for this number of actors; each has an equal share of the GPU."""
    share = {"num_cpus": 1.0}
    whole = {"num_cpus": actors, "include_dashboard": False}
    if device == "cuda":
        share["num_gpus"] = math.floor(1e4 / actors) / 1e4  # Ray counts in 1e-4
        whole["num_gpus"] = 1
    return {"client_resources": share, "init_args": whole}


def main() -> None:
    """Runs rounds and prints the best."""
    work = work_from_arguments()
    device, model = place_from_arguments()
    actors = int(sys.argv[6]) if len(sys.argv) > 6 else os.cpu_count() or 1
    server = ServerApp()
    strategy = Watched()

    @server.main()
    def rounds(grid: Grid, context: Context) -> None:
        initial = ArrayRecord(net_on("cpu", model).state_dict())
        strategy.start(grid=grid, initial_arrays=initial, num_rounds=ROUNDS)

    run_simulation(
        server,
        client_app(work, device, model),
        num_supernodes=work.clients,
        backend_config=backend(actors, device),
    )
    seconds = np.diff(strategy.ends).tolist()
    assert len(seconds) == ROUNDS
    print_json(
        ms=ms(seconds, work),
        version=f"{version('flwr')}, ray {version('ray')}, torch {torch.__version__}",
        actors=actors,
    )


if __name__ == "__main__":
    main()
