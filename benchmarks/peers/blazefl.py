"""One round of federated averaging by BlazeFL: `python -m benchmarks.peers.blazefl 100 16 20`.

Environment: Python 3.12 or 3.13, `pip install "blazefl[contrib,reproducibility]==2.0.2"
torch==2.13.0`. BlazeFL 3 needs Python 3.14; its threads are made for the build of Python without a
global lock, and the measured build has the lock. Threads and processes are tried, one for each
core; `ms` is that of the faster. Its own trainers have neither momentum nor batches in memory, so
the work of a worker is written here.
"""

import os
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from blazefl.contrib.fedavg import (
    FedAvgBaseServerHandler,
    FedAvgProcessPoolClientTrainer,
    FedAvgProcessPoolUplinkPackage,
    FedAvgThreadPoolClientTrainer,
    FedAvgUplinkPackage,
)
from blazefl.core import IPCMode, SHMHandle, deserialize_model, serialize_model

from benchmarks.peers.torch_loop import lenet, tensors, train
from benchmarks.peers.work import (
    LEARNING_RATE,
    ROUNDS,
    Work,
    batches,
    ms,
    print_json,
    timed,
    work_from_arguments,
)


class Selector:
    """Makes the model."""

    def select_model(self, model_name: str) -> torch.nn.Module:
        """LeNet."""
        return lenet(32, 3)


def trained(cid: int, parameters: torch.Tensor, work: Work) -> tuple[torch.Tensor, int]:
    """The client's model after local training, as one vector, and its number of examples."""
    net, (x, y) = lenet(32, 3), tensors(cid)
    deserialize_model(net, parameters)
    train(net, x, y, batches(len(y), work, np.random.default_rng()))
    return serialize_model(net), len(y)


class Threads(FedAvgThreadPoolClientTrainer):
    """A thread for each core."""

    def worker(self, cid, device, payload, stop_event):
        """Trains a client."""
        return FedAvgUplinkPackage(
            cid, *trained(cid, payload.model_parameters, work_from_arguments())
        )


class Processes(FedAvgProcessPoolClientTrainer):
    """A process for each core, with models in shared memory; each process inherits the data."""

    @staticmethod
    def worker(config, payload, device, stop_event, *, shm_buffer: Any = None):
        """Trains a client."""
        parameters, size = trained(config.cid, payload.model_parameters, work_from_arguments())
        shm_buffer.model_parameters.copy_(parameters)
        return FedAvgProcessPoolUplinkPackage(config.cid, SHMHandle(), size)


def mode_ms(trainer, work: Work) -> float:
    """Milliseconds of a client step in the best round."""
    server = FedAvgBaseServerHandler(
        Selector(),
        "lenet",
        None,
        ROUNDS,
        work.clients,
        sample_ratio=1.0,
        device="cpu",
        batch_size=work.batch,
        seed=0,
    )

    def one_round():
        trainer.local_process(server.downlink_package(), server.sample_clients())
        for package in trainer.uplink_package():
            server.load(package)

    found = ms(timed(one_round), work)
    assert server.round == ROUNDS
    return found


def main() -> None:
    """Runs rounds in both modes and prints the better result."""
    torch.set_num_threads(1)
    work = work_from_arguments()
    cores = os.cpu_count()
    # A forked process inherits the data and torch's lazy imports.
    for number in range(work.clients):
        tensors(number)
    trained(0, serialize_model(lenet(32, 3)), work)
    options = {
        "device": "cpu",
        "num_clients": work.clients,
        "num_parallels": cores,
        "dataset": None,
    }
    options |= {"epochs": 1, "batch_size": work.batch, "lr": LEARNING_RATE, "seed": 0}
    with tempfile.TemporaryDirectory() as name:
        folders = {"share_dir": Path(name), "state_dir": Path(name)}
        pool = Processes(Selector(), "lenet", ipc_mode=IPCMode.SHARED_MEMORY, **folders, **options)
        processes = mode_ms(pool, work)
    threads = mode_ms(Threads(Selector(), "lenet", **options), work)
    quicker = "threads" if threads < processes else "processes"
    print_json(
        ms=min(threads, processes),
        version=f"{version('blazefl')} in {quicker}, torch {torch.__version__}",
    )


if __name__ == "__main__":
    main()
