"""How many small faults the tests find: one line of the package is changed at a time.

    python tests/mutants.py record lines.json             # the quick tests, and what they execute
    python tests/mutants.py run lines.json found.jsonl    # 200 mutants, each against its tests

`record` takes further arguments of pytest, such as `-m slow`. A mutant changes one operator,
constant, comparison, index, condition or call in a line that some test executes. `run` draws
mutants by a seed, and runs each against the tests that execute its line, the quickest first, until
one fails or they have taken `--limit` seconds by their record. It works in a copy of the tracked
files, prints the share that is found, and goes on where an earlier run has stopped.
"""

import argparse
import ast
import collections
import functools
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = {
    *("kernels", "algorithms", "training", "simulation", "graphs", "uplink", "serve", "data"),
    "experiment",
}
SWAPS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


def changed(node):
    """The node with a small fault, or None if there is nothing to change in it."""
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPS:
        new = SWAPS[type(node.op)]()
        if isinstance(node, ast.BoolOp):
            return ast.BoolOp(new, node.values)
        return ast.BinOp(node.left, new, node.right)
    if isinstance(node, ast.Compare):
        first, *others = node.ops
        return ast.Compare(node.left, [SWAPS[type(first)](), *others], node.comparators)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return ast.Constant(not node.value)
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return ast.Constant(node.value + 1 if node.value in (0, 1) else 2 * node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not | ast.Invert):
        return node.operand
    if isinstance(node, ast.IfExp):
        return ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
    if isinstance(node, ast.Call):
        if len(node.args) > 1 and not any(isinstance(x, ast.Starred) for x in node.args):
            return ast.Call(node.func, [*node.args[1::-1], *node.args[2:]], node.keywords)
        if node.keywords and node.keywords[-1].arg:
            return ast.Call(node.func, node.args, node.keywords[:-1])
    return None


class Places(ast.NodeVisitor):
    """The expressions of a file that can be changed, without annotations, messages and facts."""

    def __init__(self):
        self.nodes = []

    def visit_FunctionDef(self, node):
        for part in node.body:
            self.visit(part)

    def visit_AnnAssign(self, node):
        if node.value is not None:
            self.visit(node.value)

    def visit_JoinedStr(self, node):
        """The text of a message is no fault."""

    def visit_If(self, node):
        self.nodes.append((node.test, ast.UnaryOp(ast.Not(), node.test)))
        self.generic_visit(node)

    def generic_visit(self, node):
        new = changed(node)
        if new is not None:
            self.nodes.append((node, new))
        super().generic_visit(node)


def mutants(lines):
    """Of all lines that are executed: the file, an expression of it, and the faulty one."""
    found = []
    for file in sorted(lines):
        if Path(file).parts[1] not in ROOMS:
            continue
        places = Places()
        places.visit(ast.parse((ROOT / file).read_text()))
        executed = [pair for pair in places.nodes if str(pair[0].lineno) in lines[file]]
        found += [(file, *pair) for pair in executed]
    return found


def replaced(file, node, new):
    """The old text of the expression, the new one, and the file's with it."""
    text = (ROOT / file).read_text()
    rows = text.encode().splitlines(keepends=True)
    first, last = node.lineno - 1, node.end_lineno - 1
    before = b"".join(rows[:first]) + rows[first][: node.col_offset]
    after = rows[last][node.end_col_offset :] + b"".join(rows[last + 1 :])
    by = f"({ast.unparse(new)})"
    return ast.get_source_segment(text, node), by, before + by.encode() + after


