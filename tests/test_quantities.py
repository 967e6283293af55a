"""Limits on what is measured, several objectives, results as frames, and the right words."""

import math

import numpy as np
import pytest
import torch

from sharpgp.bo import Optimiser, surrogate
from sharpgp.bo.quantities import Limit, Quantity, added_volume
from sharpgp.exceptions import InvalidInputError

pd = pytest.importorskip("pandas")
BOTH = {"yield": "max", "cost": "min"}


@pytest.fixture(autouse=True)
def one_candidate(monkeypatch):
    """One kernel and no warp, which is quick."""
    monkeypatch.setattr(surrogate, "KERNELS", ("rbf",))
    monkeypatch.setattr(surrogate, "MIN_WARPED", math.inf)


def run(loop, function, steps):
    for _ in range(steps):
        point = loop.ask()
        loop.tell(point, function(**point))
    return loop


def purified(x, z):
    """Largest yield, 2, at (1, 1), where nothing is pure enough; 1.5 on the border."""
    return {"yield": x + z, "impurity": x * x + z * z}


def traded(x, z):
    """The front is z = 0, from (0, 0) to (1, 1)."""
    return {"yield": x - z, "cost": x * x + z}


# ------------------------------------------------------------------ limits


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("impurity <= 0.5", Limit("impurity", -math.inf, 0.5)),
        ("`pH value` >= 1e-3", Limit("pH value", 1e-3, math.inf)),
        ("2 <= pH < 7", Limit("pH", 2.0, 7.0)),
        ("5 > a", Limit("a", -math.inf, 5.0)),
    ],
)
def test_limits_are_read(text, limit):
    assert Limit.of(text) == limit


@pytest.mark.parametrize("text", ["impurity", "a <= b", 3, "<= 3", "a == 3"])
def test_limits_that_are_refused(text):
    with pytest.raises(InvalidInputError, match=r'limits: expected such as "impurity <= 0.5"'):
        Optimiser([(0, 1)], limits=[text])


def test_a_limit_that_nothing_meets_is_said_at_once():
    with pytest.raises(InvalidInputError, match="limits: expected a smaller and then a larger"):
        Optimiser([(0, 1)], limits=["7 <= pH <= 2"])


def test_the_best_point_that_meets_a_limit():
    loop = Optimiser(
        {"x": (0, 1), "z": (0, 1)},
        objectives={"yield": "max"},
        limits=["impurity <= 1.125"],
        design=6,
    )
    run(loop, purified, 14)
    best = loop.best()
    assert 1.42 < best.y <= 1.5 + 1e-9
    assert best.x["x"] ** 2 + best.x["z"] ** 2 <= 1.125
    inner, outer = loop.predict_feasible([{"x": 0.3, "z": 0.3}, {"x": 1.0, "z": 1.0}])
    assert inner > 0.95
    assert outer < 0.05
    assert loop.remaining(0.3) < 0.2
    low, high = loop.predict_interval({"x": 0.5, "z": 0.5}, of="impurity")[0]
    assert low < 0.5 < high
    assert loop.predict({"x": 0.5, "z": 0.5}, of="impurity")[0] == pytest.approx(0.5, abs=0.05)
    assert "limits: impurity <= 1.125" in repr(loop)


def test_limits_are_judged_by_results_where_there_are_some():
    """Two runs have no model; the way to unit coordinates and back rounds."""
    loop = Optimiser({"x": (20, 83.7)}, limits=["c <= 1"])
    loop.tell([{"x": 31.37}, {"x": 47.11}, {"x": 59.3}], [[1.0, 0.5], [2.0, 3.0], [None, None]])
    assert loop.best().x == {"x": 31.37}


def test_a_limit_on_the_objective_itself_and_from_below():
    loop = Optimiser([(0, 1)], objectives={"y": "max"}, limits=["y <= 0.6", "0.2 <= y"], design=4)
    for _ in range(10):
        x = loop.ask()
        loop.tell(x, {"y": float(x[0])})
    assert 0.5 < loop.best().y <= 0.6


