"""One epoch of clients of different sizes; arguments are those of `benchmarks.peers.unequal`.

The plain PyTorch loop of `torch_fedavg`, whose environment it needs.
"""

import numpy as np
import torch

from benchmarks.peers.torch_fedavg import average
from benchmarks.peers.torch_loop import lenet
from benchmarks.peers.unequal import clients_of, ms_of_batch, unequal_from_arguments
from benchmarks.peers.work import print_json, timed


def main() -> None:
    """Runs rounds and prints the best."""
    work = unequal_from_arguments()
    net = lenet(32, 3)
    data = [
        (torch.from_numpy(x).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(y))
        for x, y in clients_of(work)
    ]
    rng = np.random.default_rng(0)

    def orders(n: int) -> list[np.ndarray]:
        return np.split(rng.permutation(n), range(work.batch, n, work.batch))

    print_json(
        ms=ms_of_batch(timed(lambda: average(net, data, orders)), work), version=torch.__version__
    )


if __name__ == "__main__":
    main()
