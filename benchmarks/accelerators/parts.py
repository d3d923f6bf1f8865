"""The parts of an accelerator session: `python -m benchmarks.accelerators.parts PART --out DIR`.

`python -m benchmarks.accelerators.session` starts each part as a process of its own, so that no
part holds memory of the device that another one needs.
"""

import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro

import jaxfl
from benchmarks.accelerators.rows import Session, measure_row
from benchmarks.measure import best_ms, compile_round, copy_gbs, product_gflops, without_evaluation
from benchmarks.peers import ROOT, run_peer
from benchmarks.rounds import adapters, adapters_memory
from benchmarks.rounds.fedavg_round import federation
from benchmarks.rounds.local_training import compile_training
from jaxfl.core.types import Dataset
from jaxfl.models.convolution.conv import Conv
from jaxfl.training.task import Compute

# How the arithmetic is done: the precision of products of float32, and the type of the model.
ARITHMETIC: dict[str, tuple[str, Compute]] = {
    "float32": ("float32", "float32"),
    "TF32": ("tensorfloat32", "float32"),
    "bfloat16": ("bfloat16", "bfloat16"),
}
CONVOLUTIONS: tuple[Conv, ...] = ("patches", "grouped")
PEER_MODELS = ("lenet", "resnet8", "mlp")
# Peers, and what they take behind the model: threads to try.
PEER_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "torch_fedavg": (),
    "flower": (),
    "blazefl": ("1", "2", "4", "16"),
}
STEPS = 10  # local steps of a round beside the peers
PROCESSES = 12  # of pytest
FIRST = ("tests/simulation/test_determinism.py", "tests/algorithms/test_contract.py")


def rates(session: Session) -> None:
    """The product rate of the device in each arithmetic, and its copy rate."""
    size, floats = (64, 2**12) if session.smallest else (8_192, 2**28)
    for name, (precision, kind) in ARITHMETIC.items():

        def product(precision: str = precision, kind: str = kind) -> dict:
            with jax.default_matmul_precision(precision):
                return {"TFLOP/s": product_gflops(size, kind) / 1e3}

        measure_row(session, "rates", {"product": name, "size": size}, product)
    measure_row(
        session, "rates", {"copy": "float32", "size": floats}, lambda: {"GB/s": copy_gbs(floats)}
    )


def rounds(session: Session) -> None:
    """A round of federated averaging by model and number of clients, as the peers have it."""
    # What tells most comes first; ResNet-8 of 1,000 clients needs more memory than a device has.
    sizes = ((2,),) if session.smallest else ((100, 10), (1_000,))
    for numbers in sizes:
        for model, clients, batch in itertools.product(PEER_MODELS, numbers, (64, 16)):
            if (model != "lenet" and batch == 16) or (model == "resnet8" and clients == 1_000):
                continue
            convolutions = ("",) if model == "mlp" else CONVOLUTIONS
            for conv in convolutions:
                case = {"model": model, "clients": clients, "batch": batch, "convolution": conv}
                measure_row(session, "rounds", case, partial(one_round, session, **case))


def one_round(
    session: Session, model: str, clients: int, batch: int, convolution: str
) -> dict[str, float]:
    """Milliseconds of a round in the best of three, and of a client step in it."""
    steps = 2 if session.smallest else STEPS
    data = without_evaluation(federation(clients))
    options = {"conv": convolution} if convolution else {}
    task = jaxfl.classification(
        getattr(jaxfl.models, model)(10, **options),
        data.train.x[0, 0],
        batch_size=batch,
        steps=steps,
    )
    run, compiling = compile_round(jaxfl.algorithms.fedavg(task), data)
    ms = best_ms(run, 3)
    return {"round ms": ms, "client step ms": ms / clients / steps, "compile s": compiling}


def steps(session: Session) -> None:
    """One local step of a LeNet over numbers of clients, batches, arithmetics and convolutions."""
    batches = (10,) if session.smallest else (64, 10)
    numbers = (2,) if session.smallest else (100, 10, 1_000)  # what tells most comes first
    count = 2 if session.smallest else 20
    for clients, batch, conv, name in itertools.product(numbers, batches, CONVOLUTIONS, ARITHMETIC):
        precision, compute = ARITHMETIC[name]
        case = {"clients": clients, "batch": batch, "arithmetic": name, "convolution": conv}

        def step(
            clients: int = clients,
            batch: int = batch,
            conv: Conv = conv,
            precision: str = precision,
            compute: Compute = compute,
        ) -> dict:
            with jax.default_matmul_precision(precision):
                train, compiling = compile_training(
                    jaxfl.models.lenet(10, conv=conv),
                    32,
                    batch,
                    clients=clients,
                    steps=count,
                    chunk="all",
                    compute=compute,
                )
            ms = best_ms(train, 3) / count
            return {"step ms": ms, "client step ms": ms / clients, "compile s": compiling}

        measure_row(session, "steps", case, step)


