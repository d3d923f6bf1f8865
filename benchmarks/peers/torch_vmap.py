"""A round with stacked clients: `python -m benchmarks.peers.torch_vmap 100 16 20`.

The models of all clients are stacked on an axis, and `torch.func.vmap` takes the gradients of
several at once, as few scripts do. It is tried for 1, 10 and all clients at once, and each of these
compiled by `torch.compile`; so is the plain loop of `torch_loop`, compiled. `ms` is that of the
fastest. Further arguments `cuda resnet8` are for a GPU and another model. Environment:
`pip install torch==2.13.0` and a C++ compiler.
"""

import functools
import sys
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from benchmarks.peers.torch_fedavg import PARAMETERS
from benchmarks.peers.torch_loop import net_on, tensors, use, wait_for
from benchmarks.peers.work import (
    DECAY,
    LEARNING_RATE,
    MOMENTUM,
    Work,
    batches,
    ms,
    place_from_arguments,
    print_json,
    timed,
    work_from_arguments,
)

Leaves = dict[str, torch.Tensor]


def one_step(
    net: nn.Module, params: Leaves, trace: Leaves, x: torch.Tensor, y: torch.Tensor
) -> tuple[Leaves, Leaves]:
    """A step of SGD of one client: its new weights and momentum."""

    def loss(params: Leaves) -> torch.Tensor:
        return nn.functional.cross_entropy(functional_call(net, params, (x,)), y)

    grads = grad(loss)(params)
    trace = {k: MOMENTUM * trace[k] + grads[k] + DECAY * params[k] for k in params}
    return {k: params[k] - LEARNING_RATE * trace[k] for k in params}, trace


def round_of(net: nn.Module, work: Work, at_once: int, compiled: bool) -> Callable[[], None]:
    """A round, which trains so many clients at once from the net's weights and averages them."""
    device, _ = place_from_arguments()
    data = [tensors(number, device) for number in range(work.clients)]
    sizes = torch.tensor([len(y) for _, y in data], dtype=torch.float32, device=device)
    rng = np.random.default_rng(0)
    step = functools.partial(one_step, net)
    step = vmap(step) if at_once > 1 else step
    step = torch.compile(step) if compiled else step
    server = {k: v.detach().clone() for k, v in net.named_parameters()}

    def train(clients: range) -> Leaves:
        """The weights of these clients after their steps, stacked."""
        orders = [np.stack(list(batches(len(data[i][1]), work, rng))) for i in clients]
        rows = [torch.from_numpy(order).to(device) for order in orders]
        if at_once == 1:
            params, trace = server, {k: torch.zeros_like(v) for k, v in server.items()}
            x, y = data[clients[0]]
            for now in rows[0]:
                params, trace = step(params, trace, x[now], y[now])
            return {k: v[None] for k, v in params.items()}
        params = {k: v.expand(len(clients), *v.shape).contiguous() for k, v in server.items()}
        trace = {k: torch.zeros_like(v) for k, v in params.items()}
        for number in range(work.steps):
            pairs = [
                (data[i][0][r[number]], data[i][1][r[number]])
                for i, r in zip(clients, rows, strict=True)
            ]
            x, y = (torch.stack(each) for each in zip(*pairs, strict=True))
            params, trace = step(params, trace, x, y)
        return params

    def one_round() -> None:
        mean = {k: torch.zeros_like(v) for k, v in server.items()}
        for first in range(0, work.clients, at_once):
            clients = range(first, min(first + at_once, work.clients))
            weights = sizes[clients.start : clients.stop] / sizes.sum()
            for k, v in train(clients).items():
                mean[k] += torch.tensordot(weights, v, 1)
        server.update(mean)
        wait_for(device)

    return one_round


def main() -> None:
    """Runs rounds in each mode and prints the best result."""
    work = work_from_arguments()
    device, model = place_from_arguments()
    use(device)
    net = net_on(device, model)
    assert sum(p.numel() for p in net.parameters()) == PARAMETERS[model]
    found = {}
    for compiled in (False, True):
        for at_once in sorted({1, min(10, work.clients), work.clients}):
            name = f"{at_once} at once" + ", compiled" * compiled
            torch.compiler.reset()
            try:
                found[name] = ms(timed(round_of(net, work, at_once, compiled)), work)
            except Exception as error:  # a mode that this version cannot do
                print(f"{name}: {str(error).splitlines()[0]}", file=sys.stderr)
    quickest = min(found, key=lambda name: found[name])
    print_json(ms=found[quickest], version=f"{torch.__version__}, {quickest}", modes=found)


if __name__ == "__main__":
    main()
