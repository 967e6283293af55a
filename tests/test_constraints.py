"""Which points may be run: what is asked for obeys all constraints, what cannot be met is said."""

import math

import numpy as np
import pytest
import torch

from sharpgp.bo import AtMost, Log, Mixture, Optimiser, surrogate
from sharpgp.bo.constraints import Region
from sharpgp.bo.space import Input, Space
from sharpgp.exceptions import InvalidInputError

FOUR = dict.fromkeys(["water", "ethanol", "thf", "dmf"], (0, 1))


@pytest.fixture(autouse=True)
def one_candidate(monkeypatch):
    """One kernel and no warp, which is quick."""
    monkeypatch.setattr(surrogate, "KERNELS", ("rbf",))
    monkeypatch.setattr(surrogate, "MIN_WARPED", math.inf)


def points_of(inputs, constraints, n=64, fixed=None):
    space = Space.of(inputs)
    region = Region(space, constraints)
    held = space.fixed(fixed) if fixed else None
    Z = region.sample(n, seed=0, fixed=held)
    assert len(Z) >= n // 2
    assert bool(region.allows(space.from_unit(Z)).all())
    return space.points(space.from_unit(Z))


# ------------------------------------------------------------------ steps


def test_steps():
    assert Input.of("x", (0, 10, 0.5)).values == tuple(0.5 * k for k in range(21))
    assert Input.of("x", (0, 1, 0.1)).values[3] == 0.3  # not 0.30000000000000004
    assert Input.of("x", (0, 10, 3)).values == (0, 3, 6, 9)
    assert Input.of("x", (0, 10, 0.5)).shown == "0 to 10 by 0.5"
    with pytest.raises(
        InvalidInputError, match=r"x: expected \(low, high, step\) .*\[16, 32, 64\]"
    ):
        Input.of("x", (16, 32, 64))
    with pytest.raises(InvalidInputError, match="x: expected at most 10000 values, found 1000001"):
        Input.of("x", (0, 1, 1e-6))


# ------------------------------------------------------------------ all over the region


def test_a_mixture_sums_to_its_total_and_is_spread_over_its_simplex():
    points = points_of(FOUR, [Mixture(*FOUR)], n=400)
    amounts = np.array([list(point.values()) for point in points])
    np.testing.assert_allclose(amounts.sum(1), 1.0, atol=1e-9)
    np.testing.assert_allclose(amounts.mean(0), 0.25, atol=0.05)
    # Uniform on the simplex each would have 0.19; some are corners, so that it is more.
    assert (amounts.std(0) > 0.17).all()
    assert (amounts == 0).any(0).all()


def test_names_as_one_list_are_the_same():
    assert Mixture(["a", "b"], total=2) == Mixture("a", "b", total=2)
    assert AtMost(1, ["a", "b"]) == AtMost(1, "a", "b")


def test_a_mixture_by_steps_in_percent():
    inputs = dict.fromkeys(FOUR, (0, 100, 5))
    for point in points_of(inputs, [Mixture(*FOUR, total=100, at_most=3), "water <= 40"]):
        assert sum(point.values()) == 100
        assert all(value % 5 == 0 for value in point.values())
        assert sum(value > 0 for value in point.values()) <= 3
        assert point["water"] <= 40


def test_at_most_some_of_many():
    inputs = {**dict.fromkeys("abcdefgh", (0, 5)), "n": [0, 1, 4, 9]}
    used = [
        sum(p[k] != 0 for k in (*"abcd", "n")) for p in points_of(inputs, [AtMost(2, *"abcd", "n")])
    ]
    assert max(used) == 2


@pytest.mark.parametrize(
    ("constraint", "holds"),
    [
        ("a + 2 * b <= 1.2", lambda a, b, t: a + 2 * b <= 1.2 + 1e-6),
        ("0.2 <= a - b <= 0.3", lambda a, b, t: 0.2 - 1e-6 <= a - b <= 0.3 + 1e-6),
        ("a * b >= 0.5", lambda a, b, t: a * b >= 0.5 - 1e-6),
        ("a + t <= 0.1", lambda a, b, t: a + t <= 0.1 + 1e-6),
        ("2 <= (a + b) / 0.75", lambda a, b, t: a + b >= 1.5 - 1e-6),
        (lambda a, b: a > b + 0.5, lambda a, b, t: a > b + 0.5),
        (lambda point: point["a"] < 0.2, lambda a, b, t: a < 0.2),
    ],
)
def test_expressions_and_functions(constraint, holds):
    inputs = {"a": (0, 1), "b": (0, 1), "t": Log(1e-3, 1)}
    assert all(holds(**point) for point in points_of(inputs, [constraint]))