def test_while_no_run_meets_the_limits_the_search_is_for_one_that_does():
    """Of the design none does; expected improvement would go to the other corner."""
    loop = Optimiser([(0, 1), (0, 1)], objectives={"y": "max"}, limits=["c <= 0.1"], design=4)
    X = np.array([[0.5, 0.9], [0.9, 0.4], [0.6, 0.6], [0.9, 0.9]])
    loop.tell(X, pd.DataFrame({"y": X.sum(1), "c": X.sum(1)}))
    with pytest.raises(InvalidInputError, match=r"best: expected a run that meets c <= 0.1"):
        loop.best()
    assert loop.remaining(0.1) == 1.0
    for _ in range(5):
        x = loop.ask()
        loop.tell(x, [x.sum(), x.sum()])
    assert loop.best().y <= 0.1


def test_probability_of_a_limit_is_that_of_the_law():
    loop = Optimiser([(0, 1)], limits=["c <= 0.4"], design=4)
    X = np.linspace(0, 1, 7)[:, None]
    loop.tell(X, [[0.0, float(np.sin(6 * x))] for x in X[:, 0]])
    quantity = Quantity(loop.record.others["c"], latent=False)
    Z = torch.tensor([[0.05], [0.5]], dtype=torch.float64)
    expected = []
    for z in Z:
        levels = torch.linspace(0.0005, 0.9995, 2000, dtype=torch.float64)
        found = quantity.results(quantity.predictor.quantiles(z[None], levels)[:, 0])
        expected.append(float((found <= 0.4).double().mean()))
    found = quantity.probability(Z, Limit("c", -math.inf, 0.4))
    np.testing.assert_allclose(found, expected, atol=2e-3)
    both = quantity.probability(Z, Limit("c", -0.1, 0.4))
    below = quantity.probability(Z, Limit("c", -math.inf, -0.1))
    torch.testing.assert_close(both, found - below)


def test_failed_runs_count_against_the_limits_and_what_was_not_measured_does_not():
    loop = Optimiser([(0, 1)], objectives={"y": "max"}, limits=["c <= 1"], design=4)
    loop.tell([[0.1], [0.3], [0.6], [0.8]], {"y": [1, 2, 3, 4], "c": [0.2, None, 0.6, 0.9]})
    other = loop.record.others["c"]
    assert [run.number for run in other.runs] == [0, 2, 3]
    before = loop.predict_feasible([[0.95]])[0]
    loop.tell([0.95], None)
    assert [run.failed for run in other.runs] == [False, False, False, True]
    assert other.data()[1].min() == pytest.approx(-1 - 0.35)  # beyond the limit
    assert loop.record.data()[1].tolist() == [1, 2, 3, 4, 2]  # and in the middle elsewhere
    alone = Optimiser([(0, 1)], objectives={"y": "max"}, limits=["y >= 1"], design=4)
    alone.tell([[0.1], [0.3], [0.6], [0.8]], [1, 2, 3, None])
    assert alone.record.data()[1].tolist() == [1, 2, 3, 1]
    assert loop.predict_feasible([[0.95]])[0] < before - 0.1
    frame = loop.results()
    assert frame["c"].isna().tolist() == [False, True, False, False, True]
    assert frame["failed"].tolist() == [False] * 4 + [True]


# ------------------------------------------------------------------ several objectives


