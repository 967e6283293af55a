"""Descent of functions with kinks, beside linear programming and L-BFGS."""

import numpy as np
import pytest
from scipy.optimize import linprog

from sharpgp.calibration.methods.sharp.search.kinked import minimise_kinked
from sharpgp.exceptions import NumericalError
from sharpgp.gp.optimise import minimise


class Chebyshev:
    """The largest absolute residual of a linear regression: a polyhedron with many kinks."""

    def __init__(self, seed: int, n: int = 5, rows: int = 30) -> None:
        rng = np.random.default_rng(seed)
        A, b = rng.normal(size=(rows, n)), rng.normal(size=rows)
        self.planes, self.shifts = np.concatenate([A, -A]), np.concatenate([b, -b])

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        values = self.planes @ x - self.shifts
        worst = int(values.argmax())
        return float(values[worst]), self.planes[worst]

    def least(self, lower: np.ndarray, upper: np.ndarray) -> float:
        """By linear programming."""
        n = self.planes.shape[1]
        found = linprog(
            np.r_[np.zeros(n), 1.0],
            A_ub=np.column_stack([self.planes, -np.ones(len(self.planes))]),
            b_ub=self.shifts,
            bounds=[*zip(lower, upper, strict=True), (None, None)],
        )
        return float(found.fun)


@pytest.mark.parametrize("lowest", [-3.0, -0.05], ids=["inside", "at bounds"])
@pytest.mark.parametrize("seed", range(3))
def test_it_comes_close_to_the_least_value_of_a_polyhedron(seed, lowest):
    problem = Chebyshev(seed)
    lower, upper = np.full(5, lowest), np.full(5, 3.0)
    least = problem.least(lower, upper)
    start = np.ones(5)
    found = minimise_kinked(problem, start, lower, upper, most=300, tolerance=1e-8)
    assert ((found.x >= lower) & (found.x <= upper)).all()
    assert found.value == problem(found.x)[0]
    assert least - 1e-9 <= found.value <= least + 0.01 * (problem(start)[0] - least)


def test_it_gets_further_than_a_line_search_for_small_slopes():
    left = []
    ends = np.full(5, -3.0), np.full(5, 3.0)
    for seed in range(5):
        problem = Chebyshev(seed)
        kinked = minimise_kinked(problem, np.ones(5), *ends, most=200, tolerance=1e-8)
        usual = minimise(problem, np.ones(5), *ends, most=200, tolerance=1e-8)
        least = problem.least(*ends)
        left.append((kinked.value - least, usual.value - least))
    assert np.mean(left, axis=0)[0] < 0.2 * np.mean(left, axis=0)[1]


def test_a_smooth_function_is_no_harder():
    scales = np.array([1.0, 10.0, 100.0])
    found = minimise_kinked(
        lambda x: (float(scales @ (x - 0.5) ** 2), 2 * scales * (x - 0.5)),
        np.array([3.0, -2.0, 1.0]),
        np.full(3, -5.0),
        np.full(3, 5.0),
        most=80,
        tolerance=1e-12,
    )
    np.testing.assert_allclose(found.x, 0.5, atol=1e-4)
    assert found.done


def test_failures_are_stepped_back_from_and_the_budget_is_kept():
    count = 0

    def steep(x):
        nonlocal count
        count += 1
        if x[0] < 0.9:
            raise NumericalError("no factor")
        return float(np.abs(x).sum()), np.sign(x)

    ends = np.full(2, -5.0), np.full(2, 5.0)
    found = minimise_kinked(steep, np.array([2.0, 2.0]), *ends, most=25, tolerance=1e-9)
    assert count == found.evaluations <= 25
    assert found.failures
    assert found.x[0] >= 0.9
    assert found.value < 2.0
