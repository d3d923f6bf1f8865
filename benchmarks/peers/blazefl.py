"""One round of federated averaging by BlazeFL: `python -m benchmarks.peers.blazefl 100 16 20`.

Environment: Python 3.14, `pip install "blazefl[contrib,reproducibility]==3.0.0" torch==2.13.0`. Its
threads are made for the build of Python without a global lock. Under Python 3.12 and 3.13 its code
runs if `blazefl/reproducibility/snapshot.py` begins with `from __future__ import annotations`.
Threads and processes are tried, one for each core; `ms` is that of the faster. Its own trainers
have neither momentum nor batches in memory, so the work of a worker is written here.

After `cuda lenet` threads alone are tried, as many as further arguments say: a round of BlazeFL
starts its processes anew, and on a GPU each would import PyTorch and load all data in every round.
"""

import multiprocessing
import os
import sys
import sysconfig
import tempfile
from collections.abc import Callable
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
from blazefl.core import SHMHandle, deserialize_model, serialize_model

from benchmarks.peers.torch_loop import net_on, tensors, train, use, wait_for
from benchmarks.peers.work import (
    LEARNING_RATE,
    ROUNDS,
    Work,
    batches,
    ms,
    place_from_arguments,
    print_json,
    timed,
    work_from_arguments,
)


class Selector:
    """Makes the model."""

    def select_model(self, model_name: str) -> torch.nn.Module:
        """One of the models of the PyTorch loop."""
        device, _ = place_from_arguments()
        return net_on(device, model_name)


def trained(cid: int, parameters: torch.Tensor, work: Work) -> tuple[torch.Tensor, int]:
    """The client's model after local training, as one vector, and its number of examples."""
    device, model = place_from_arguments()
    net = Selector().select_model(model)
    x, y = tensors(cid, device)
    deserialize_model(net, parameters.to(device))
    train(net, x, y, batches(len(y), work, np.random.default_rng()))
    return serialize_model(net, cpu=device == "cpu"), len(y)


class Threads(FedAvgThreadPoolClientTrainer):
    """Threads, with models in their common memory."""

    def worker(self, cid, device, payload, stop_event):
        """Trains a client."""
        return FedAvgUplinkPackage(
            cid, *trained(cid, payload.model_parameters, work_from_arguments())
        )


class Processes(FedAvgProcessPoolClientTrainer):
    """Processes, with models in shared memory; each process inherits the data."""

    @staticmethod
    def worker(config, payload, device, stop_event, *, shm_buffer: Any = None):
        """Trains a client."""
        parameters, size = trained(config.cid, payload.model_parameters, work_from_arguments())
        shm_buffer.model_parameters.copy_(parameters)
        return FedAvgProcessPoolUplinkPackage(config.cid, SHMHandle(), size)


def mode_ms(trainer, work: Work) -> float:
    """Milliseconds of a client step in the best round."""
    device, model = place_from_arguments()
    server = FedAvgBaseServerHandler(
        Selector(),
        model,
        None,
        ROUNDS,
        work.clients,
        sample_ratio=1.0,
        device=device,
        batch_size=work.batch,
        seed=0,
    )

    def one_round():
        trainer.local_process(server.downlink_package(), server.sample_clients())
        for package in trainer.uplink_package():
            server.load(package)
        wait_for(device)

    found = ms(timed(one_round), work)
    assert server.round == ROUNDS
    return found


def modes(work: Work) -> dict[str, Callable[[Path], Any]]:
    """The ways to run, by name: a function of a folder to a trainer."""
    device, model = place_from_arguments()
    cores = os.cpu_count() or 1
    options = {"device": device, "num_clients": work.clients, "dataset": None, "epochs": 1}
    options |= {"batch_size": work.batch, "lr": LEARNING_RATE, "seed": 0}

    def threads(number: int) -> Callable[[Path], Any]:
        return lambda folder: Threads(Selector(), model, num_parallels=number, **options)

    if device == "cuda":
        numbers = [int(number) for number in sys.argv[6:]] or [1, cores]
        return {f"{number} threads": threads(number) for number in numbers}
    return {
        f"{cores} processes": lambda folder: Processes(
            Selector(), model, folder, num_parallels=cores, **options
        ),
        f"{cores} threads": threads(cores),
    }


def main() -> None:
    """Runs rounds in each mode and prints the best result."""
    torch.set_num_threads(1)
    # A forked process inherits the data and torch's lazy imports; Python 3.14 would not fork.
    multiprocessing.set_start_method("fork")
    work = work_from_arguments()
    device, model = place_from_arguments()
    use(device)
    for number in range(work.clients):
        tensors(number, device)
    trained(0, serialize_model(Selector().select_model(model)), work)
    with tempfile.TemporaryDirectory() as folder:
        found = {name: mode_ms(make(Path(folder)), work) for name, make in modes(work).items()}
    quickest = min(found, key=lambda name: found[name])
    build = "free-threaded" if sysconfig.get_config_var("Py_GIL_DISABLED") else "locked"
    print_json(
        ms=found[quickest],
        version=f"{version('blazefl')} in {quickest}, {build} Python, torch {torch.__version__}",
        modes=found,
    )


if __name__ == "__main__":
    main()
