"""Local training of adapters on a frozen vision transformer: PyTorch, one client after another.

`python -m benchmarks.peers.torch_adapters BATCH STEPS CLIENTS FILE` prints milliseconds per client
step as JSON. FILE is an npz file of `benchmarks.rounds.adapters`: the frozen weights, images, and
what jaxfl makes of them, with which the outputs and some steps of training are compared before
anything is timed. Environment: that of `torch_loop`.

All clients share the frozen weights, and the attention is PyTorch's own. There is no data loader.
"""

import multiprocessing
import os
import sys

import numpy as np
import torch
from torch import nn

from benchmarks.peers.torch_loop import sgd
from benchmarks.peers.work import Work, batches, ms, print_json, timed

WIDTH, DEPTH, HEADS, PATCH = 192, 12, 3, 4
LAYERS = ("qkv", "out", "up", "down")
# Largest difference from jaxfl, in units of the largest number.
TOLERANCE = 1e-3

Tensors = dict[str, torch.Tensor]


class Adapters(nn.Module):
    """What a client trains: A and B of each dense layer of the blocks, and the head.

    Args:
      given: by their paths as jaxfl has them.
    """

    def __init__(self, given: Tensors):
        super().__init__()
        # PyTorch's names have no slashes; dots are for modules.
        self.of = nn.ParameterDict(
            {path.replace("/", "-"): nn.Parameter(array.clone()) for path, array in given.items()}
        )

    def __getitem__(self, path: str) -> torch.Tensor:
        return self.of[path.replace("/", "-")]


class FrozenViT(nn.Module):
    """ViT-Tiny for images 32x32x3 with weights that are not trained.

    Args:
      weights: by their paths as jaxfl has them; kernels [in, out].
    """

    def __init__(self, weights: Tensors):
        super().__init__()
        self.weights = {
            path: (array.T if path.endswith("kernel") else array).contiguous()
            for path, array in weights.items()
        }

    def forward(self, x: torch.Tensor, adapters: Adapters) -> torch.Tensor:
        """[n, 3, 32, 32] -> logits [n, 10]."""
        count = len(x)
        x = nn.functional.unfold(x, PATCH, stride=PATCH)  # [n, 3 * 4 * 4, tokens]
        x = x.unflatten(1, (3, PATCH * PATCH)).permute(0, 3, 2, 1).flatten(2)
        x = self.dense("patches", x)
        x = torch.cat([self.weights["params/class"].expand(count, -1, -1), x], dim=1)
        x = x + self.weights["params/position"]
        for number in range(DEPTH):
            block = f"block{number}"
            inside = self.normalised(f"{block}/norm1", x)
            qkv = self.adapted(f"{block}/qkv", inside, adapters)
            qkv = qkv.unflatten(2, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)
            query, key, value = qkv.unbind()
            mixed = nn.functional.scaled_dot_product_attention(query, key, value)
            x = x + self.adapted(f"{block}/out", mixed.transpose(1, 2).flatten(2), adapters)
            inside = self.normalised(f"{block}/norm2", x)
            inside = nn.functional.gelu(self.adapted(f"{block}/up", inside, adapters))
            x = x + self.adapted(f"{block}/down", inside, adapters)
        x = self.normalised("norm", x)[:, 0]
        return x @ adapters["params/head/kernel"] + adapters["params/head/bias"]

    def dense(self, layer: str, x: torch.Tensor) -> torch.Tensor:
        """A frozen layer."""
        kernel, bias = (self.weights[f"params/{layer}/{name}"] for name in ("kernel", "bias"))
        return nn.functional.linear(x, kernel, bias)

    def adapted(self, layer: str, x: torch.Tensor, adapters: Adapters) -> torch.Tensor:
        """A frozen layer with what its adapter adds."""
        a, b = (adapters[f"lora/{layer}/{name}"] for name in "ab")
        return self.dense(layer, x) + x @ a @ b

    def normalised(self, layer: str, x: torch.Tensor) -> torch.Tensor:
        """Layer normalisation."""
        scale, bias = (self.weights[f"params/{layer}/{name}"] for name in ("scale", "bias"))
        return nn.functional.layer_norm(x, (WIDTH,), scale, bias, 1e-6)


def read(file: str) -> dict[str, Tensors]:
    """The groups of arrays in a file: frozen, adapters, images, labels, logits, trained."""
    found: dict[str, Tensors] = {}
    with np.load(file) as arrays:
        for name in arrays.files:
            group, _, path = name.partition(":")
            found.setdefault(group, {})[path] = torch.from_numpy(arrays[name])
    return found


def train(
    net: FrozenViT, adapters: Adapters, x: torch.Tensor, y: torch.Tensor, orders: list[np.ndarray]
) -> None:
    """One step for each batch of row numbers."""
    optimizer = sgd(adapters.parameters())
    for rows in map(torch.from_numpy, orders):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x[rows], adapters), y[rows]).backward()
        optimizer.step()


def difference(file: str) -> float:
    """The largest difference from jaxfl's logits and trained adapters, relative to the largest."""
    given = read(file)
    net, adapters = FrozenViT(given["frozen"]), Adapters(given["adapters"])
    x, y = channels_first(given["batch"]["x"]), given["batch"]["y"].long()
    with torch.no_grad():
        logits = net(x, adapters)
    found = [relative(logits, given["batch"]["logits"])]
    steps = int(given["batch"]["steps"])
    train(net, adapters, x, y, [np.arange(len(x))] * steps)
    for path, array in given["trained"].items():
        start = given["adapters"][path]
        found.append(relative(adapters[path].detach() - start, array - start))
    return max(found)


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference in units of the largest expected number."""
    return float((found - expected).abs().max() / expected.abs().max())


def channels_first(x: torch.Tensor) -> torch.Tensor:
    """[n, h, w, c] -> [n, c, h, w]."""
    return x.permute(0, 3, 1, 2).contiguous()


def client_step_ms(batch: int, steps: int, clients: int, file: str, repeats: int = 2) -> float:
    """Milliseconds of one SGD step of one client, best of several rounds of all clients."""
    given = read(file)
    net = FrozenViT(given["frozen"])
    rng = np.random.default_rng(0)
    rows = 64
    torch.manual_seed(0)
    x = torch.randn(clients, rows, 3, 32, 32)
    y = torch.randint(0, 10, (clients, rows))
    every = [Adapters(given["adapters"]) for _ in range(clients)]
    work = Work(clients, batch, steps)

    def one_round():
        for i, adapters in enumerate(every):
            train(net, adapters, x[i], y[i], list(batches(rows, work, rng)))

    return ms(timed(one_round, repeats + 1), work)


def process_per_core_ms(*case: object) -> float:
    """Milliseconds per client step of one single-threaded process per core, all at once."""
    cores = os.cpu_count() or 1
    with multiprocessing.get_context("spawn").Pool(cores, torch.set_num_threads, (1,)) as pool:
        return max(pool.starmap(client_step_ms, [case] * cores, chunksize=1)) / cores


if __name__ == "__main__":
    file = sys.argv[4]
    if (apart := difference(file)) > TOLERANCE:
        sys.exit(f"the outputs or the steps differ from those of jaxfl by {apart:.1e}")
    batch, steps, clients = map(int, sys.argv[1:4])
    case = batch, steps, clients, file
    threads = client_step_ms(*case)
    processes = process_per_core_ms(*case)
    print_json(difference=apart, threads=threads, processes=processes, version=torch.__version__)