def test_front_of_two_objectives(tmp_path):
    loop = Optimiser({"x": (0, 1), "z": (0, 1)}, objectives=BOTH, design=6, file=tmp_path / "r.sgp")
    run(loop, traded, 14)
    front = loop.front()
    assert list(front.columns[:3]) == ["x", "z", "yield"]
    assert front["yield"].is_monotonic_increasing
    assert front["cost"].is_monotonic_increasing
    assert len(front) >= 6
    # Half of the points on the front itself, not in the one corner of a sum.
    good = front[front["z"] < 0.1]
    assert len(good) >= 5
    assert good["x"].max() - good["x"].min() > 0.6
    assert (
        (front["yield low"] <= front["yield"] + 0.05) & (front["cost high"] > front["cost"] - 0.05)
    ).all()
    assert 0.0 <= loop.remaining(0.2) < 0.5
    with pytest.raises(InvalidInputError, match=r"best: several objectives .* see front\(\)"):
        loop.best()
    again = Optimiser.load(tmp_path / "r.sgp")
    assert again.front().equals(front)
    assert again.ask() == loop.ask()
    pytest.importorskip("matplotlib")
    assert [ax.get_title(loc="left") for ax in loop.plot().axes][:2] == ["Front", "Progress"]


@pytest.mark.slow
def test_three_objectives_and_a_limit():
    loop = Optimiser(
        {"x": (0, 1), "z": (0, 1), "k": ["a", "b", "c"]},
        objectives={"p": "max", "q": "max", "r": "min"},
        limits=["p <= 0.8", "s >= 0.2"],
        design=8,
    )

    def three(x, z, k):
        return {"p": x, "q": z - 0.3 * x, "r": x * z + (k == "a"), "s": 1 - z}

    run(loop, three, 14)
    front = loop.front()
    assert (front["p"] <= 0.8).all()
    assert (front["z"] <= 0.8).all()
    assert (front["k"] != "a").mean() > 0.7


def test_added_volume_is_that_of_the_union():
    """Against points of the box, at random."""
    generator = torch.Generator().manual_seed(0)
    front = torch.rand(5, 3, generator=generator, dtype=torch.float64)
    Y = torch.rand(4, 3, generator=generator, dtype=torch.float64)
    U = torch.rand(200_000, 3, generator=generator, dtype=torch.float64)

    def dominated(points):
        return (U[:, None] <= points).all(-1).any(1)

    known = dominated(front)
    expected = [float((dominated(y[None]) & ~known).double().mean()) for y in Y]
    found = added_volume(Y, front, torch.zeros(3, dtype=torch.float64))
    np.testing.assert_allclose(found, expected, atol=0.004)


# ------------------------------------------------------------------ what is told, and results


def test_results_in_a_spreadsheet_start_a_campaign():
    """A frame with inputs, results and more; another campaign is a category that is given."""
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({"T": generator.uniform(20, 80, 9), "campaign": "2025", "note": "x"})
    frame["yield"] = -((frame["T"] - 60) ** 2) / 100
    loop = Optimiser({"T": (20, 80), "campaign": ["2025", "2026"]}, context=["campaign"], design=5)
    loop.tell(frame, "yield")
    assert loop.n_runs == 9
    for _ in range(4):
        point = loop.ask(fixed={"campaign": "2026"})
        assert point["campaign"] == "2026"
        loop.tell(point, 3 - (point["T"] - 60) ** 2 / 100)
    assert abs(loop.best().x["T"] - 60) < 6


def test_a_column_that_the_frame_does_not_have():
    frame = pd.DataFrame({"T": [30, 40], "yield": [1.0, 2.0]})
    with pytest.raises(InvalidInputError, match=r"y: columns: .*found 'yeild'; did you mean yield"):
        Optimiser({"T": (20, 80)}).tell(frame, "yeild")


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ({"yield": 3.0, "impurty": 1.0}, "found 'impurty'; did you mean impurity"),
        ({"impurity": 1.0}, "y: expected 'yield', 'impurity', found 'impurity'"),
        (3.0, "y: expected 'yield', 'impurity' by name, or 2 numbers for each run, found 3.0"),
        ([1.0, 2.0, 3.0], "or 2 numbers for each run"),
        ({"yield": "high", "impurity": 1.0}, "y of yield: expected numbers, found"),
    ],
)
def test_results_of_several_quantities_that_are_refused(y, message):
    loop = Optimiser({"x": (0, 1)}, objectives={"yield": "max"}, limits=["impurity <= 1"])
    with pytest.raises(InvalidInputError, match=message):
        loop.tell({"x": 0.5}, y)


