"""What a default fit and prediction pass: files, classes, functions, and chosen numbers.

The first table is the way of one fit to 600 rows of 6 columns and its intervals, and counts classes
by the objects whose methods run.  The second is of two fits to few rows, one of which predicts from
neighbours, and counts the functions that run, with the classes that define them.  Of their numbers:
those written in them, and named constants that they read.  Whole numbers up to 3, halves, and
numbers below 1e-6, which guard against rounding, are not.  Long are bodies of more than 45 lines,
and those with more than 15 branches.  In all sources: ``isinstance`` on classes of the library, and
private names of other modules.  ``--root`` counts in other sources, such as those of an older
version.
"""

import ast
import math
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import sharpgp
from sharpgp_benchmarks.evidence.run import header, row

# One fit of usual size; then one to few rows, and one from neighbours, as of many.
_RUN = """
import sys, threading
import numpy as np
import sharpgp
sharpgp.SharpGPRegressor(base="rbf", effort="low").fit([[0.0], [1.0], [2.0], [4.0]], [0, 1, 2, 3])
ran, met = set(), set()
def note(frame, event, given):
    code = frame.f_code
    if event == "call" and "sharpgp" in code.co_filename and code.co_name != "<module>":
        ran.add((code.co_filename, code.co_firstlineno, code.co_qualname.replace(" ", "")))
        if code.co_varnames[:1] == ("self",) and "self" in frame.f_locals:
            kind = type(frame.f_locals["self"])
            met.add(f"{kind.__module__}.{kind.__qualname__}")
rng = np.random.default_rng(0)
def way(n, d, approximation):
    X = rng.normal(size=(n, d))
    y = X[:, 0] + rng.normal(size=n)
    threading.setprofile(note)
    sys.setprofile(note)
    model = sharpgp.SharpGPRegressor(random_state=0, approximation=approximation).fit(X, y)
    model.predict_interval(X)
    sys.setprofile(None)
way(600, 6, "auto")
print("WAY", len({file for file, *_ in ran}), *sorted(one for one in met if "sharpgp." in one))
ran.clear()
way(60, 2, "auto")
way(60, 2, "neighbours")
for file, line, name in sorted(ran):
    print("RAN", line, name, file)
"""


def chosen_numbers(source: str, lines: set[int]) -> tuple[list[float], set[str]]:
    r"""Numbers inside the functions that begin at some lines, and the constants that these read.

    Examples
    --------
    >>> chosen_numbers("MOST = 500\ndef f(x):\n    return 40 < x < MOST + 1\n", {2})
    ([40], {'MOST'})
    """
    numbers: list[float] = []
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            if first in lines:
                numbers += _numbers(node)
                names |= {
                    part.id
                    for part in ast.walk(node)
                    if isinstance(part, ast.Name) and part.id.isupper()
                }
    return numbers, names


def named_numbers(source: str) -> dict[str, list[float]]:
    r"""Constants of a module that hold numbers.

    Examples
    --------
    >>> named_numbers("MOST = 500\nTAIL = (0.1, 3)\nNAME = 'a'")
    {'MOST': [500], 'TAIL': [0.1]}
    """
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            each = [part for target in targets for part in ast.walk(target)]
            names = [part.id for part in each if isinstance(part, ast.Name) and part.id.isupper()]
            if names and (values := _numbers(node.value)):
                found |= {name: values for name in names}
    return found


# Names by agreement: after reading a file, in notebooks, and torch's own.
_PROTOCOLS = {"_restored", "_repr_html_", "_repr_mimebundle_", "_parameters"}
#: Lines of a body, and branches, from which a function is long.
LINES, BRANCHES = 45, 15
_BRANCHES = (ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.comprehension)


def long_functions(source: str, lines: set[int]) -> list[str]:
    r"""Functions that begin at some lines and are long: name, lines of the body, branches.

    Examples
    --------
    >>> long_functions("def f(x):\n" + "    x += 1\n" * 50 + "    return x\n", {1})
    ['f 51/1']
    """
    found, text = [], source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            body = node.body[1:] if ast.get_docstring(node) else node.body
            if first not in lines or not body:
                continue
            inside = (line.strip() for line in text[body[0].lineno - 1 : node.end_lineno])
            n = sum(bool(line) and line[0] != "#" for line in inside)
            branches = 1 + sum(_branches(part) for part in ast.walk(node))
            if n > LINES or branches > BRANCHES:
                found.append(f"{node.name} {n}/{branches}")
    return found


