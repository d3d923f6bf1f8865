"""The rooms of a package, its floors, its arrows and its lines of code, read from the source.

`python -m tests.house [PACKAGE]` prints how many there are; PACKAGE is the folder `jaxfl` by
default.

A room is a folder at the top of the package, or a file that lies loose there. An arrow leads from a
room to another one that it imports. A room's floor is one above the highest room that it imports.
"""

import ast
import functools
import io
import sys
import tokenize
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "jaxfl"


def modules(package=PACKAGE):
    """The files of a package by module, such as `data.sources`; `__init__` is the folder itself."""

    def name(file):
        parts = file.relative_to(package).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    return {name(file): file for file in sorted(package.rglob("*.py"))}


def imports(file, known):
    """The modules of the package that a file imports, in functions too.

    A name that the package itself gives, as in `from jaxfl import tree`, is the module behind it.
    """
    package = "jaxfl"
    modules_of = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            below = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [one if one.removeprefix("jaxfl.") in known else node.module for one in below]
        else:
            continue
        modules_of |= {one.removeprefix("jaxfl.") for one in names if one.startswith("jaxfl.")}
        modules_of |= {"" for one in names if one == package}
    return modules_of


def arrows(package=PACKAGE):
    """Which rooms each room imports; the package's own `__init__` and `__main__` are no rooms."""
    files = modules(package)
    rooms = {name.split(".")[0] for name in files} - {"", "__main__"}
    found = {room: set() for room in rooms}
    for name, file in files.items():
        room = name.split(".")[0]
        if room in rooms:
            found[room] |= {other.split(".")[0] for other in imports(file, files)} & rooms - {room}
    return found


def floors(graph):
    """The floor of each room, from 1.

    Raises:
      RecursionError: rooms import each other in a circle.
    """

    @functools.cache
    def floor(room):
        return 1 + max((floor(other) for other in graph[room]), default=0)

    return {room: floor(room) for room in graph}


# Tokens that make no line of code.
QUIET = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}


def lines_of_code(text):
    """The number of lines of a program without docstrings, comments and blank ones."""
    rows = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in QUIET:
            rows.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            rows.difference_update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(rows)


if __name__ == "__main__":
    graph = arrows(Path(sys.argv[1]) if sys.argv[1:] else PACKAGE)
    levels = floors(graph)
    print(f"{len(graph)} rooms, {max(levels.values())} floors, ", end="")
    print(f"{sum(len(others) for others in graph.values())} arrows, ", end="")
    package = Path(sys.argv[1]) if sys.argv[1:] else PACKAGE
    print(f"{sum(lines_of_code(file.read_text()) for file in package.rglob('*.py'))} lines of code")
    for level in range(max(levels.values()), 0, -1):
        print(f"  floor {level}: {', '.join(sorted(r for r in graph if levels[r] == level))}")
