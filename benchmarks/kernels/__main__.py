"""Runs the benchmarks of the server's kernels and writes docs/kernels.md.

`python -m benchmarks.kernels [--compare FILE]` takes less than ten minutes on two cores; nothing
else should run. It starts `pytest benchmarks --benchmark-only` and makes the page of its JSON,
which it keeps in benchmarks/kernels/measured.json. With `--compare FILE`, such as that file or one
of an earlier commit, pytest-benchmark prints the times of each kernel beside those of that run.
"""

import datetime
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from statistics import median

import tyro

from benchmarks.peers import ROOT
from benchmarks.report import processor

PACKAGES = ("jax", "jaxopt", "numpy", "scipy", "scikit-learn")


def main(
    compare: Path | None = None,
    only: str = "",
    json_file: Path = Path(__file__).parent / "measured.json",
    page_file: Path = ROOT / "docs" / "kernels.md",
) -> None:
    """Runs the benchmarks and writes the page.

    Args:
      compare: JSON of an earlier run, whose times are printed beside the new ones.
      only: which benchmarks, as pytest's -k has it, such as "cosine and 1000"; all if empty. The
        results of the others stay as they are.
      json_file: where the results are kept.
      page_file: the page.
    """
    raw = json_file.with_suffix(".new")
    command = [sys.executable, "-m", "pytest", "benchmarks", "--benchmark-only", "-q", "-rs"]
    command += ["-p", "no:cacheprovider", f"--benchmark-json={raw.absolute()}"]
    command += ["-k", only] if only else []
    if compare:
        columns = "--benchmark-columns=min,median,rounds"
        command += [f"--benchmark-compare={compare.absolute()}", columns]
        command += ["--benchmark-group-by=fullname", "--benchmark-sort=name"]
        # It warns that the processor's present frequency is another one.
        command += ["-W", "ignore::pytest_benchmark.logger.PytestBenchmarkWarning"]
    subprocess.run(command, cwd=ROOT, check=True)
    results = shortened(json.loads(raw.read_text()))
    raw.unlink()
    if only:
        names = {benchmark["name"] for benchmark in results["benchmarks"]}
        older = json.loads(json_file.read_text())["benchmarks"]
        results["benchmarks"] += [one for one in older if one["name"] not in names]
    json_file.write_text(json.dumps(results, indent=1) + "\n")
    page_file.write_text(page(results))


def shortened(results: dict) -> dict:
    """The results without single times, and without what belongs to the machine's owner."""
    for benchmark in results["benchmarks"]:
        benchmark["stats"].pop("data", None)
    results["machine_info"].pop("node", None)
    results["commit_info"] = {"id": results.get("commit_info", {}).get("id")}
    return results


def page(results: dict) -> str:
    """The page: tables of kernels of models, of kernels of matrices, of steps, of rounds."""
    found = [(b["extra_info"], 1e3 * b["stats"]["min"]) for b in results["benchmarks"]]
    found.sort(key=lambda row: (row[0]["kernel"], row[0]["d"], row[0]["m"]))
    rates = found[0][0]
    tables = {"models": [], "pairs": [], "step": [], "round": []}
    for extra, ms in found:
        tables[extra["kind"]] += rows(extra, ms)
    return TEXT.format(
        answer=answer(found),
        date=datetime.date.today(),
        machine=f"{os.cpu_count()} cores, {processor()}",
        software=f"Python {platform.python_version()}, "
        + ", ".join(f"{name} {version(name)}" for name in PACKAGES),
        gflops=rates["gflops"],
        gbs=rates["gbs"],
        dispatch=rates["dispatch_ms"],
        **{name: "\n".join(lines) for name, lines in tables.items()},
    )


def answer(found: list[tuple[dict, float]]) -> str:
    """How fast the kernels are on the whole, and which are fastest and slowest beside peers."""
    ratios: dict[str, list[float]] = {}
    for extra, ms in found:
        ratios.setdefault(extra["kernel"], []).extend(t / ms for t in extra["peers"].values())
    each = [ratio for of_kernel in ratios.values() for ratio in of_kernel]
    ordered = sorted((name for name in ratios if ratios[name]), key=lambda n: median(ratios[n]))
    floors = median(ms / extra["floor_ms"] for extra, ms in found)
    fast, slow = (
        ", ".join(f"`{name}` ({digits(median(ratios[name]))})" for name in names)
        for names in (ordered[:-6:-1], ordered[:5])
    )
    return (
        f"In {sum(ratio > 1 for ratio in each)} of {len(each)} measurements of {len(ratios)} "
        f"kernels jaxfl is faster than its peer. In the middle a kernel takes {digits(floors)} "
        f"times its floor, and its peer {digits(median(each))} times as long as jaxfl. Fastest "
        f"beside their peers are {fast}; slowest {slow}."
    )