def test_results_say_what_was_predicted_before_each_run():
    loop = Optimiser({"x": (0, 1), "s": ["a", "b"]}, maximize=False, design=4)
    foreseen = []
    for _ in range(8):
        point = loop.ask()
        known = loop.n_runs >= 4
        foreseen.append(
            [loop.predict(point)[0], *loop.predict_interval(point)[0]] if known else [math.nan] * 3
        )
        loop.tell(point, (point["x"] - 0.3) ** 2 + (point["s"] == "b"))
    frame = loop.results()
    assert list(frame) == [*("x", "s", "y", "predicted", "low", "high", "acquisition", "failed")]
    assert frame.index.tolist() == list(range(1, 9))
    np.testing.assert_allclose(frame[["predicted", "low", "high"]], foreseen, rtol=1e-6, atol=1e-9)
    assert frame["acquisition"].isna().tolist() == [True] * 4 + [False] * 4
    assert (frame["low"][4:] < frame["high"][4:]).all()
    inside = ((frame["y"] >= frame["low"]) & (frame["y"] <= frame["high"]))[4:]
    levels = np.array([run.level for run in loop.record.runs[4:]])
    assert inside.tolist() == (np.abs(levels - 0.5) <= 0.475).tolist()
    arrays = Optimiser([(0, 1), (0, 2)])
    arrays.tell([[0.5, 1.0]], 2.0, noise=0.1)
    assert arrays.results().to_dict("records")[0]["x1"] == 1.0
    assert arrays.results()["noise"].tolist() == [0.1]


# ------------------------------------------------------------------ not stuck, and words


def test_a_category_that_looks_useless_is_tried_again():
    """Eight kinds, of which one is better where the others are poor: a model sees no difference."""
    loop = Optimiser({"kind": list("abcdefgh"), "x": (0, 1)}, design=8)
    loop.tell([{"kind": k, "x": 0.5} for k in "abcdefgh"], [1.0] * 8)
    loop.tell([{"kind": k, "x": 0.2} for k in "aaab"], [2.0, 1.9, 1.95, 1.9])
    kinds = set()
    for _ in range(12):
        point = loop.ask()
        kinds.add(point["kind"])
        loop.tell(point, 1.9 if point["kind"] in "ab" else 1.0)
    assert len(kinds - {"a", "b"}) >= 3
    fixed = loop.ask(4, fixed={"kind": "c"})
    assert {point["kind"] for point in fixed} == {"c"}


def test_the_right_words():
    for setting, hint in (
        ({"minimize": True}, "write maximize=False"),
        ({"seed": 1}, "write random_state=0"),
        ({"colour": 1}, r"see help\(Optimiser\)"),
    ):
        with pytest.raises(TypeError, match=f"found no setting .*; {hint}"):
            Optimiser([(0, 1)], **setting)
    loop = Optimiser([(0, 1)])
    for name, hint in (("suggest", "ask"), ("observe", "tell"), ("pareto_front", "front")):
        with pytest.raises(AttributeError, match=rf"write {hint}\("):
            getattr(loop, name)
    assert not hasattr(loop, "_repr_png_")
    for wrong in ({}, {"a": "up"}, dict.fromkeys("abcd", "max"), ["a"]):
        with pytest.raises(InvalidInputError, match="objectives"):
            Optimiser([(0, 1)], objectives=wrong)
    with pytest.raises(InvalidInputError, match="go with 'logei', found 'ucb'"):
        Optimiser([(0, 1)], limits=["c <= 1"], acquisition="ucb")
    with pytest.raises(InvalidInputError, match=r"front: expected several objectives.*best\(\)"):
        loop.front()


def test_plots_are_known_to_pyplot():
    plt = pytest.importorskip("matplotlib.pyplot")
    loop = Optimiser([(0, 1)])
    loop.tell([[0.1], [0.5]], [1.0, 2.0])
    figure = loop.plot()
    assert figure.number in plt.get_fignums()
    plt.close(figure)
