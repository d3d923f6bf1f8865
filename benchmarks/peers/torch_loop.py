"""Local training as in most scripts: PyTorch, one client after another, one step at a time.

`python -m benchmarks.peers.torch_loop lenet 32 16` prints milliseconds per client step as JSON; a
fourth argument `cuda` is for a GPU. Environment: `pip install torch==2.13.0` (the CPU build). There
is no data loader: batches are rows of a tensor in memory, so this is the fastest form of such a
loop.
"""

import functools
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import nn

from benchmarks.peers.work import (
    DECAY,
    LEARNING_RATE,
    LONGEST,
    MOMENTUM,
    Work,
    batches,
    client,
    ms,
    print_json,
    timed,
)


def lenet(side: int, channels: int) -> nn.Module:
    """MOON's LeNet."""
    flat = 16 * ((side - 4) // 2 // 2 - 2) ** 2
    return nn.Sequential(
        *(
            nn.Conv2d(channels, 6, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ),
        *(
            nn.Flatten(),
            nn.Linear(flat, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, 10),
        ),
    )


def three(side: int, channels: int) -> nn.Module:
    """Three convolutions (5x5x32, 3x3x64, 3x3x64, same padding) with pooling; two dense layers."""
    layers = []
    width = channels
    for kernel, out in ((5, 32), (3, 64), (3, 64)):
        layers += [nn.Conv2d(width, out, kernel, padding=kernel // 2), nn.ReLU(), nn.MaxPool2d(2)]
        width = out
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(64 * (side // 8) ** 2, 128), nn.ReLU(), nn.Linear(128, 10)
    )


def cedar6(side: int, channels: int) -> nn.Module:
    """FedCedar's network: three stages of two 3x3 convolutions, and two dense layers.

    The first convolution of a stage is normalised.
    """
    layers = []
    width = channels
    for stage in ((32, 64), (128, 128), (256, 256)):
        for number, out in enumerate(stage):
            layers.append(nn.Conv2d(width, out, 3, padding=1))
            layers += [nn.GroupNorm(8, out), nn.ReLU()] if number == 0 else [nn.ReLU()]
            width = out
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(256 * (side // 8) ** 2, 512), nn.ReLU(), nn.Linear(512, 10)
    )


class Residual(nn.Module):
    """Two convolutions, each normalised, beside a shortcut."""

    def __init__(self, width: int, out: int, stride: int):
        super().__init__()
        self.branch = nn.Sequential(
            *normalised(width, out, 3, stride), nn.ReLU(), *normalised(out, out, 3)
        )
        self.shortcut = nn.Sequential(*(normalised(width, out, 1, stride) if stride > 1 else ()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, width, h, w] -> [n, out, h / stride, w / stride]."""
        return nn.functional.relu(self.branch(x) + self.shortcut(x))


def normalised(width: int, out: int, kernel: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    """A convolution without bias, and group normalisation."""
    return (
        nn.Conv2d(width, out, kernel, stride, kernel // 2, bias=False),
        nn.GroupNorm(8, out, eps=1e-6),
    )


def resnet8(side: int, channels: int) -> nn.Module:
    """Three residual blocks with group normalisation.

    Differs: for stride 2 flax pads the right and the lower border only, PyTorch every border.
    """
    return nn.Sequential(
        *normalised(channels, 16, 3),
        nn.ReLU(),
        Residual(16, 16, 1),
        Residual(16, 32, 2),
        Residual(32, 64, 2),
        nn.AvgPool2d(side // 4),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def mlp(side: int, channels: int) -> nn.Module:
    """Three hidden layers of width 32."""
    layers = [nn.Flatten(), nn.Linear(channels * side**2, 32), nn.ReLU()]
    for _ in range(2):
        layers += [nn.Linear(32, 32), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(32, 10))


class RowByRow(nn.Module):
    """An LSTM of 64 units that reads the rows of an image in turn."""

    def __init__(self, side: int, channels: int):
        super().__init__()
        self.lstm = nn.LSTM(side * channels, 64, batch_first=True)
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, channel, h, w] -> [n, 10]."""
        return self.head(self.lstm(x.transpose(1, 2).flatten(2))[0][:, -1])


MODELS = {
    "lenet": lenet,
    "three": three,
    "cedar6": cedar6,
    "resnet8": resnet8,
    "mlp": mlp,
    "lstm": RowByRow,
}


def net_on(device: str, model: str) -> nn.Module:
    """A network for images 32x32x3, made on the device: nothing is copied to it."""
    with torch.device(device):
        return MODELS[model](32, 3)


def use(device: str) -> None:
    """Sets PyTorch up for a device: on a GPU, TF32 as JAX has it, and the fastest convolutions."""
    if device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True


def wait_for(device: str) -> None:
    """Waits until the device has done its work."""
    if device == "cuda":
        torch.cuda.synchronize()


def sgd(parameters, lr: float = LEARNING_RATE) -> torch.optim.Optimizer:
    """The optimiser of all peers."""
    return torch.optim.SGD(parameters, lr=lr, momentum=MOMENTUM, weight_decay=DECAY)


@functools.cache
def tensors(number: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """A client's data on the device, channels first."""
    x, y = client.__wrapped__(number)  # not kept twice
    channels_first = torch.from_numpy(x).permute(0, 3, 1, 2).contiguous()
    return channels_first.to(device), torch.from_numpy(y).to(device)


def train(net: nn.Module, x: torch.Tensor, y: torch.Tensor, orders: Iterable[np.ndarray]) -> None:
    """One step for each batch of row numbers."""
    optimizer = sgd(net.parameters())
    orders = list(orders)
    # One copy to the device, because each would wait for the step before.
    every = torch.from_numpy(np.concatenate(orders)).to(x.device)
    for rows in every.split([len(order) for order in orders]):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
        optimizer.step()


def client_step_ms(
    model: str,
    side: int,
    batch: int,
    clients: int = 4,
    steps: int = 20,
    repeats: int = 4,
    device: str = "cpu",
) -> float:
    """Milliseconds of one SGD step of one client, best of several rounds of all clients."""
    channels = 1 if side == 28 else 3
    use(device)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    x = torch.randn(clients, LONGEST, channels, side, side).to(device)
    y = torch.randint(0, 10, (clients, LONGEST)).to(device)
    nets = [MODELS[model](side, channels).to(device) for _ in range(clients)]
    work = Work(clients, batch, steps)

    def one_round():
        for i, net in enumerate(nets):
            train(net, x[i], y[i], batches(LONGEST, work, rng))
        wait_for(device)

    return ms(timed(one_round, repeats + 1), work)


def process_per_core_ms(step_ms: Callable[..., float], *case: object) -> float:
    """Milliseconds per client step of one single-threaded process per core, all at once.

    Args:
      step_ms: measures a case in its process.
      case: its arguments.
    """
    cores = os.cpu_count() or 1
    with multiprocessing.get_context("spawn").Pool(cores, torch.set_num_threads, (1,)) as pool:
        return max(pool.starmap(step_ms, [case] * cores, chunksize=1)) / cores


if __name__ == "__main__":
    case = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if sys.argv[4:] == ["cuda"]:
        print_json(ms=client_step_ms(*case, device="cuda"), version=torch.__version__)
        sys.exit()
    threads = client_step_ms(*case)
    processes = process_per_core_ms(client_step_ms, *case)
    print_json(
        ms=min(threads, processes), threads=threads, processes=processes, version=torch.__version__
    )
