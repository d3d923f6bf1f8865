"""One round of federated averaging by PFLlib: `python -m benchmarks.peers.pfllib 100 16 20`.

Environment: `pip install torch==2.13.0 torchvision calmsize cvxpy h5py matplotlib scikit-learn`
(CPU builds; Python 3.11), and in its folder, as `PFLlib`, a clone of
https://github.com/TsingZ0/PFLlib at commit d832e76. Its sister HtFLlib does not average whole
models.

PFLlib's main program runs with its defaults: clients in turn, each of which reads its file anew in
every round and has a data loader. Random images stand for CIFAR-10, in files as PFLlib's own
programs write them. LeNet stands for its CNN, and the optimizer of all peers for its SGD, which has
neither momentum nor weight decay. Clients train whole epochs, about as many as make the steps. A
round is what PFLlib itself times. It always evaluates in the first, which only warms up; an option
turns off all other evaluations.
"""

import sys
import tempfile
from collections import OrderedDict
from pathlib import Path

sys.path.insert(0, str(Path(sys.prefix) / "PFLlib" / "system"))

import numpy as np
import torch
from flcore.servers import serveravg
from flcore.trainmodel import models

from benchmarks.peers.cloned import print_rounds, run_program, whole_epochs
from benchmarks.peers.torch_loop import lenet, sgd, tensors
from benchmarks.peers.work import LEARNING_RATE, ROUNDS, work_from_arguments

FOLDER = Path(sys.prefix) / "PFLlib"


class Client(serveravg.clientAVG):
    """PFLlib's client with the optimizer of all peers."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.optimizer = sgd(self.model.parameters())


def cnn(in_features: int, num_classes: int, dim: int) -> torch.nn.Module:
    """LeNet with a head `fc`, which PFLlib looks for."""
    net = lenet(32, in_features)
    return torch.nn.Sequential(OrderedDict(base=net[:-1], fc=net[-1]))


def store(dataset: Path, data: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Writes files of each client; its test set is ten images of its training set."""
    for part, count in (("train", None), ("test", 10)):
        (dataset / part).mkdir(parents=True)
        for number, (x, y) in enumerate(data):
            examples = np.array({"x": x[:count].numpy(), "y": y[:count].numpy()})
            np.savez_compressed(dataset / part / f"{number}.npz", data=examples)


def options(clients: int, epochs: int, batch: int) -> list[str]:
    """The command line of PFLlib's main program."""
    values = {
        "device": "cpu",
        "dataset": "Cifar10",
        "model": "CNN",
        "algorithm": "FedAvg",
        "num_clients": clients,
        "batch_size": batch,
        "local_learning_rate": LEARNING_RATE,
        "local_epochs": epochs,
        # PFLlib runs one more.
        "global_rounds": ROUNDS - 1,
        "eval_gap": ROUNDS,
    }
    return [word for name, value in values.items() for word in (f"--{name}", str(value))]


def main() -> None:
    """Runs rounds and prints the best."""
    work = work_from_arguments()
    data = [tensors(number, "cpu") for number in range(work.clients)]
    epochs, steps = whole_epochs([len(y) for _, y in data], work)
    seconds = []
    train = serveravg.FedAvg.train

    def watched(server: serveravg.FedAvg) -> None:
        train(server)
        seconds.extend(server.Budget)

    serveravg.FedAvg.train = watched
    serveravg.clientAVG = Client
    models.FedAvgCNN = cnn
    with tempfile.TemporaryDirectory() as folder:
        store(Path(folder) / "dataset" / "Cifar10", data)
        # PFLlib looks for `../dataset`.
        system = Path(folder) / "system"
        system.mkdir()
        run_program(FOLDER / "system" / "main.py", system, options(len(data), epochs, work.batch))
    print_rounds(seconds, steps, FOLDER, torch.__version__)


if __name__ == "__main__":
    main()
