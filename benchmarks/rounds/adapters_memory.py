"""Memory of a round of many clients with adapters on a frozen vision transformer.

`python -m benchmarks.rounds.adapters_memory local 100 16 192` prints MiB as JSON: a round of a
method with 100 clients, batches of 16 and blocks of width 192. Each case has its own process,
because the peak memory is that of a process.
"""

import ctypes
import json
import os
import subprocess
import sys
from itertools import product
from typing import NamedTuple

import jax

from benchmarks.measure import compile_round, use_all_cores, without_evaluation
from benchmarks.peers import ROOT
from benchmarks.peers.work import peak_gib, print_json, restart_peak
from benchmarks.rounds.adapters import SIDE, WIDTH, examples, frozen_weights, task_of
from jaxfl.algorithms import ALGORITHMS
from jaxfl.core import tree
from jaxfl.training.gradients import CacheSize, accumulated_gradient
from jaxfl.training.objectives import data_loss
from jaxfl.training.task import ROWS

MIB = 2**20
# The side of a patch of images of 32x32.
PATCH = 4
# The same program with few clients and hardly any numbers: the process and the code.
SMALLEST = (2, 1, 24)


class Case(NamedTuple):
    """A row."""

    method: str
    clients: int
    batch: int


CASES = (Case("local", 100, 4), Case("local", 100, 16))


class Parts(NamedTuple):
    """What must be there at once, in MiB."""

    frozen: float
    # of all clients, and as much for the optimiser's state
    adapters: float
    # of one client's step, by XLA's plan
    activations: float

    def all(self, side_by_side: int) -> float:
        """All parts, with the activations of so many clients."""
        return self.frozen + self.adapters + side_by_side * self.activations


def parts_of(clients: int, batch: int, width: int) -> Parts:
    """The parts of a case."""
    task = task_of(batch, 1, width=width)
    key = jax.random.key(0)
    params = jax.eval_shape(task.problem.init, key)
    one = tree.at(examples(1, batch), 0)
    in_parts = CacheSize(ROWS // (1 + (SIDE // PATCH) ** 2))
    gradient = jax.jit(accumulated_gradient(data_loss(task.problem), batch, in_parts))
    memory = gradient.lower(params, one, None, key).compile().memory_analysis()
    assert memory is not None  # XLA for CPUs tells its plan
    weights = frozen_weights(width)
    frozen = sum(leaf.size for path, leaf in weights.items() if "head" not in path)
    trained = tree.size(params)
    return Parts(4 * frozen / MIB, 4 * 2 * clients * trained / MIB, memory.temp_size_in_bytes / MIB)


def peak_mib(method: str, clients: int, batch: int, width: int) -> float:
    """Peak memory of this process in rounds of a method, one step a client.

    What the compiler has left on the heap is given back first.
    """
    task = task_of(batch, 1, width=width)
    train = examples(clients, batch)
    one_round, _ = compile_round(ALGORITHMS[method](task), without_evaluation(train))
    del train
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    restart_peak()
    for _ in range(2):
        jax.block_until_ready(one_round())
    return 2**10 * peak_gib()


def measure(method: str, clients: int, batch: int, width: int) -> dict[str, float]:
    """The parts of a case, their sum, and the peak, in MiB."""
    peak = peak_mib(method, clients, batch, width)
    parts = parts_of(clients, batch, width)
    return {**parts._asdict(), "all": parts.all(jax.device_count()), "peak": peak}


def in_own_process(threads: int, *case: object) -> dict[str, float]:
    """What this module prints for a case, with so many threads in the pool of XLA."""
    command = [sys.executable, "-m", "benchmarks.rounds.adapters_memory", *map(str, case)]
    environment = os.environ | {"NPROC": str(threads)}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, check=True, env=environment
    )
    return json.loads(done.stdout.splitlines()[-1])


def section(cases: tuple[Case, ...] = CASES) -> str:
    """The table."""
    cores = os.cpu_count() or 1
    pools = (cores, cores + 1)
    methods = dict.fromkeys(case.method for case in cases)
    smallest = {key: in_own_process(*key, *SMALLEST) for key in product(pools, methods)}
    rows = []
    for threads, case in product(pools, cases):
        rest = smallest[threads, case.method]
        found = in_own_process(threads, *case, WIDTH)
        ratio = (found["peak"] - rest["peak"]) / (found["all"] - rest["all"])
        sizes = (found[name] for name in ("frozen", "adapters", "activations", "all"))
        cells = [*(f"{one:.0f}" for one in (*sizes, found["peak"], rest["peak"])), f"{ratio:.2f}"]
        title = f"{case.method}, {case.clients} clients, batch {case.batch}, {threads} threads"
        rows.append(f"| {title} | {' | '.join(cells)} |")
    return TEXT.format(rows="\n".join(rows))


TEXT = """## Memory of adapters

Rounds of one step a client with the model of the section before, in a process of its own. *Frozen*
are the frozen weights; *adapters* those of all clients, twice, for the optimiser's state is as
large; *activations* what XLA plans for the gradient of one client's batch, in parts of 4; *all* the
sum, with the activations of one client on each core. *Peak* is that of the rounds, *rest* the peak
of the same program with two clients and blocks of width 24, and *ratio* the difference in units of
that of the sums. Peaks of equal processes differ by tens of MiB. The goal is a ratio of at most
1.3; on an H100 it is 0.7 ([GPU and TPU](accelerators.md#measured-on-an-h100)). With as many threads
as devices a queue of XLA is above it, which is emptied where there is one thread more, at the price
of time (`NPROC`, see [the notebook](notebook.md#memory-of-a-call-on-several-devices)).

| MiB of a round | frozen | adapters | activations | all | peak | rest | ratio |
|---|---:|---:|---:|---:|---:|---:|---:|
{rows}
"""


if __name__ == "__main__":
    with use_all_cores():
        print_json(**measure(sys.argv[1], *map(int, sys.argv[2:5])))
