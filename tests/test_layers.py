"""The house of docs/design.md: its table of rooms, held against the imports."""

import ast
import re
import subprocess
import sys

import pytest
from house import PACKAGE, arrows, floors, imports, modules

MODULES = modules()
DESIGN = (PACKAGE.parent / "docs" / "design.md").read_text()


def rooms_of_design():
    """What each room may import, as the table of docs/design.md says."""
    table = DESIGN[DESIGN.index("| room | may import |") :].split("\n\n")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines()[2:]]
    names = {room.strip(): allowed.strip() for room, allowed, _ in rows}
    return {
        room: set() if allowed == "nothing" else set(allowed.split(", "))
        for room, allowed in names.items()
    }


ROOMS = rooms_of_design()
# The rooms of `experiment`: each may import those before it.
INSIDE = re.search(r"in this order:(.*?)\.", DESIGN, re.S)[1]
EXPERIMENT = re.findall(r"`(\w+)`", INSIDE)


def test_the_top_of_the_package_has_the_rooms_of_the_table_and_nothing_else():
    assert len(ROOMS) == 13
    names = {path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"}
    assert names == {*ROOMS, "__init__.py", "__main__.py", "py.typed"}


@pytest.mark.slow
@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_rooms_that_it_may(room):
    for module, file in MODULES.items():
        if module.split(".")[0] == room:
            for other in imports(file, MODULES):
                allowed = other.split(".")[0] in {room, *ROOMS[room]}
                assert allowed, f"{module} imports {other or 'jaxfl'}"


def test_the_table_is_in_the_order_of_the_house_and_allows_nothing_that_no_room_uses():
    for place, (room, allowed) in enumerate(ROOMS.items()):
        assert allowed <= set(list(ROOMS)[:place]), f"{room} imports upwards"
    assert arrows() == ROOMS
    assert max(floors(ROOMS).values()) == DESIGN.split("```")[1].count("+\n|")


def test_every_folder_says_who_lives_there():
    for module, file in MODULES.items():
        if file.name == "__init__.py" and module:
            words = ast.get_docstring(ast.parse(file.read_text()))
            assert words, f"{file} has no docstring"
            if module in ROOMS:
                assert "import" in words, f"{file} does not say what the room may import"


def test_algorithms_do_not_know_each_other():
    for module, file in MODULES.items():
        if module.startswith("algorithms."):
            others = {other for other in imports(file, MODULES) if other.startswith("algorithms")}
            assert all(other.startswith("algorithms.steps") for other in others), module


def test_kernels_import_only_numerical_libraries():
    numerical = {"jax", "optax", "jaxopt", "jaxtyping", "collections", "typing", "warnings"}
    for module, file in MODULES.items():
        if module.startswith("kernels"):
            roots = set()
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Import):
                    roots |= {alias.name.split(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom):
                    roots.add(node.module.split(".")[0])
            assert roots <= {*numerical, "jaxfl"}, module


@pytest.mark.slow
def test_no_import_circle():
    graph = {name: imports(file, MODULES) & set(MODULES) for name, file in MODULES.items()}
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


def test_a_room_of_experiment_imports_only_rooms_before_it():
    inside = {name: file for name, file in MODULES.items() if name.startswith("experiment.")}
    assert {name.split(".")[1] for name in inside} == set(EXPERIMENT)
    for module, file in inside.items():
        place = EXPERIMENT.index(module.split(".")[1])
        for other in imports(file, MODULES):
            if other.startswith("experiment."):
                assert EXPERIMENT.index(other.split(".")[1]) <= place, f"{module} imports {other}"


def test_init_files_of_experiment_only_reexport():
    for module, file in MODULES.items():
        if module.startswith("experiment") and file.name == "__init__.py":
            for node in ast.parse(file.read_text()).body:
                exports = isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
                documents = isinstance(node, ast.Expr)
                assert exports or documents or isinstance(node, ast.ImportFrom), module


@pytest.mark.slow
def test_libraries_of_pictures_and_of_the_command_line_are_imported_where_they_are_used():
    heavy = {"matplotlib", "plotly", "tyro", "orbax", "sklearn"}
    code = f"import sys, jaxfl.experiment; print(*({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
