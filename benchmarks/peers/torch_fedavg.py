"""One round of federated averaging: `python -m benchmarks.peers.torch_fedavg 100 16 20`.

A plain PyTorch loop without a data loader, as `torch_loop`. Further arguments `cuda resnet8` are
for a GPU and another model. Environment: `pip install torch==2.13.0` (the CPU build).
"""

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import nn

from benchmarks.peers.torch_loop import net_on, tensors, train, use, wait_for
from benchmarks.peers.work import (
    batches,
    ms,
    place_from_arguments,
    print_json,
    timed,
    work_from_arguments,
)

PARAMETERS = {"lenet": 62_006, "resnet8": 78_042, "mlp": 100_778}


def average(
    net: nn.Module,
    data: list[tuple[torch.Tensor, torch.Tensor]],
    orders: Callable[[int], Iterable[np.ndarray]],
) -> None:
    """A round: each client trains the net from its present weights; it then has their mean.

    Args:
      net: of the server.
      data: x and y of each client.
      orders: number of a client's examples -> row numbers of each of its batches.
    """
    total = sum(len(y) for _, y in data)
    start = {name: value.clone() for name, value in net.state_dict().items()}
    mean = {name: torch.zeros_like(value) for name, value in start.items()}
    for x, y in data:
        net.load_state_dict(start)
        train(net, x, y, orders(len(y)))
        for name, value in net.state_dict().items():
            mean[name] += len(y) / total * value
    net.load_state_dict(mean)


def main() -> None:
    """Runs rounds and prints the best."""
    work = work_from_arguments()
    device, model = place_from_arguments()
    use(device)
    net = net_on(device, model)
    assert sum(p.numel() for p in net.parameters()) == PARAMETERS[model]
    data = [tensors(number, device) for number in range(work.clients)]
    rng = np.random.default_rng(0)

    def one_round():
        average(net, data, lambda n: batches(n, work, rng))
        wait_for(device)

    print_json(ms=ms(timed(one_round), work), version=torch.__version__)


if __name__ == "__main__":
    main()
