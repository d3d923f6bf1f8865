"""FedAvg as a PyTorch loop, from given initial weights on given clients or from its own.

`python -m benchmarks.peers.torch_same_start FILE ROUNDS STEPS SEED START`, where FILE is what
`benchmarks.rounds.same_start` writes (CIFAR-10, the rows of each client, initial weights) and START
one of its `STARTS`. A client trains on the first four fifths of its rows in batches of 64, with
random crops and flips. Prints the accuracy on the test set as JSON. Environment: `pip install
torch==2.13.0` (the CPU build).
"""

import sys

import numpy as np
import torch
from torch import nn

from benchmarks.peers.torch_loop import lenet, sgd
from benchmarks.peers.work import MEAN, STD, print_json

BATCH = 64
PAD = 4


def normalised(pixels: np.ndarray) -> torch.Tensor:
    """Pixels [n, h, w, 3] as a network takes them [n, 3, h, w]."""
    x = (pixels.astype(np.float32) / 255 - np.asarray(MEAN, np.float32)) / np.asarray(
        STD, np.float32
    )
    return torch.from_numpy(x.transpose(0, 3, 1, 2).copy())


def crop_flip(pixels: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
    """Random crops of the images with a black border, half of them mirrored."""
    n, height, width, _ = pixels.shape
    padded = np.pad(pixels, ((0, 0), (PAD, PAD), (PAD, PAD), (0, 0)))
    top, left = (rng.randint(0, 2 * PAD + 1, n) for _ in range(2))
    every = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(1, 2))
    crops = every[np.arange(n), top, left].transpose(0, 2, 3, 1).copy()
    flip = rng.rand(n) < 0.5
    crops[flip] = crops[flip][:, :, ::-1]
    return crops


def train(
    net: nn.Module, x: np.ndarray, y: np.ndarray, steps: int, rng: np.random.RandomState
) -> None:
    """Local training: epochs end to end, each a fresh permutation whose last batch may be short."""
    optimizer = sgd(net.parameters())
    left = np.array([], int)
    for _ in range(steps):
        if not left.size:
            left = rng.permutation(len(y))
        rows, left = left[:BATCH], left[BATCH:]
        optimizer.zero_grad()
        predicted = net(normalised(crop_flip(x[rows], rng)))
        nn.functional.cross_entropy(predicted, torch.from_numpy(y[rows]).long()).backward()
        optimizer.step()


@torch.no_grad()
def accuracy(net: nn.Module, x: torch.Tensor, y: np.ndarray) -> float:
    """The fraction of images whose largest logit is that of their label."""
    predicted = torch.cat([net(part).argmax(1) for part in x.split(500)])
    return float((predicted.numpy() == y).mean())


def main() -> None:
    """Runs the rounds."""
    file, start = sys.argv[1], sys.argv[5]
    rounds, steps, seed = map(int, sys.argv[2:5])
    arrays = np.load(file)
    rng = np.random.RandomState(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    net = lenet(32, 3)
    x, y = arrays["x_train"], arrays["y_train"]
    parts = np.array_split(rng.permutation(len(y)), len(arrays["parts"]))
    if start == "zero_biases":
        for name, value in net.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(value)
    if start == "given":
        parts = arrays["parts"]
        net.load_state_dict({name: torch.from_numpy(arrays[name]) for name in net.state_dict()})
    for _ in range(rounds):
        common = {name: value.clone() for name, value in net.state_dict().items()}
        mean = {name: torch.zeros_like(value) for name, value in common.items()}
        for part in parts:
            rows = part[: int(0.8 * len(part))]
            net.load_state_dict(common)
            train(net, x[rows], y[rows], steps, rng)
            for name, value in net.state_dict().items():
                mean[name] += value / len(parts)
        net.load_state_dict(mean)
    found = accuracy(net, normalised(arrays["x_test"]), arrays["y_test"])
    print_json(accuracy=found, version=torch.__version__)


if __name__ == "__main__":
    main()
