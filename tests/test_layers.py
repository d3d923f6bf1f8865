"""The layers of docs/design.md, read from the imports with `ast`; and the sizes of files."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "jaxfl"
FILES = sorted(PACKAGE.rglob("*.py"))

# What a module (or all modules of a folder) may import from jaxfl; a name stands for everything
# below it.
FREE = {
    "batch_statistics",
    "errors",
    "options",
    "types",
    "layers",
    "order",
    "ragged",
    "target",
    "tree",
    "batches",
    "loop",
    "streams",
    "objectives",
    "npy",
    "random_graphs",
    "topology",
    "hierarchy",
    "optimizers",
    "labels",
}
ALLOWED = {
    "errors": set(),
    "options": {"errors"},
    "npy": {"errors"},
    "types": set(),
    "layers": {"errors", "types"},
    "target": set(),
    "order": {"target"},
    "ragged": {"order"},
    "tree": {"layers", "ragged", "target", "types"},
    "batches": {"order", "types"},
    "loop": {"ragged", "tree", "types"},
    "batch_statistics": {"tree"},
    "streams": set(),
    "objectives": {"batch_statistics", "tree", "types"},
    "random_graphs": {"errors"},
    "topology": {"errors", "npy", "random_graphs"},
    "hierarchy": {"errors", "npy"},
    "labels": {"errors", "types"},
    "optimizers": {"errors", "types"},
    "kernels": {"types"},
    "gradients": FREE,
    "edges": {"kernels", "types"},
    "local": FREE | {"gradients"},
    "admm": FREE,
    "participation": {"errors", "options", "types"},
    "work": {"errors", "npy", "streams", "types"},
    "clock": {"errors", "npy"},
    "staleness": {"tree", "types"},
    "rounds": FREE | {"rounds_checks"},
    "rounds_checks": FREE,
    "evaluate": FREE,
    "summaries": set(),
    "graph_measures": set(),
    "protocols": {"summaries"},
    "checkpoint": FREE,
    "mesh": FREE,
    "on_disk": FREE | {"evaluate", "mesh", "rounds", "rounds_checks"},
    "flax_model": FREE,
    "acceptance": FREE,
    "upload": FREE,
    "losses": {"errors"},
    "task": FREE | {"local", "losses", "gradients", "flax_model", "acceptance", "edges", "upload"},
    "models": FREE,
    "uplink": FREE | {"kernels"},
    "data": FREE,
    "version": set(),
    "papers": {"version"},
    "registry": {"options", "types", "papers"},
    "deployment": FREE,
    "heads": FREE,
    "skeleton": FREE | {"kernels", "deployment", "heads"},
    "blending": FREE,
    "layerwise": FREE | {"edges", "kernels", "skeleton"},
    "attraction": FREE | {"edges", "kernels", "skeleton"},
    "displacement": {"types"},
    "divergence": FREE,
    "algorithms": FREE
    | {
        "kernels",
        "admm",
        "displacement",
        "divergence",
        "staleness",
        "edges",
        "attraction",
        "blending",
        "layerwise",
        "skeleton",
        "deployment",
        "registry",
        "papers",
    },
    "experiment": FREE
    | {
        "kernels",
        "local",
        "gradients",
        "participation",
        "clock",
        "rounds",
        "rounds_checks",
        "evaluate",
        "summaries",
        "graph_measures",
        "protocols",
        "checkpoint",
        "mesh",
        "on_disk",
        "task",
        "work",
    }
    | {"models", "data", "uplink", "algorithms", "registry", "version"},
    "__main__": {"cli"},
    "cli": {
        "mesh",
        "protocols",
        "errors",
        "options",
        "experiment",
        "algorithms",
        "data",
        "models",
        "uplink",
        "papers",
        "registry",
        "version",
    },
}


def name(file):
    """`jaxfl/data/sources.py` -> `data.sources`; a package's `__init__` is the package."""
    parts = file.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name(file): file for file in FILES}


def imports(file):
    """The jaxfl modules that a file imports, in functions too."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            below = [f"{node.module}.{alias.name}" for alias in node.names]
            wanted = [b if b.removeprefix("jaxfl.") in MODULES else node.module for b in below]
        else:
            continue
        found |= {
            w.removeprefix("jaxfl").removeprefix(".") for w in wanted if w.split(".")[0] == "jaxfl"
        }
    return found


@pytest.mark.parametrize("module", [m for m in MODULES if m])
def test_an_arrow_may_skip_but_never_turn_back(module):
    layer = module.split(".")[0]
    for other in imports(MODULES[module]):
        inside = other.split(".")[0] == layer
        assert inside or other.split(".")[0] in ALLOWED[layer], f"{module} imports {other}"


def test_algorithms_do_not_know_each_other():
    for module, file in MODULES.items():
        if module.startswith("algorithms."):
            assert not [other for other in imports(file) if other.startswith("algorithms")], module


def test_kernels_import_only_numerical_libraries():
    for module, file in MODULES.items():
        if module.startswith("kernels"):
            roots = set()
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Import):
                    roots |= {alias.name.split(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom):
                    roots.add(node.module.split(".")[0])
            # Of jaxfl only other kernels and types: the first test of this file.
            assert roots <= {
                "jax",
                "jaxtyping",
                "optax",
                "jaxopt",
                "collections",
                "typing",
                "warnings",
                "jaxfl",
            }, module


def test_no_import_circle():
    graph = {module: imports(file) & set(MODULES) for module, file in MODULES.items()}
    done, path = set(), []

    def visit(module):
        assert module not in path, " -> ".join([*path[path.index(module) :], module])
        if module not in done:
            path.append(module)
            for other in graph[module]:
                visit(other)
            path.pop()
            done.add(module)

    for module in graph:
        visit(module)


@pytest.mark.parametrize("file", FILES, ids=name)
def test_files_are_short(file):
    assert len(file.read_text().splitlines()) <= 300


# The rooms of `experiment`: each may import those before it.
ROOMS = ["config", "show", "store", "privacy", "session", "studies"]


def test_a_room_of_experiment_imports_only_rooms_before_it():
    inside = {module: file for module, file in MODULES.items() if module.startswith("experiment.")}
    assert {module.split(".")[1] for module in inside} == set(ROOMS)
    for module, file in inside.items():
        place = ROOMS.index(module.split(".")[1])
        for other in imports(file):
            if other.split(".")[0] == "experiment":
                assert ROOMS.index(other.split(".")[1]) <= place, f"{module} imports {other}"


def test_init_files_of_experiment_only_reexport():
    for module, file in MODULES.items():
        if module.startswith("experiment") and file.name == "__init__.py":
            for node in ast.parse(file.read_text()).body:
                exports = isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
                documents = isinstance(node, ast.Expr)
                assert exports or documents or isinstance(node, ast.ImportFrom), module


@pytest.mark.slow
def test_libraries_of_pictures_and_of_the_command_line_are_imported_where_they_are_used():
    heavy = {"matplotlib", "plotly", "tyro", "orbax", "sklearn", "dp_accounting"}
    code = f"import sys, jaxfl.experiment; print(*({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
