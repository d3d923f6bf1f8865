"""Federated averaging by pfl on clients on the disk.

`python -m benchmarks.peers.pfl_stored 1000` runs it. It needs the environment of `pfl`. A client's
images are read from one mapped array when the client trains.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler

from benchmarks.peers import stored
from benchmarks.peers.pfl import LeNet, seconds_of_rounds, versions


class Shuffled(Dataset):
    """A client's examples in a new order each epoch."""

    def iter(self, batch_size):
        """The batches of one epoch."""
        x, y = self.raw_data
        return ((x[rows], y[rows]) for rows in torch.randperm(len(y)).split(batch_size))


def main() -> None:
    """Runs rounds and prints the best."""
    clients = int(sys.argv[1])
    count = stored.TRAIN
    y = torch.tensor(stored.labels(count)).long()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "x.npy"
        stored.write_images(file, clients, count)

        def client(number: int) -> Shuffled:
            """Reads the client. The array is mapped anew: pages of a mapping count as memory."""
            own = np.load(file, mmap_mode="r")[number * count : (number + 1) * count]
            x = torch.tensor(own).permute(0, 3, 1, 2).float() / 255
            return Shuffled((x, y), user_id=str(number))

        net = LeNet(stored.SIDE, 1)
        assert sum(x.numel() for x in net.parameters()) == stored.LENET
        seconds = seconds_of_rounds(
            FederatedDataset(client, get_user_sampler("random", range(clients))),
            net,
            stored.COHORT,
            stored.ALL_ROUNDS,
            local_num_epochs=stored.EPOCHS,
            local_batch_size=stored.BATCH,
        )
    stored.print_round(seconds, versions())


if __name__ == "__main__":
    main()
