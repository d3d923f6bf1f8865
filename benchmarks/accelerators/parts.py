"""The parts of an accelerator session: `python -m benchmarks.accelerators.parts PART --out DIR`.

`python -m benchmarks.accelerators.session` starts each part as a process of its own, so that no
part holds memory of the device that another one needs.
"""

import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro

import jaxfl
from benchmarks.accelerators.rows import Session, is_measured, measure_row
from benchmarks.measure import best_ms, compile_round, copy_gbs, product_gflops, without_evaluation
from benchmarks.peers import ROOT, run_peer
from benchmarks.rounds.fedavg_round import federation
from benchmarks.rounds.local_training import compile_training, examples
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
# Clients side by side, where all of them need more memory than the device has.
AT_ONCE: dict[tuple[str, int], int] = {("resnet8", 1_000): 100}
COMPILERS = 12  # threads that compile
# A compiled program and the seconds that compiling took, or what kept it from being compiled.
Program = Future[tuple[Callable, float]]
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
    models = ("lenet", "resnet8", "mlp")
    numbers = (2,) if session.smallest else (100, 1_000, 10)
    cases = [
        {"model": model, "clients": clients, "batch": batch, "convolution": conv}
        for clients, model in itertools.product(numbers, models)
        for batch in ((16, 64) if model == "lenet" else (64,))
        for conv in (CONVOLUTIONS if model == "resnet8" else ("auto",))
    ]
    steps = 2 if session.smallest else 10
    federations = {number: without_evaluation(federation(number)) for number in numbers}

    def compile_case(case: dict) -> tuple[Callable, float]:
        model, clients = case["model"], case["clients"]
        data = federations[clients]
        shape = {} if model == "mlp" else {"conv": case["convolution"]}
        task = jaxfl.classification(
            getattr(jaxfl.models, model)(10, **shape),
            data.train.x[0, 0],
            batch_size=case["batch"],
            steps=steps,
            chunk=AT_ONCE.get((model, clients), "auto"),
        )
        return compile_round(jaxfl.algorithms.fedavg(task), data)

    for case, program in compiled(session, "rounds", cases, compile_case):

        def measure(program: Program = program, clients: int = case["clients"]) -> dict:
            one_round, seconds = program.result()
            ms = best_ms(one_round, 3)
            return {"round ms": ms, "client step ms": ms / clients / steps, "compile s": seconds}

        measure_row(session, "rounds", case, measure)


def steps(session: Session) -> None:
    """One local step of a LeNet over numbers of clients, batches, arithmetics and convolutions."""
    batches = (10,) if session.smallest else (64, 10)
    numbers = (2,) if session.smallest else (100, 1_000, 10)  # what tells most comes first
    cases = [
        {"clients": clients, "batch": batch, "arithmetic": name, "convolution": conv}
        for clients, batch, conv, name in itertools.product(
            numbers, batches, CONVOLUTIONS, ARITHMETIC
        )
    ]
    count = 2 if session.smallest else 20
    for number in numbers:
        examples(number, 32)

    def compile_case(case: dict) -> tuple[Callable, float]:
        precision, compute = ARITHMETIC[case["arithmetic"]]
        with jax.default_matmul_precision(precision):
            return compile_training(
                jaxfl.models.lenet(10, conv=case["convolution"]),
                32,
                case["batch"],
                clients=case["clients"],
                steps=count,
                chunk="all",
                compute=compute,
            )

    for case, program in compiled(session, "steps", cases, compile_case):

        def measure(program: Program = program, clients: int = case["clients"]) -> dict:
            train, seconds = program.result()
            ms = best_ms(train, 3) / count
            return {"step ms": ms, "client step ms": ms / clients, "compile s": seconds}

        measure_row(session, "steps", case, measure)


def compiled(
    session: Session,
    part: str,
    cases: list[dict],
    compile_case: Callable[[dict], tuple[Callable, float]],
) -> Iterator[tuple[dict, Program]]:
    """Each case that has no row, with its program.

    All are compiled before the first is measured, several at a time: seconds of compiling are
    those of a thread among others.
    """
    missing = [case for case in cases if not is_measured(session.folder, part, case)]
    with ThreadPoolExecutor(min(COMPILERS, os.cpu_count() or 1)) as pool:
        programs = [pool.submit(compile_case, case) for case in missing]
    programs.reverse()
    for case in missing:
        yield case, programs.pop()  # a program that was measured gives its memory back


def torch(session: Session) -> None:
    """The serial PyTorch loop on the same device."""
    device = "cuda" if jax.default_backend() == "gpu" else "cpu"
    for batch in (10, 64):
        case = {"model": "lenet", "batch": batch, "device": device}

        def loop(batch: int = batch) -> dict:
            found = run_peer(session.peers, "torch_loop", "lenet", 32, batch, device)
            return {"error": f"missing ({found})"} if isinstance(found, str) else found

        measure_row(session, "torch", case, loop)


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
        command += ["-n", str(min(COMPILERS, os.cpu_count() or 1))]
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
    (https://github.com/blazefl/blazefl), on four NVIDIA RTX 6000. Without CIFAR-10 in
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
    "torch": torch,
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