def peers(session: Session) -> None:
    """The rounds of `rounds` by other tools on the same device."""
    device = "cuda" if jax.default_backend() == "gpu" else "cpu"
    numbers = (2,) if session.smallest else (100, 10)
    for clients, (peer, arguments), model in itertools.product(
        numbers, PEER_ARGUMENTS.items(), PEER_MODELS
    ):
        for batch in (64, 16) if model == "lenet" else (64,):
            case = {"peer": peer, "model": model, "clients": clients, "batch": batch}

            def run(
                peer: str = peer,
                arguments: tuple[str, ...] = arguments,
                model: str = model,
                clients: int = clients,
                batch: int = batch,
            ) -> dict:
                every = (clients, batch, STEPS, device, model, *arguments)
                found = run_peer(session.peers, peer, *every)
                return {"error": f"missing ({found})"} if isinstance(found, str) else found

            measure_row(session, "peers", case, run)


def frozen(session: Session) -> None:
    """A local step of adapters on a frozen vision transformer, beside a PyTorch loop, and memory.

    The loop takes one client after another, so few of them tell its time. The peak is that of this
    process so far, so batches grow.
    """
    device = "cuda" if jax.default_backend() == "gpu" else "cpu"
    clients, batches, steps = (2, (1,), 1) if session.smallest else (100, (4, 16), 10)
    with tempfile.TemporaryDirectory() as folder:
        sample = Path(folder) / "sample.npz"
        if session.peers is not None:
            # TF32 would be too far from the peer's float32.
            with jax.default_matmul_precision("float32"):
                adapters.write_sample(sample)
        for batch in batches:
            case = {"clients": clients, "batch": batch}

            def step(batch: int = batch) -> dict:
                one = adapters.Case(batch, steps, clients)
                ms, compiling = adapters.client_step_ms(one, "all", repeats=3)
                found = {"client step ms": ms, "compile s": compiling}
                stats = jax.local_devices()[0].memory_stats()
                if stats:
                    found["peak MiB"] = stats["peak_bytes_in_use"] / 2**20
                parts = adapters_memory.parts_of(clients, batch, adapters.WIDTH)
                found["activations MiB"] = parts.activations
                found["rest MiB"] = parts.frozen + parts.adapters
                peer = run_peer(
                    session.peers, "torch_adapters", batch, steps, min(clients, 8), sample, device
                )
                return found | (peer if isinstance(peer, dict) else {"peer": peer})

            measure_row(session, "frozen", case, step)


def determinism(session: Session) -> None:
    """The tests of docs/determinism.md on this device, with and without deterministic operations.

    The tests are those that the page names, with those for every algorithm first. Tests that need
    more devices than there are skip themselves or fail, and the row says so.
    """
    page = (ROOT / "docs" / "determinism.md").read_text()
    named = sorted(set(re.findall(r"`(tests/[\w/]+\.py::\w+)`", page)))
    chosen = sorted(named, key=lambda name: not name.startswith(FIRST))
    if session.smallest:
        chosen = ["tests/simulation/test_determinism.py::test_the_page_has_sentences"]
    platform = jax.default_backend()
    for flag in ("--xla_gpu_deterministic_ops=true", ""):
        environment = os.environ | {
            "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip(),
            "JAX_PLATFORMS": "cuda,cpu" if platform == "gpu" else f"{platform},cpu",
        }
        if platform == "cpu":
            environment["JAX_PLATFORMS"] = "cpu"
        command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-m", ""]
        command += ["-n", str(min(PROCESSES, os.cpu_count() or 1))]
        for line in _lines([*command, *chosen], environment, session.ends):
            found = re.match(r"\[gw\d+\] .*?(PASSED|FAILED|SKIPPED|ERROR) (tests/\S+::.+)", line)
            if found:
                # A test's group stands behind its name.
                case = {"test": re.sub(r"@[^@\]]*$", "", found[2].strip()), "XLA_FLAGS": flag}
                measure_row(session, "determinism", case, lambda f=found: {"outcome": f[1]})
        if session.smallest or platform == "cpu":
            break


