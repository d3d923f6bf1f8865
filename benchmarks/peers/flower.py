"""One round of federated averaging by Flower: `python -m benchmarks.peers.flower 100 16 20`.

Environment: `pip install "flwr[simulation]==1.41.0" torch==2.13.0` (PyTorch's CPU build; Python
3.11 or 3.12). Flower's simulation on Ray has an actor for each core. An actor makes all data when
it first trains, in the warm-up round.
"""

import os
import time
from importlib.metadata import version

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers.torch_loop import lenet, tensors, train
from benchmarks.peers.work import ROUNDS, Work, batches, ms, print_json, work_from_arguments


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


def client_app(work: Work) -> ClientApp:
    """The program of a client."""
    app = ClientApp()

    @app.train()
    def fit(message: Message, context: Context) -> Message:
        place = int(context.node_config["partition-id"])
        x, y = [tensors(number) for number in range(work.clients)][place]
        net = lenet(32, 3)
        net.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
        train(net, x, y, batches(len(y), work, np.random.default_rng()))
        found = {
            "arrays": ArrayRecord(net.state_dict()),
            "metrics": MetricRecord({"num-examples": len(y)}),
        }
        return Message(content=RecordDict(found), reply_to=message)

    return app


def main() -> None:
    """Runs rounds and prints the best."""
    work = work_from_arguments()
    server = ServerApp()
    strategy = Watched()

    @server.main()
    def rounds(grid: Grid, context: Context) -> None:
        strategy.start(
            grid=grid, initial_arrays=ArrayRecord(lenet(32, 3).state_dict()), num_rounds=ROUNDS
        )

    cores = os.cpu_count()
    backend = {"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": cores}}
    run_simulation(server, client_app(work), num_supernodes=work.clients, backend_config=backend)
    seconds = np.diff(strategy.ends).tolist()
    assert len(seconds) == ROUNDS
    print_json(
        ms=ms(seconds, work),
        version=f"{version('flwr')}, ray {version('ray')}, torch {torch.__version__}",
    )


if __name__ == "__main__":
    main()
