"""Local training the way most federated-learning scripts do it: PyTorch, one client after another, one step at a time.

`python -m benchmarks.peers.torch_loop lenet 32 16` prints milliseconds a client step as JSON. Needs torch. There is no
data loader: batches are rows of a tensor in memory, so this is the fastest form of such a loop.
"""

import json
import sys
import time

import torch
from torch import nn


def lenet(side: int, channels: int) -> nn.Module:
    """MOON's LeNet."""
    flat = 16 * ((side - 4) // 2 // 2 - 2) ** 2
    return nn.Sequential(
        *(nn.Conv2d(channels, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(flat, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


def three(side: int, channels: int) -> nn.Module:
    """Three convolutions with same padding (5x5x32, 3x3x64, 3x3x64), each pooled, and two dense layers."""
    layers, width = [], channels
    for kernel, out in ((5, 32), (3, 64), (3, 64)):
        layers += [nn.Conv2d(width, out, kernel, padding=kernel // 2), nn.ReLU(), nn.MaxPool2d(2)]
        width = out
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * (side // 8) ** 2, 128), nn.ReLU(), nn.Linear(128, 10))


def client_step_ms(model: str, side: int, batch: int, clients: int = 4, steps: int = 20, repeats: int = 7) -> float:
    """Milliseconds of one SGD step of one client, best of several rounds of all clients."""
    channels = 1 if side == 28 else 3
    torch.manual_seed(0)
    x = torch.randn(clients, 320, channels, side, side)
    y = torch.randint(0, 10, (clients, 320))
    models = [{"lenet": lenet, "three": three}[model](side, channels) for _ in range(clients)]
    best = float("inf")
    for _ in range(repeats + 1):  # the first warms up
        began = time.perf_counter()
        for i, net in enumerate(models):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-5)
            order = torch.randperm(320)
            for step in range(steps):
                rows = order[torch.arange(step * batch, (step + 1) * batch) % 320]
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(x[i, rows]), y[i, rows]).backward()
                optimizer.step()
        best = min(best, time.perf_counter() - began)
    return 1e3 * best / clients / steps


if __name__ == "__main__":
    name, side, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    print(json.dumps({"ms": client_step_ms(name, side, batch), "version": torch.__version__}))