def _branches(node: ast.AST) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    more = len(node.ifs) if isinstance(node, ast.comprehension) else 0
    return isinstance(node, _BRANCHES) + more


def asked_classes(source: str, own: set[str]) -> int:
    """How often it asks ``isinstance`` of one of its own classes.

    Examples
    --------
    >>> asked_classes("isinstance(a, (int, Law)) and isinstance(b, int)", {"Law"})
    1
    """
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    asked = [call for call in calls if getattr(call.func, "id", "") == "isinstance"]
    names = [{getattr(part, "id", "") for part in ast.walk(call.args[1])} for call in asked]
    return sum(bool(some & own) for some in names)


def foreign_names(source: str, private: set[str]) -> list[str]:
    """Private names of other modules that a module reads; ``private`` are those that any defines.

    Examples
    --------
    >>> foreign_names("from sharpgp.rows import _f; x._own = y._own; z._g", {"_own", "_g"})
    ['_f', '_g']
    """
    tree = ast.parse(source)
    imported = [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sharpgp.")
        for alias in node.names
        if alias.name.startswith("_")
    ]
    read = [
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") not in ("self", "cls")
    ]
    return imported + [name for name in read if name in private - defined_names(tree)]


def defined_names(tree: ast.AST) -> set[str]:
    """Private attributes and methods that a module sets; two underscores are Python's."""
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return {name for name in names if name[0] == "_" and name[1:2] != "_"}


def _numbers(tree: ast.AST) -> list[float]:
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and type(node.value) in (int, float)
        and not _is_plain(node.value)
    ]


def _is_plain(value: float) -> bool:
    return value in (0, 1, 2, 3, 0.5) or abs(value) < 1e-6 or math.isinf(value)


def main(root: str = "", each: bool = False) -> None:
    """Print the counts."""
    where = Path(root or Path(sharpgp.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _RUN],
        env=os.environ | {"PYTHONPATH": str(where)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    lines: defaultdict[str, set[int]] = defaultdict(set)
    classes = set()
    for said in done.stdout.splitlines():
        if said.startswith("WAY "):
            _, files, *met = said.split(" ")
            header("files of one fit", "kinds of objects")
            row(int(files), len(met))
            print("", *met if each else "", sep="\n")
        if said.startswith("RAN "):
            _, line, name, file = said.split(" ", 3)
            outer = name.split(".<locals>")[0].rpartition(".")[0]
            if not file.startswith("<"):
                lines[file].add(int(line))
                classes |= {(file, outer)} if outer else set()
    sources = {str(file): file.read_text() for file in (where / "sharpgp").rglob("*.py")}
    named = {}
    for source in sources.values():
        named |= named_numbers(source)
    inside: list[float] = []
    read: set[str] = set()
    long: list[str] = []
    for file, some in lines.items():
        numbers, names = chosen_numbers(sources[file], some)
        inside += numbers
        read |= names & set(named)
        long += long_functions(sources[file], some)
        if each and (numbers or names & set(named)):
            print(Path(file).relative_to(where), numbers, sorted(names & set(named)))
    if each:
        print(
            *sorted(f"{Path(file).relative_to(where)} {name}" for file, name in classes), sep="\n"
        )
    trees = {file: ast.parse(source) for file, source in sources.items()}
    own = {
        node.name
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    private = set().union(*map(defined_names, trees.values())) - _PROTOCOLS
    asked = sum(asked_classes(source, own) for source in sources.values())
    foreign = [name for source in sources.values() for name in foreign_names(source, private)]
    rows = sorted(name for name in read if "ROWS" in name or "POINTS" in name)
    header("modules", "classes", "functions", "constants read", "their numbers", "numbers inside")
    counts = sum(len(named[name]) for name in read)
    row(len(lines), len(classes), sum(map(len, lines.values())), len(read), counts, len(inside))
    print(f"\nOf rows or points: {', '.join(rows)}")
    print(f"Long functions (lines/branches): {', '.join(long) or 'none'}")
    print(f"isinstance on own classes, in all sources: {asked}")
    print(f"Private names of other modules: {len(foreign)} {' '.join(sorted(set(foreign)))}")