def test_names_with_blanks_and_inputs_without_names():
    points = points_of({"spin rate": (0, 9), "b": (0, 9)}, ["`spin rate` + b == 5"])
    assert all(abs(point["spin rate"] + point["b"] - 5) < 1e-6 for point in points)
    X = points_of([(0, 1), (0, 1)], ["x0 + x1 <= 0.5", lambda x: x[0] > 0.1])
    assert (X.sum(1) <= 0.5 + 1e-6).all()
    assert (X[:, 0] > 0.1).all()


def test_a_small_region_is_found():
    """One in ten thousand of the space, which points at random do not find."""
    inputs = dict.fromkeys("abcd", (0, 1))
    for point in points_of(inputs, ["a + b + c + d <= 0.2", "a >= 0.1"]):
        assert sum(point.values()) <= 0.2 + 1e-6


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        (["a + b >= 3"], r"expected a point that meets a \+ b >= 3, found none at all"),
        (["a >= 0.8", "a + b <= 0.5"], "meets a >= 0.8 and a . b <= 0.5, found none at all"),
        ([Mixture("a", "b", total=5)], "meets a . b == 5, found none at all"),
        (["k + m == 0.5"], "meets k . m == 0.5, found none at all"),  # whole numbers
        ([Mixture("a", "b", total=1.5, at_most=1)], "meets a . b == 1.5 and AtMost"),
        ([lambda a: a > 2], "meets the function <lambda>, found none among"),
        (["q + a <= 1"], r"q \+ a <= 1: found no input 'q'; inputs are a, b"),
        (["solvnt <= 1"], "found no input 'solvnt'; did you mean solvent"),
        (["solvent <= 1"], "expected numbers, found categories in 'solvent'"),
        (["a + b"], r'expected arithmetic such as "2 \* a \+ b <= 10", found .a \+ b.'),
        (["a + b = 1"], "found 'a . b = 1'; write <=, >= or =="),
        (["__import__('os') <= 1"], "expected arithmetic such as"),
        (["a * b == 0.5"], "expected a sum of inputs on plain scales in an equality"),
        ([lambda q, a: True], "the function <lambda>: found no input 'q'"),
        ([lambda a: a], "the function <lambda>: expected True or False, found 0"),
        ([AtMost(1, "k", "t")], "expected inputs that may be 0, found 't' from 0.1 to 1"),
        ([3], 'expected "2 .* a . b <= 10", Mixture, AtMost or a function'),
    ],
)
def test_what_cannot_be_met_or_read_is_said_at_once(constraints, message):
    inputs = {
        "a": (0, 1), "b": (0, 1), "k": range(4), "m": range(4), "t": (0.1, 1),
        "solvent": ["water", "thf"],
    }  # fmt: skip
    with pytest.raises(InvalidInputError, match=message):
        Optimiser(inputs, constraints=constraints)


# ------------------------------------------------------------------ what is asked for


def test_all_that_is_asked_for_obeys_and_the_best_blend_is_found():
    """Largest, 1, at 60 % of ethanol and 40 of dmf, at 50 degrees."""

    def value(p):
        gap = (p["ethanol"] - 0.6) ** 2 + (p["dmf"] - 0.4) ** 2 + (p["T"] / 50 - 1) ** 2
        return 1 - gap

    inputs = {**FOUR, "T": (20, 80, 5)}
    loop = Optimiser(inputs, constraints=[Mixture(*FOUR, at_most=2), "T <= 70"], design=8)
    for _ in range(18):
        point = loop.ask()
        amounts = [point[name] for name in FOUR]
        assert sum(amounts) == pytest.approx(1.0)
        assert sum(amount > 1e-6 for amount in amounts) <= 2
        assert point["T"] <= 70
        loop.tell(point, value(point))
    assert loop.best().y > 0.98
    batch = loop.ask(4)
    assert all(sum(p[name] for name in FOUR) == pytest.approx(1.0) for p in batch)


def test_the_best_point_on_the_border_of_a_forbidden_region():
    """x + z, where x z is at most 0.25 and x at most 0.8: the corner at 0.8."""
    loop = Optimiser(
        {"x": (0, 0.8), "z": (0, 0.8)}, constraints=[lambda x, z: x * z <= 0.25], design=5
    )
    for _ in range(14):
        point = loop.ask()
        assert point["x"] * point["z"] <= 0.25
        loop.tell(point, point["x"] + point["z"])
    assert loop.best().y > 1.1  # 1.1125; without the region 1.6


