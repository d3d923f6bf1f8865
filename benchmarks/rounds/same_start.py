"""FedAvg on IID clients of CIFAR-10, and the same in a plain PyTorch loop from the same start.

`python -m benchmarks.rounds.same_start --peers DIR [--data-dir DIR] [--rounds 10] [--seeds 2]`
prints the accuracy of the global model on the test set, at the protocol of the preset
pfedgraph-homo. DIR is as for `python -m benchmarks.report`. Two programs with random numbers of
their own differ by what two seeds differ. Therefore PyTorch also begins with jaxfl's initial
weights and its split of the data; then only the order of the batches, crops and flips differ.
"""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro
from jaxtyping import PyTree

from benchmarks.measure import use_all_cores
from benchmarks.peers import run_peer
from jaxfl.experiment import Config, gather, resolve
from jaxfl.experiment.config.presets import preset
from jaxfl.experiment.session.build import build
from jaxfl.experiment.session.make_program import compile_run
from jaxfl.experiment.session.run_program import records

# Layers of `jaxfl.models.lenet` -> their places in `benchmarks.peers.torch_loop.lenet`
LAYERS = {"ConvReluPool_0": 0, "ConvReluPool_1": 3, "Dense_0": 7, "Dense_1": 9, "Dense_2": 11}
# Where PyTorch begins
STARTS = {
    "own": "PyTorch, its own initial weights and split",
    "zero_biases": "the same, biases start at zero",
    "given": "PyTorch, the initial weights and split of jaxfl",
}


def as_pytorch(params: PyTree) -> dict[str, np.ndarray]:
    """The parameters of a LeNet for images of 32x32, as PyTorch's state_dict names and orders them.

    Args:
      params: of `jaxfl.models.lenet`.
    """
    found = {}
    for name, place in LAYERS.items():
        kernel, bias = (np.asarray(params["params"][name][part]) for part in ("kernel", "bias"))
        if kernel.ndim == 4:
            weight = kernel.transpose(3, 2, 0, 1)  # [kh, kw, ci, co] -> [co, ci, kh, kw]
        elif name == "Dense_0":  # its inputs are [h, w, c] here, [c, h, w] there
            weight = kernel.reshape(5, 5, 16, -1).transpose(3, 2, 0, 1).reshape(-1, 400)
        else:
            weight = kernel.T
        found[f"{place}.weight"] = np.ascontiguousarray(weight)
        found[f"{place}.bias"] = bias
    return found


def scores(config: Config, peers: Path | None) -> dict[str, float | str]:
    """Accuracy after the last round, in %, by who trained; or why a peer did not run."""
    resolved = resolve(config)
    data = gather(resolved)
    program = compile_run(build(resolved, data))
    first = jax.tree.map(lambda x: x[0], program.deploy(program.state))
    source = data.source
    images = {name: np.asarray(getattr(source, name)) for name in ("x_train", "x_test")}
    labels = {name: np.asarray(getattr(source, name)) for name in ("y_train", "y_test")}
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "start.npz"
        arrays: dict[str, Any] = as_pytorch(first) | images | labels
        np.savez(file, parts=np.stack(data.parts[0]), **arrays)
        for start, name in STARTS.items():
            numbers = (config.rounds, config.local_steps, config.seed)
            peer = run_peer(peers, "torch_same_start", file, *numbers, start)
            found[name] = peer if isinstance(peer, str) else 100 * peer["accuracy"]
    *_, last = records(program)
    assert last.evaluation is not None
    return found | {"jaxfl": 100 * float(last.evaluation.deployed.test.mean())}


def main(
    peers: Path | None = None,
    data_dir: str | None = None,
    rounds: int = 10,
    seeds: int = 2,
    local_steps: int = 200,
) -> None:
    """Prints the table.

    Args:
      peers: folder of the peers' environments.
      data_dir: folder of the data; that of JAXFL_DATA_DIR if not given.
      rounds: communication rounds.
      seeds: how many seeds to run, one after the other.
      local_steps: local steps per round.
    """
    options: dict[str, Any] = preset("pfedgraph-homo").options | {"data_dir": data_dir}
    options |= {"rounds": rounds, "eval_every": rounds, "local_steps": local_steps}
    config = Config(**options)
    columns = [scores(replace(config, seed=seed), peers) for seed in range(seeds)]
    print(f"| after {rounds} rounds | {' | '.join(f'seed {s}' for s in range(seeds))} |")
    print(f"|---|{'---:|' * seeds}")
    for name in columns[0]:
        cells = [c if isinstance(c := column[name], str) else f"{c:.1f}" for column in columns]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    use_all_cores()
    tyro.cli(main)
