import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import jax
import jaxtyping
import pytest
import shares
from matplotlib.figure import Figure

from jaxfl.algorithms import ALGORITHMS

# Most of the suite's time is spent on compiling tiny models. XLA compiles in a third of the time
# without its own code generator for fusions, but digits then depend on shapes; tests that compare
# bits switch it on (toys.SHIPPED). Giving LLVM each program in one piece saves another fifth. The
# flags must be set before JAX starts, and XLA aborts on a flag that it does not know, so a process
# of its own tries them first. The workers inherit them.
QUICK = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
if "PYTEST_XDIST_WORKER" not in os.environ and QUICK not in os.environ.get("XLA_FLAGS", ""):
    flags = os.environ | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {QUICK}".strip()}
    if not subprocess.run(
        [sys.executable, "-c", "import jax; jax.devices()"], env=flags, capture_output=True
    ).returncode:
        os.environ["XLA_FLAGS"] = flags["XLA_FLAGS"]

# A shell's background jobs ignore Ctrl-C, and so would every program that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# And those of `nohup` the end of the terminal.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_num_cpu_devices", 4)  # one device serves, unless a test takes a mesh
# LLVM's optimization passes take a third of the remaining time. So the processes of tests, which
# inherit this, have the same bits.
jax.config.update("jax_disable_most_optimizations", True)
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"


def share_contexts(programs=200):
    """So many programs share a context of MLIR.

    JAX makes one for each, which takes a fifth of the time of a tiny program. Numbers in programs
    stay in a context, so a new one is made now and then; and a thread has its own.
    """
    try:
        # It is no public part of JAX.
        from jax._src.interpreters import mlir

        make = mlir.make_ir_context
    except (ImportError, AttributeError):
        return
    held = threading.local()

    def shared():
        number = held.number = getattr(held, "number", -1) + 1
        if number % programs == 0:
            held.context = make()
        return held.context

    mlir.make_ir_context = shared


share_contexts()


@pytest.fixture(scope="session", autouse=True)
def compile_once(tmp_path_factory):
    """All processes share one cache, since many tests compile the same program.

    A folder in JAX_COMPILATION_CACHE_DIR keeps it between sessions, such as shares of slow tests.
    """
    root = tmp_path_factory.getbasetemp()
    shared = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR") or str(shared / "compiled")
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.02)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


# How many parameters of a test marked `long` there are for one that is quick.
EVERY = 64
MAPS = 20_000  # pieces of memory, of which a test file takes some thousands at most
LONGEST = 1000  # characters of the name of a test
EMPTY_PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(autouse=True)
def no_picture_is_rendered(request, monkeypatch):
    """Every figure is built, but only the tests marked `pictures` render it, which takes longer.

    A run draws three pictures, in nearly half of its time where models are tiny.
    """
    if not request.node.get_closest_marker("pictures"):
        monkeypatch.setattr(Figure, "savefig", lambda _, file, **options: file.write(EMPTY_PNG))


@pytest.fixture
def without_types():
    """Functions check their types in tests alone: a user sees what they say themselves."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(params=sorted(ALGORITHMS))
def factory(request):
    """Every algorithm of the registry."""
    return ALGORITHMS[request.param]


def pytest_addoption(parser):
    parser.addoption(
        "--slow-share",
        metavar="I/N",
        help="run the I-th of N shares of the slow tests too; with -m slow, that share alone",
    )


def pytest_configure(config):
    if config.getoption("--slow-share"):
        try:
            shares.which(config.getoption("--slow-share"))
        except ValueError as error:
            raise pytest.UsageError(str(error)) from None
        if config.option.markexpr == "not slow and not tpu":  # as pyproject.toml has it
            config.option.markexpr = "not tpu"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Marks, groups, and leaves out the slow tests of other shares.

    A test marked `long` is quick for one in `EVERY` of its parameters, or one in `every` of the
    marker, others for the next such test, and slow for the rest; of one marked `sample` the rest
    does not run at all. All tests of an algorithm run in one process: what one of them compiled,
    the others need not compile again. So do the tests of a file that share what a fixture of the
    file makes.
    """
    for item in items:
        if len(item.nodeid) > LONGEST:
            raise pytest.UsageError(
                f"{item.nodeid[:80]}... has a name of {len(item.nodeid)} characters: give ids"
            )
    left_out = {*_others(items, "sample")}
    items[:] = [item for item in items if item not in left_out]
    for item in _others(items, "long"):
        item.add_marker(pytest.mark.slow)
    for item in items:
        if item.get_closest_marker("xdist_group"):
            continue
        if "factory" in item.fixturenames:
            item.add_marker(pytest.mark.xdist_group(_algorithm(item)))
        elif _shares_a_fixture(item):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    # Tests of one algorithm in a file come one after the other, as xdist has them.
    files = list(dict.fromkeys(item.path for item in items))
    place = {path: number for number, path in enumerate(files)}
    items.sort(key=lambda item: (place[item.path], _algorithm(item)))
    if config.getoption("--slow-share"):
        others = set(shares.others(items, *shares.which(config.getoption("--slow-share"))))
        config.hook.pytest_deselected(items=list(others))
        items[:] = [item for item in items if item not in others]


def _others(items, marker):
    """Of each test with the marker all items but one in `every`, others for the next such test."""
    cases = {}
    for item in items:
        if item.get_closest_marker(marker):
            cases.setdefault((item.path, item.originalname), []).append(item)
    for offset, test in enumerate(sorted(cases)):
        for number, item in enumerate(sorted(cases[test], key=lambda item: item.name)):
            if (number + offset) % item.get_closest_marker(marker).kwargs.get("every", EVERY):
                yield item


def _shares_a_fixture(item):
    """Whether the test takes a fixture that is made once for its file."""
    definitions = item._fixtureinfo.name2fixturedefs.values()
    return any(fixture.scope == "module" for found in definitions for fixture in found)


def _algorithm(item):
    """The name of the algorithm that a test takes, or nothing."""
    return item.callspec.params["factory"] if "factory" in item.fixturenames else ""


def pytest_collection_finish():
    """What is imported by now stays: the collector of garbage need not look at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_runtest_teardown(item, nextitem):
    """Frees compiled programs before they are too many.

    A process on Linux may map 65,530 pieces of memory, and a program takes dozens.
    """

    def programs(of):
        return _algorithm(of) or of.module

    maps = Path("/proc/self/maps")
    if nextitem is None or programs(item) == programs(nextitem):
        return
    if not maps.exists() or len(maps.read_bytes().splitlines()) > MAPS:
        jax.clear_caches()