def rows(extra: dict, ms: float) -> list[str]:
    """A line for each peer, or one without a peer."""
    size = f"{extra['kernel']} | {extra['m']:,} | {extra['d']:,}"
    if extra["kind"] != "models":
        size = f"{extra['kernel']} | {extra['m']:,}"
    own = f"{size} | {digits(ms)} | {digits(ms / extra['floor_ms'])}"
    own += f" | {extra['compile_seconds']:.1f}"
    peers = [f"{name} | {digits(t)} | {digits(t / ms)}" for name, t in extra["peers"].items()]
    return [f"| {own} | {peer} |" for peer in peers or ["- | - | -"]]


def digits(value: float) -> str:
    """Two digits of a small number, no fraction of a large one."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}" if value < 10 else f"{value:.1f}"


TEXT = """# The server's kernels

{answer}

Measured on {date} by `python -m benchmarks.kernels`: {machine}, {software}.
One device, that is one process with all cores. Each side runs several times and the best counts;
compiling is apart.

The floor is about the least time that a kernel can take on this machine: its floating-point
operations at {gflops:.0f} GFLOP/s (products of 2048x2048), or the bytes that it reads and writes at
{gbs:.0f} GB/s (an addition to 128 MiB in place), or the call of a compiled program ({dispatch:.3f}
ms), whichever takes longest; all three are measured in the same process. A product of models with
themselves counts in full, although half of a symmetric matrix would do, which NumPy uses. Models
that fit into the cache are read faster than memory, so small ones can be below the floor. `times
jaxfl` is the time of the peer over that of jaxfl: below 1 the peer is faster. The peers are in
`benchmarks/kernels/peers.py`, and `tests/benchmarks/test_benchmarks.py` tests that they compute the
same.

New arrays of more than 32 MB cost far more than their bytes: glibc takes each from the system and
gives it back, and the system clears every page of it (NumPy asks for larger pages, XLA does not).
With `MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=17179869184` in the environment the
process keeps its memory, and `mix` of 100 models of 100,000 parameters takes half the time. The
table is without these settings.

The results are kept in `benchmarks/kernels/measured.json`. `python -m benchmarks.kernels --compare
benchmarks/kernels/measured.json` prints a later run beside them, and `pytest-benchmark compare FILE
FILE` two files of results.

## Kernels of models

M models of D parameters. Left out are sizes with more than 4 GiB of arrays, and large sizes of
kernels that subtract all pairs of models or look for order statistics. With 100 million entries
`cosine` and `mix` alone are measured. `geometric_median` takes 20 steps.

| kernel | M | D | ms | times floor | compiling, s | peer | ms | times jaxfl |
|---|---:|---:|---:|---:|---:|---|---:|---:|
{models}

## Kernels of weights and similarities

Matrices [M, M]. `project_rows` and `project_capped_rows` solve a quadratic program for each row,
and so do their peers; SciPy's SLSQP and jaxopt's OSQP take too long for more models.

| kernel | M | ms | times floor | compiling, s | peer | ms | times jaxfl |
|---|---:|---:|---:|---:|---|---:|---:|
{pairs}

## The server's step of each system

From the uploads of M clients to a model for each of them, by
`jaxfl.server_step`, which calls the function that a round calls: MLPs of 75,010 parameters. The
floor is reading the uploads, writing the models, or one product with weights [M, M]; GFedMtl mixes
for six cells, not for M clients, so it can be below. Of pFedGAT it is the step that makes the
models; the gradient that trains its attention comes with the clients' answers.

| system | M | ms | times floor | compiling and first step, s | peer | ms | times jaxfl |
|---|---:|---:|---:|---:|---|---:|---:|
{step}

## One round of each system

A toy federation: 20 clients with 64 examples of 64 features, an MLP with 128 hidden units, 10 steps
of batch 16. The floor is the products of local training. The peer is a NumPy loop over clients and
steps without a server. It is the same for all four and runs anew for each, so its times show how
much those of one program differ.

| system | clients | ms | times floor | compiling, s | peer | ms | times jaxfl |
|---|---:|---:|---:|---:|---|---:|---:|
{round}
"""


if __name__ == "__main__":
    tyro.cli(main)