def record(record, given):
    """Runs the tests once, and writes the seconds of each and the tests of each line."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"JAXFL_LINES": folder, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "mutants", *given]
        code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        seconds, lines = {}, collections.defaultdict(lambda: collections.defaultdict(list))
        for part in sorted(Path(folder).glob("*.jsonl")):
            for row in part.read_text().splitlines():
                test, took, executed = json.loads(row)
                seconds[test] = took
                for file, numbers in executed.items():
                    for number in numbers:
                        lines[file][number].append(test)
    Path(record).write_text(json.dumps({"seconds": seconds, "lines": lines}))
    return code


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """As a plug-in of pytest, see `record`: one line of JSON a test."""
    tracer = _tracer()
    tracer.erase()
    began = time.perf_counter()
    tracer.start()
    result = yield
    tracer.stop()
    data = tracer.get_data()
    executed = {
        str(Path(file).relative_to(ROOT)): data.lines(file) for file in data.measured_files()
    }
    # xdist adds the name of the test's group.
    test = re.sub(r"@\w+$", "", item.nodeid)
    row = json.dumps([test, round(time.perf_counter() - began, 3), executed])
    with open(Path(os.environ["JAXFL_LINES"]) / f"{os.getpid()}.jsonl", "a") as file:
        file.write(row + "\n")
    return result


@functools.cache
def _tracer():
    import coverage

    tracer = coverage.Coverage(data_file=None, include=[f"{ROOT}/jaxfl/*"])
    # Some tests execute no line of the package.
    tracer.set_option("run:disable_warnings", ["no-data-collected"])
    return tracer


def selected(tests, seconds, limit):
    """The quickest tests, as many as take `limit` seconds together, and one at least.

    After those that executed the line come the others of their files: a program that an earlier
    test has compiled is used without its lines being executed.
    """
    files = {test.partition("::")[0] for test in tests}
    others = {test for test in seconds if test.partition("::")[0] in files} - {*tests}
    quickest = [sorted(part, key=seconds.__getitem__) for part in (tests, others)]
    chosen, total = [], 0.0
    for test in itertools.chain(*quickest):
        total += seconds[test]
        if chosen and total > limit:
            break
        chosen.append(test)
    return chosen


def finds(copy, tests, given, limit):
    """Whether a test fails in the copy, or does not end."""
    chosen = copy / "tests.txt"
    chosen.write_text("\n".join(tests))
    command = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not tpu", *given, f"@{chosen}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *command],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=4 * limit + 120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return True, "does not end"
    last = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if any("ERROR: not found:" in line for line in last):
        raise SystemExit(f"the record is not of these tests: {last[0]}")
    return process.returncode != 0, (last or said.splitlines())[-1][:200]


def copy_of_tree(folder):
    """The tracked files as they are now, in a clone: some tests ask git for them."""
    subprocess.run(["git", "clone", "-q", ROOT, folder], check=True)  # noqa: S607
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT)  # noqa: S607
    for name in listed.decode().split("\0")[:-1]:
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    return folder


def run(record, out, number, seed, limit, given):
    """Runs the mutants that `out` lacks, and prints the share that is found of all."""
    content = json.loads(Path(record).read_text())
    drawn = random.Random(seed).sample(mutants(content["lines"]), number)
    rows = Path(out).read_text().splitlines() if Path(out).exists() else []
    done = [json.loads(row) for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_of_tree(Path(folder) / "copy")
        for file, node, wrong in drawn[len(done) :]:
            good = (copy / file).read_bytes()
            old, new, text = replaced(file, node, wrong)
            (copy / file).write_bytes(text)
            tests = content["lines"][file][str(node.lineno)]
            chosen = selected(tests, content["seconds"], limit)
            found, by = finds(copy, chosen, given, limit)
            (copy / file).write_bytes(good)
            row = {"file": file, "line": node.lineno, "old": old, "new": new, "tests": len(tests)}
            done.append(row | {"run": len(chosen), "found": found, "by": by})
            with open(out, "a") as results:
                results.write(json.dumps(done[-1]) + "\n")
    share = sum(row["found"] for row in done) / len(done)
    print(f"{share:.1%} of {len(done)} mutants are found")


def main():
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("record", help="run the tests once; further arguments are pytest's")
    one.add_argument("record", help="the file to write")
    one.set_defaults(does=record)
    other = commands.add_parser("run", help="run mutants against the tests of their lines")
    other.add_argument("record", help="the file that `record` has written")
    other.add_argument("out", help="the file to which a line is added for each mutant")
    other.add_argument("--number", type=int, default=200, help="of mutants")
    other.add_argument("--seed", type=int, default=0, help="which mutants")
    other.add_argument("--limit", type=float, default=120, help="seconds of tests a mutant")
    other.set_defaults(does=run)
    given, rest = parser.parse_known_args()
    options = vars(given)
    return options.pop("does")(**options, given=rest)


if __name__ == "__main__":
    raise SystemExit(main())