def blazefl(session: Session) -> None:
    """BlazeFL's published benchmark: 5 rounds of FedAvg over 100 clients with CIFAR-10.

    Each client has 500 images in two of 200 shards, and takes 5 epochs a round with batches of 50
    and learning rate .1. Published: 30 s for BlazeFL with threads and 93 s for Flower, the best
    settings of each, read off the figure docs/imgs/benchmark_cnn.png of BlazeFL's repository
    (https://github.com/kitsuyaazuma/blazefl), on four NVIDIA RTX 6000. Without CIFAR-10 in
    JAXFL_DATA_DIR the images are random, which changes no time.
    """
    clients, images, rounds, epochs = (2, 10, 1, 1) if session.smallest else (100, 500, 5, 5)
    case = {"clients": clients, "rounds": rounds, "epochs": epochs, "batch": 50}

    def run() -> dict:
        train, source = _cifar10_shards(clients, images)
        task = jaxfl.classification(
            jaxfl.models.lenet(10),
            train.x[0, 0],
            batch_size=50,
            epochs=epochs,
            optimizer=optax.sgd(0.1),
            scale=255.0,
        )
        one_round, compiling = compile_round(
            jaxfl.algorithms.fedavg(task), without_evaluation(train)
        )
        began = time.perf_counter()
        for _ in range(rounds):
            state = one_round()
        jax.block_until_ready(state)
        seconds = time.perf_counter() - began
        return {
            "data": source,
            "seconds": seconds,
            "compile_seconds": compiling,
            "published": "BlazeFL 30 s, Flower 93 s",
        }

    measure_row(session, "blazefl", case, run)


def table1(session: Session) -> None:
    """Cells of pFedGraph's table 1, which land in experiments/results too."""
    command = [sys.executable, "-m", "experiments.tables", "pfedgraph.table1"]
    if session.smallest:
        command += ["--only", "cifar10", "fedavg", "--scale", "smoke"]
    else:
        command += ["--budget", f"{max(int(session.ends - time.monotonic()), 1)}s"]
    wide = os.environ | {"COLUMNS": "200"}  # a line is not broken
    for line in _lines(command, wide, session.ends):
        # A cell on random data, which has no score, only runs.
        found = re.match(r"(.+): (?:(\S+) \((\d+) s\)|runs)$", line)
        if found:
            scored = {"accuracy": found[2], "seconds": int(found[3] or 0)}
            result = scored if found[2] else {"runs": "yes"}
            measure_row(session, "table1", {"cell": found[1]}, lambda r=result: r)


PARTS: dict[str, Callable[[Session], None]] = {
    "rates": rates,
    "rounds": rounds,
    "steps": steps,
    "peers": peers,
    "frozen": frozen,
    "determinism": determinism,
    "blazefl": blazefl,
    "table1": table1,
}


def _cifar10_shards(clients: int, images: int) -> tuple[Dataset, str]:
    """Each client's two shards, and where the images are from."""
    try:
        source = jaxfl.data.load("cifar10")
        x, y, name = source.x_train, source.y_train, "CIFAR-10"
    except jaxfl.errors.InputError:
        rng = np.random.default_rng(0)
        count = clients * images
        x = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
        y, name = np.arange(count) % 10, "random"
    parts = np.stack([p[:images] for p in jaxfl.data.shards(y, clients, seed=0)])
    mask = jnp.ones(parts.shape, bool)
    return Dataset(jnp.asarray(x[parts]), jnp.asarray(y[parts], jnp.int32), mask), name


def _lines(command: list[str], environment: dict[str, str], ends: float) -> Iterator[str]:
    """The lines that a program prints, as they come; it is stopped when the time is over."""
    with subprocess.Popen(
        command,
        env=environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            for line in process.stdout or ():
                yield line
                if time.monotonic() > ends:
                    break
        finally:
            process.terminate()


def main(
    part: tyro.conf.Positional[str],
    /,
    out: Path,
    seconds: float,
    peers: Path | None = None,
    smallest: bool = False,
) -> None:
    """Runs one part.

    Args:
      part: its name.
      out: folder of the rows.
      seconds: no row is started after this time.
      peers: folder of the peers' environments.
      smallest: tiny sizes, to try the programs.
    """
    PARTS[part](Session(out, time.monotonic() + seconds, peers, smallest))


if __name__ == "__main__":
    tyro.cli(main)
