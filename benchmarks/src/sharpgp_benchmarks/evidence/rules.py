"""Numbers that somebody has chosen, on the way of a default fit and prediction.

Counted are the functions that run: numbers written in them, and named constants that they read.
Whole numbers up to 3, halves, and numbers below 1e-6, which guard against rounding, are not.
``--root`` counts in other sources, such as those of an older version.
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

# One fit to few rows, and one by landmarks and neighbours, as of many.
_RUN = """
import sys, threading
import numpy as np
import sharpgp
ran = set()
def note(frame, event, given):
    code = frame.f_code
    if event == "call" and "sharpgp" in code.co_filename:
        ran.add((code.co_filename, code.co_firstlineno))
rng = np.random.default_rng(0)
X = rng.normal(size=(60, 2))
y = X[:, 0] + rng.normal(size=60)
threading.setprofile(note)
sys.setprofile(note)
for approximation in ("auto", "neighbours"):
    model = sharpgp.SharpGPRegressor(random_state=0, approximation=approximation).fit(X, y)
    model.predict_interval(X)
sys.setprofile(None)
for file, line in sorted(ran):
    print("RAN", line, file)
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
    for said in done.stdout.splitlines():
        if said.startswith("RAN "):
            _, line, file = said.split(" ", 2)
            lines[file].add(int(line))
    named = {}
    for file in (where / "sharpgp").rglob("*.py"):
        named |= named_numbers(file.read_text())
    inside: list[float] = []
    read: set[str] = set()
    for file, some in lines.items():
        if not file.startswith("<"):
            numbers, names = chosen_numbers(Path(file).read_text(), some)
            inside += numbers
            read |= names & set(named)
            if each and (numbers or names & set(named)):
                print(Path(file).relative_to(where), numbers, sorted(names & set(named)))
    rows = sorted(name for name in read if "ROWS" in name or "POINTS" in name)
    header("modules", "functions", "constants read", "their numbers", "numbers in functions")
    counts = sum(len(named[name]) for name in read)
    row(len(lines), sum(map(len, lines.values())), len(read), counts, len(inside))
    print(f"\nOf rows or points: {', '.join(rows)}")
