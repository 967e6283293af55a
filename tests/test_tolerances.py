"""The oracles and tolerances of the other tests."""

import ast
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from helpers import solve_slowly
from tolerances import EPS, condition_number, rounding, rounding_of_slopes, slopes

COMPARISONS = ("assert_allclose", "assert_close", "approx", "gradcheck")


def smooth(n: int, noise: float) -> np.ndarray:
    x = np.linspace(-1.0, 1.0, n)
    return np.exp(-0.5 * (x[:, None] - x) ** 2) + noise * np.eye(n)


@pytest.mark.parametrize("noise", [1e-8, 1e-4, 1.0])
def test_the_slow_solution_is_right_to_the_last_digit(noise):
    """Against elimination in rational numbers."""
    A, b = smooth(8, noise), np.linspace(-1.0, 2.0, 8)
    rows = [[Fraction(float(v)) for v in (*row, right)] for row, right in zip(A, b, strict=True)]
    for i in range(8):
        rows[i] = [v / rows[i][i] for v in rows[i]]
        for j in range(8):
            if j != i:
                rows[j] = [v - rows[j][i] * w for v, w in zip(rows[j], rows[i], strict=True)]
    exact = np.array([float(row[-1]) for row in rows])
    found = solve_slowly(A, b[:, None])[:, 0]
    np.testing.assert_allclose(found, exact, rtol=1e-12)
    plain = np.linalg.solve(np.linalg.cholesky(A).T, np.linalg.solve(np.linalg.cholesky(A), b))
    assert np.linalg.norm(plain - exact) < rounding(A) * np.linalg.norm(exact)


def test_condition_numbers():
    assert condition_number(np.diag([1.0, 4.0, 1e6])) == pytest.approx(1e6)
    assert condition_number(np.ones((3, 3))) == pytest.approx(1 / EPS)


@pytest.mark.parametrize("stretch", [0.5, 2.0, 8.0])
def test_slopes_know_their_own_error(stretch):
    x = np.array([0.3, -1.2])
    found, error = slopes(lambda v: np.exp(stretch * v[0]) + np.sin(stretch * v[1]), x)
    exact = stretch * np.array([np.exp(stretch * x[0]), np.cos(stretch * x[1])])
    off = np.abs(found - exact)
    allowed = error + rounding_of_slopes(np.eye(1), np.exp(stretch * x[0]))
    assert (off <= allowed).all()
    assert (allowed < 1e-5 * np.abs(exact).max()).all()


def test_no_tolerance_is_tighter_than_rounding():
    """Below 1e-12 a comparison asks whether two machines sum in the same order."""
    found = []
    for path in sorted(Path(__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in COMPARISONS:
                given = [getattr(keyword.value, "value", None) for keyword in node.keywords]
                if any(isinstance(value, float) and 0 < value < 1e-12 for value in given):
                    found.append(f"{path.name}:{node.lineno}")
    assert found == []
