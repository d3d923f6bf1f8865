"""HtFLlib's methods from given models on given clients.

`python -m benchmarks.peers.htfllib FOLDER METHOD ROUNDS BATCH RATE`, where FOLDER is what
`benchmarks.rounds.several_architectures` writes: clients in HtFLlib's files, and initial models.
Prints the accuracy after the last round and the milliseconds of the best round as JSON.
Environment: that of `pfllib`, and in its folder, as `HtFLlib`, a clone of
https://github.com/TsingZ0/HtFLlib at commit e959261.

HtFLlib's own server and clients run as they are: clients in turn, each of which reads its examples
from files, and its model from a file before it trains and after. Models are jaxfl's perceptron, its
two convolutions and its linear model, each in HtFLlib's two parts, whose features are averaged to
32. A round is what HtFLlib itself times.
"""

import sys
from collections.abc import Callable
from contextlib import chdir
from functools import partial
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(sys.prefix) / "HtFLlib" / "system"))

import numpy as np
import torch
from flcore.trainmodel import models
from torch import nn

from benchmarks.peers.work import print_json

CLASSES = 10
FEATURES = 32
# HtFLlib's module and class of each method.
SERVERS = {
    "local": ("serverlocal", "Local"),
    "lg_fedavg": ("serverlg", "LG_FedAvg"),
    "fedproto": ("serverproto", "FedProto"),
    "fedtgp": ("servertgp", "FedTGP"),
    "fedgh": ("servergh", "FedGH"),
    "feddistill": ("serverfd", "FD"),
    "fml": ("serverfml", "FML"),
}


class Net(nn.Module):
    """A body and a last layer, which HtFLlib looks for under the name `fc`."""

    def __init__(self, body: nn.Module, width: int):
        super().__init__()
        self.body = body
        self.fc = nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, channel, h, w] -> [B, classes]."""
        return self.fc(self.body(x))


class Rows(nn.Module):
    """Flattens in the order of jaxfl."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, c, h, w] -> [B, h * w * c]."""
        return x.permute(0, 2, 3, 1).flatten(1)


def mlp() -> nn.Module:
    """`jaxfl.models.mlp` of images 8x8."""
    layers = [part for width in (64, 32, 32) for part in (nn.Linear(width, 32), nn.ReLU())]
    return Net(nn.Sequential(Rows(), *layers), 32)


def cnn() -> nn.Module:
    """`jaxfl.models.cnn` of images 8x8."""
    layers = [
        part
        for channels in ((1, 16), (16, 32))
        for part in (nn.Conv2d(*channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    ]
    return Net(nn.Sequential(*layers, Rows(), nn.Linear(128, 64), nn.ReLU()), 64)


def linear() -> nn.Module:
    """`jaxfl.models.linear` of images 8x8."""
    return Net(Rows(), 64)


class Begun(models.BaseHeadSplit):
    """HtFLlib's model in two parts, which begins with jaxfl's parameters."""

    def __init__(self, args: SimpleNamespace, cid: int = 0, is_global: bool = False):
        super().__init__(args, cid, is_global=is_global)
        names = ("mlp", "cnn", "linear")
        start = np.load(args.folder / f"{'linear' if is_global else names[cid % 3]}.npz")
        layers = [one for one in self.modules() if hasattr(one, "weight")]
        for number, layer in enumerate(layers):
            kernel, bias = start[f"kernel{number}"], start[f"bias{number}"]
            axes = (3, 2, 0, 1) if kernel.ndim == 4 else (1, 0)
            layer.weight.data = torch.tensor(kernel.transpose(axes))
            layer.bias.data = torch.tensor(bias)


def server_of(method: str) -> Callable:
    """HtFLlib's server of a method, whose models are those above."""
    for one in (mlp, cnn, linear):
        setattr(models, one.__name__, one)
    models.BaseHeadSplit = Begun
    # HtFLlib's own files hold whole modules.
    torch.load = partial(torch.load, weights_only=False)
    file, name = SERVERS[method]
    return getattr(__import__(f"flcore.servers.{file}", fromlist=[name]), name)


def main() -> None:
    """Runs the rounds."""
    folder, method = Path(sys.argv[1]).absolute(), sys.argv[2]
    rounds, batch, rate = int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
    torch.set_num_threads(1)
    args = SimpleNamespace(
        **{"folder": folder, "device": "cpu", "dataset": "clients", "algorithm": method},
        **{"num_classes": CLASSES, "feature_dim": FEATURES, "goal": "test", "few_shot": 0},
        **{"global_rounds": rounds, "local_epochs": 1, "batch_size": batch, "eval_gap": rounds},
        **{"local_learning_rate": rate, "join_ratio": 1.0, "random_join_ratio": False},
        **{"num_clients": len(list((folder / "dataset" / "clients" / "train").iterdir()))},
        **{"time_select": False, "time_threthold": 10000, "top_cnt": 100, "auto_break": False},
        **{"save_folder_name": "temp", "models_folder_name": ""},
        **{"client_drop_rate": 0.0, "train_slow_rate": 0.0, "send_slow_rate": 0.0},
        **{"models": ["mlp()", "cnn()", "linear()"], "global_model": "linear()"},
        # Of the methods.
        **{"lamda": 1.0, "alpha": 0.5, "beta": 0.5, "server_epochs": 100},
        **{"server_learning_rate": 0.01, "margin_threthold": 100.0},
    )
    system = folder / "system"
    system.mkdir(exist_ok=True)
    told, sys.stdout = sys.stdout, sys.stderr
    with chdir(system):
        server = server_of(method)(args, 0)
        server.train()
    sys.stdout = told
    print_json(accuracy=server.rs_test_acc[-1], ms=1e3 * min(server.Budget[1:-1]))


if __name__ == "__main__":
    main()