def test_rows_that_break_a_constraint_are_not_asked_for():
    loop = Optimiser({"x": (0, 1)}, constraints=["x <= 0.5"])
    assert loop.ask(among=[{"x": 0.3}, {"x": 0.9}]) == {"x": 0.3}
    with pytest.raises(InvalidInputError, match="among: expected a point that meets the constr"):
        loop.ask(among=[{"x": 0.9}])


# ------------------------------------------------------------------ fixed and context


def test_fixed_inputs():
    inputs = {"T": (20, 80), "a": (0, 1), "b": (0, 1), "s": ["u", "v", "w"]}
    loop = Optimiser(inputs, constraints=["a + b <= 1"], design=5)
    for fixed in ({"T": 60}, {"T": 60, "s": "v"}, {"a": 0.7}):
        for _ in range(3):
            for point in loop.ask(2, fixed=fixed):
                assert {name: point[name] for name in fixed} == pytest.approx(fixed)
                assert point["a"] + point["b"] <= 1 + 1e-6
                loop.tell(point, point["a"] + point["b"] ** 2 - (point["s"] == "w"))
    free = Optimiser([(0, 1), (0, 1)], design=3)
    for _ in range(5):
        x = free.ask(fixed={1: 0.25})
        assert x[1] == 0.25
        free.tell(x, -(x**2).sum())
    for fixed, message in (
        ({"temp": 3}, "fixed: found no input 'temp'; .*T, a, b, s"),
        ({"T": 90}, "T: expected a number between 20 and 80, found 90"),
        (60, r'fixed: expected values by input, as \{"temperature": 60\}, found 60'),
    ):
        with pytest.raises(InvalidInputError, match=message):
            loop.ask(fixed=fixed)
    blocked = Optimiser(inputs, constraints=["a + b >= 1.5"])
    with pytest.raises(
        InvalidInputError, match=r"fixed: with \{'a': 0.2\}: expected a point that m"
    ):
        blocked.ask(fixed={"a": 0.2})


def test_one_context_needs_no_list():
    inputs = {"x": (0, 1), "humidity": (0, 1)}
    one, listed = (Optimiser(inputs, context=name) for name in ("humidity", ["humidity"]))
    assert one.record.settings["context"] == listed.record.settings["context"]


def test_a_context_is_given_and_not_chosen():
    """The best setting follows the humidity; in each context it is its own that counts."""
    loop = Optimiser({"x": (0, 1), "humidity": (0, 1)}, context=["humidity"], design=6)
    generator = np.random.default_rng(0)
    for _ in range(20):
        humidity = float(generator.random())
        point = loop.ask(fixed={"humidity": humidity})
        assert point["humidity"] == pytest.approx(humidity)
        loop.tell(point, 3 * humidity - (point["x"] - 0.2 - 0.6 * humidity) ** 2)
    for humidity in (0.2, 0.8):
        best = loop.best(fixed={"humidity": humidity})
        assert best.model_x["x"] == pytest.approx(0.2 + 0.6 * humidity, abs=0.15)
        assert best.y == pytest.approx(3 * humidity, abs=0.1)
        # Dry runs gain nothing on dry runs, however good humid ones were.
        assert loop.remaining(0.1, fixed={"humidity": humidity}) < 0.3
    with pytest.raises(InvalidInputError, match="expected a value of the context 'humidity'"):
        loop.ask()
    with pytest.raises(InvalidInputError, match="context: found no input 'rain'"):
        Optimiser({"x": (0, 1)}, context=["rain"])


# ------------------------------------------------------------------ files


def test_files_keep_constraints_and_ask_for_functions(tmp_path):
    def safe(a):
        return a < 0.5

    inputs, file = {"a": (0, 1), "b": (0, 1)}, tmp_path / "run.sgp"
    constraints = [Mixture("a", "b"), "a <= 0.8"]
    Optimiser(inputs, constraints=constraints, file=file).ask()
    point = Optimiser.load(file).ask()
    assert point["a"] + point["b"] == pytest.approx(1.0)
    Optimiser(inputs, constraints=constraints, file=file)
    with pytest.raises(InvalidInputError, match="found other constraints in"):
        Optimiser(inputs, constraints=["a <= 0.7"], file=file)
    Optimiser(inputs, constraints=[safe], file=tmp_path / "f.sgp").ask()
    with pytest.raises(InvalidInputError, match=r"the file does not hold the function 'safe'"):
        Optimiser.load(tmp_path / "f.sgp")
    assert Optimiser.load(tmp_path / "f.sgp", constraints=[safe]).ask()["a"] < 0.5


def test_region_without_constraints_is_the_space():
    space = Space.of({"x": (0, 1), "k": range(3)})
    assert torch.equal(Region(space).sample(16, seed=3), space.sobol(16, seed=3))
