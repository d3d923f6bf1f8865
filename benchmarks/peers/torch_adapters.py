"""Local training of adapters on a frozen vision transformer: PyTorch, one client after another.

`python -m benchmarks.peers.torch_adapters BATCH STEPS CLIENTS FILE` prints milliseconds per client
step as JSON; a fifth argument `cuda` is for a GPU. FILE is an npz file of
`benchmarks.rounds.adapters`: the frozen weights, images, and what jaxfl makes of them, with which
the outputs and some steps of training are compared before anything is timed. Environment: that of
`torch_loop`.

All clients share the frozen weights, and the attention is PyTorch's own. There is no data loader.
"""

import sys

import numpy as np
import torch
from torch import nn

from benchmarks.peers.torch_loop import process_per_core_ms, train, use, wait_for
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


def frozen_weights(given: Tensors, device: str = "cpu") -> Tensors:
    """Weights that all clients share, by their paths; kernels [in, out] become [out, in]."""
    return {
        path: (array.T if path.endswith("kernel") else array).contiguous().to(device)
        for path, array in given.items()
    }


class ViT(nn.Module):
    """ViT-Tiny for images 32x32x3, of which the adapters are trained.

    Args:
      weights: of `frozen_weights`.
      adapters: of one client.
    """

    def __init__(self, weights: Tensors, adapters: Adapters):
        super().__init__()
        self.weights = weights
        self.adapters = adapters

    def forward(self, x: torch.Tensor) -> torch.Tensor:
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
            qkv = self.adapted(f"{block}/qkv", inside)
            qkv = qkv.unflatten(2, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)
            query, key, value = qkv.unbind()
            mixed = nn.functional.scaled_dot_product_attention(query, key, value)
            x = x + self.adapted(f"{block}/out", mixed.transpose(1, 2).flatten(2))
            inside = self.normalised(f"{block}/norm2", x)
            inside = nn.functional.gelu(self.adapted(f"{block}/up", inside))
            x = x + self.adapted(f"{block}/down", inside)
        x = self.normalised("norm", x)[:, 0]
        return x @ self.adapters["params/head/kernel"] + self.adapters["params/head/bias"]

    def dense(self, layer: str, x: torch.Tensor) -> torch.Tensor:
        """A frozen layer."""
        kernel, bias = (self.weights[f"params/{layer}/{name}"] for name in ("kernel", "bias"))
        return nn.functional.linear(x, kernel, bias)

    def adapted(self, layer: str, x: torch.Tensor) -> torch.Tensor:
        """A frozen layer with what its adapter adds."""
        a, b = (self.adapters[f"lora/{layer}/{name}"] for name in "ab")
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


def difference(file: str, device: str = "cpu") -> float:
    """The largest difference from jaxfl's logits and trained adapters, relative to the largest."""
    given = read(file)
    net = ViT(frozen_weights(given["frozen"], device), Adapters(given["adapters"]).to(device))
    x, y = channels_first(given["batch"]["x"]).to(device), given["batch"]["y"].long().to(device)
    with torch.no_grad():
        logits = net(x).cpu()
    found = [relative(logits, given["batch"]["logits"])]
    steps = int(given["batch"]["steps"])
    train(net, x, y, [np.arange(len(x))] * steps)
    for path, array in given["trained"].items():
        start = given["adapters"][path]
        found.append(relative(net.adapters[path].detach().cpu() - start, array - start))
    return max(found)


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference in units of the largest expected number."""
    return float((found - expected).abs().max() / expected.abs().max())


def channels_first(x: torch.Tensor) -> torch.Tensor:
    """[n, h, w, c] -> [n, c, h, w]."""
    return x.permute(0, 3, 1, 2).contiguous()


def client_step_ms(
    batch: int, steps: int, clients: int, file: str, device: str = "cpu", repeats: int = 2
) -> float:
    """Milliseconds of one SGD step of one client, best of several rounds of all clients."""
    given = read(file)
    use(device)
    weights = frozen_weights(given["frozen"], device)
    rng = np.random.default_rng(0)
    rows = 64
    torch.manual_seed(0)
    x = torch.randn(clients, rows, 3, 32, 32).to(device)
    y = torch.randint(0, 10, (clients, rows)).to(device)
    every = [ViT(weights, Adapters(given["adapters"]).to(device)) for _ in range(clients)]
    work = Work(clients, batch, steps)

    def one_round():
        for i, net in enumerate(every):
            train(net, x[i], y[i], batches(rows, work, rng))
        wait_for(device)

    return ms(timed(one_round, repeats + 1), work)


if __name__ == "__main__":
    file = sys.argv[4]
    device = "cuda" if sys.argv[5:] == ["cuda"] else "cpu"
    # In full float32: `use` comes later.
    if (apart := difference(file, device)) > TOLERANCE:
        sys.exit(f"the outputs or the steps differ from those of jaxfl by {apart:.1e}")
    batch, steps, clients = map(int, sys.argv[1:4])
    case = batch, steps, clients, file
    found = {"difference": apart, "version": torch.__version__}
    if device == "cuda":
        print_json(ms=client_step_ms(*case, device), **found)
        sys.exit()
    print_json(
        threads=client_step_ms(*case), processes=process_per_core_ms(client_step_ms, *case), **found
    )
