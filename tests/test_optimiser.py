"""Ask and tell: inputs by name, designs, models, failures, batches, known noise, stops, files."""

import math
import warnings

import numpy as np
import pytest
import torch
from scipy.optimize import Bounds

from sharpgp.bo import Log, Optimiser, surrogate
from sharpgp.bo.constraints import Region
from sharpgp.bo.search import APART, candidates
from sharpgp.bo.small_sample import probability_of_gain
from sharpgp.bo.space import Space
from sharpgp.bo.surrogate import GROWTH, choose, left_out_density
from sharpgp.exceptions import InvalidInputError, SharpGPError
from sharpgp.gp.training import train
from sharpgp.gp.wrappers.target_warp import WarpedPosterior
from sharpgp.persistence import save
from sharpgp.plots import optimisation_figure

BOX = [(-1, 1), (0, 2)]
BOX_AREA = 4.0
MIXED = {"x": (0, 10), "k": range(1, 11), "solvent": ["water", "ethanol"], "t": Log(1e-3, 1)}


def bowl(x):
    """Largest, 0, at (0.3, 1.4)."""
    return -((x[..., 0] - 0.3) ** 2) - (x[..., 1] - 1.4) ** 2


def run(loop, function, steps):
    for _ in range(steps):
        x = loop.ask()
        loop.tell(x, function(x))
    return loop


@pytest.fixture(autouse=True)
def one_candidate(monkeypatch):
    """One kernel and no warp, which is quick: the choice has tests of its own."""
    monkeypatch.setattr(surrogate, "KERNELS", ("rbf",))
    monkeypatch.setattr(surrogate, "MIN_WARPED", math.inf)


@pytest.fixture
def all_candidates(one_candidate, monkeypatch):
    monkeypatch.setattr(surrogate, "KERNELS", ("rbf", "matern52"))
    monkeypatch.setattr(surrogate, "MIN_WARPED", 8)


def inputs(loop):
    return np.array([record.x for record in loop.record.runs])


# ------------------------------------------------------------------ the loop


@pytest.mark.parametrize("acquisition", ["logei", pytest.param("ucb", marks=pytest.mark.slow)])
def test_finds_a_maximum(acquisition):
    loop = run(Optimiser(BOX, acquisition=acquisition, design=5), bowl, 12)
    best = loop.best()
    assert best.y > -0.02
    np.testing.assert_allclose(best.x, [0.3, 1.4], atol=0.15)
    asked = [run.level for run in loop.record.runs]
    assert asked[:5] == [None] * 5
    assert all(0 <= level <= 1 for level in asked[5:])


@pytest.mark.slow
def test_finds_a_minimum():
    loop = run(Optimiser(BOX, maximize=False, design=5), lambda x: 7.0 - bowl(x), 12)
    best = loop.best()
    assert best.y == pytest.approx(7.0, abs=0.02)
    assert best.model_y == pytest.approx(7.0, abs=0.05)
    low, high = loop.predict_interval(best.x, 0.9)[0]
    assert low < best.y < high
    assert loop.plot().axes[1].get_ylabel() == "inside so far"


def test_levels_of_minimisation_are_those_of_the_results():
    """A result above all that is expected has a level near 1, whatever the direction."""
    for maximize in (True, False):
        loop = run(Optimiser(BOX, maximize=maximize, design=6), bowl, 6)
        loop.tell([loop.ask(), loop.ask()], [50.0, -50.0])
        above, below = (run.level for run in loop.record.runs[-2:])
        assert above > 0.99
        assert below < 0.01


def test_design_is_seeded_and_fills_the_space():
    first, again, other = (Optimiser(BOX, design=6, random_state=s).ask(6) for s in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    lower, upper = np.array(BOX).T
    assert ((first >= lower) & (first <= upper)).all()
    assert len(np.unique(first, axis=0)) == 6


def test_results_that_were_not_asked_for_count_as_design():
    X = np.random.default_rng(0).random((8, 2))
    loop = Optimiser(BOX, design=6)
    loop.tell(X, bowl(X))
    loop.ask()
    assert loop.record.surrogate.posterior.n_train == loop.n_runs == 8
    assert len(loop.pending) == 1


def test_points_of_a_table():
    axes = np.meshgrid(np.linspace(-1, 1, 8), np.linspace(0, 2, 8))
    rows = np.stack(axes, -1).reshape(-1, 2)
    loop = Optimiser(BOX, design=5)
    for _ in range(12):
        x = loop.ask(among=rows)
        assert (rows == x).all(1).any()
        loop.tell(x, bowl(x))
    asked = inputs(loop)
    assert len(np.unique(asked, axis=0)) == 12
    assert bowl(asked).max() == bowl(rows).max()
    assert 0.0 <= loop.remaining(0.5, among=rows) < 0.3
    assert loop.remaining(among=asked) == 0.0
    with pytest.raises(InvalidInputError, match="among: expected a point that has not been run"):
        loop.ask(among=asked)


# ------------------------------------------------------------------ inputs by name


def test_points_are_dicts_with_the_values_that_were_given():
    loop = Optimiser(MIXED, random_state=1)
    points = loop.ask(16)
    for point in points:
        assert list(point) == list(MIXED)
        assert 0 <= point["x"] <= 10
        assert type(point["k"]) is int
        assert point["k"] in MIXED["k"]
        assert point["solvent"] in MIXED["solvent"]
        assert 1e-3 <= point["t"] <= 1
    # Half of a logarithmic scale lies below the geometric mean.
    assert 6 <= sum(point["t"] < 0.0316 for point in points) <= 10
    assert loop.pending == points
    loop.tell(points, np.arange(16.0))
    assert loop.pending == []
    assert loop.best().x == points[-1]


def test_results_in_data_frames_and_lists_of_dicts():
    pd = pytest.importorskip("pandas")
    loop = Optimiser(MIXED)
    rows = [
        {"x": 1, "k": 2, "solvent": "water", "t": 0.1},
        {"x": 2, "k": 3, "solvent": "ethanol", "t": 1},
    ]
    frame = pd.DataFrame(rows)[["t", "solvent", "k", "x"]].assign(yields=[3.0, 5.0])
    loop.tell(rows, [3.0, 5.0])
    loop.tell(frame, frame["yields"])
    first, second, *again = loop.record.runs
    assert again == [first, second]
    columns = {name: frame[name] for name in ("solvent", "k")} | {"x": (0, 10), "t": (0, 1)}
    assert Optimiser(columns).record.space.categories == (2, 0, 0, 0)
    missing = pd.DataFrame(rows).assign(y=pd.Series([pd.NA, 4.0], dtype=object))
    loop.tell(missing, missing["y"])
    assert [run.failed for run in loop.record.runs[-2:]] == [True, False]
    assert loop.best().x == rows[1]
    assert loop.predict_interval(frame).shape == (2, 2)


def test_numbers_in_a_list_keep_their_order_and_others_are_categories():
    space = Space.of({"n": [64, 16, 32], "b": [True, False], "two": {3, 7}, "s": ("a", "b", "c")})
    assert space.categories == (0, 2, 0, 3)
    assert space.codes({"n": 16, "b": False, "two": 7, "s": "c"}).tolist() == [[0, 1, 1, 2]]
    assert space.points(torch.tensor([[2.0, 0, 0, 1]])) == [
        {"n": 64, "b": True, "two": 3, "s": "b"}
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([[0, 0, 0], [1, 1, 1]], r"one row \(low, high\) for each input, .*transpose it"),
        (torch.tensor([[0, 0], [1, 1]]), "expected names, .*, all lower .* bounds: transpose it"),
        ([0.0, 1.0], r"inputs: expected names, .*or one row \(low, high\)"),
        (Bounds([0, 3], [1, 2]), "inputs: expected names, .*or one row"),
        ([Log(1e-3, 1), range(3)], r"inputs: expected names, .* found \[Log\(low=0.001"),
        ("ab", "inputs: expected names, .* found ab"),
        ({}, "inputs: expected names, such as"),
        ({0: (0, 1)}, r"inputs: expected names, .* found \{0: \(0, 1\)\}"),
        ({"x": [0, 10]}, r"x: found \[0, 10\], .*write \(0, 10\) .* or \{0, 10\}"),
        ({"x": (1, 0)}, "x: expected low < high"),
        ({"x": (0, math.inf)}, r"x: expected low < high, both finite, found \(0.0, inf\)"),
        ({"x": (1e-3, 1, "log-uniform")}, r"x: found \(0.001, 1, 'log.*write .* Log\(low, high\)"),
        ({"x": ()}, "x: expected two or more different values"),
        ({"x": Log(0, 1)}, "x: expected 0 < low < high"),
        ({"x": 3}, r"x: expected \(low, high\), Log"),
        ({"x": "water"}, "x: expected .* a list of values, found 'water'"),
        ({"x": ["water"]}, "x: expected two or more different values"),
        ({"x": ["a", "a", "b"]}, "x: expected two or more different values"),
        ({"x": range(20_000)}, r"x: expected at most 10000 values, .* give \(low, high\)"),
    ],
)
def test_inputs_that_are_refused(given, message):
    with pytest.raises(InvalidInputError, match=message):
        Optimiser(given)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x": 11.0}, "x: expected a number between 0 and 10, found 11.0"),
        ({"x": None}, "x: expected a number between 0 and 10, found None"),
        ({"k": 2.5}, "k: expected one of 1, 2, .*, found 2.5"),
        ({"solvent": "watr"}, "found 'watr'; did you mean water"),
        ({"t": 0.0}, "t: expected a number between 0.001 and 1"),
    ],
)
def test_points_outside_of_the_space(changed, message):
    loop = Optimiser(MIXED)
    point = {"x": 10 + 1e-7, "k": 1, "solvent": "water", "t": 1}  # rounding
    loop.tell(point, 1.0)
    wrong = point | changed
    calls = [lambda: loop.tell(wrong, 1.0), lambda: loop.ask(among=[wrong])]
    for call in [*calls, lambda: loop.predict_interval(wrong)]:
        with pytest.raises(InvalidInputError, match=message):
            call()
    assert loop.record.runs[0].x == (10.0, 0.0, 0.0, 1.0)
    with pytest.raises(InvalidInputError, match="X: expected a value of 'k', found x"):
        loop.tell({"x": 1}, 1.0)
    with pytest.raises(InvalidInputError, match="X: expected a dict, a list of dicts or a data"):
        loop.tell([[1, 2, "water", 1]], 1.0)


def test_space_there_and_back():
    space = Space.of({"x": (0, 10), "k": range(-2, 5), "s": ["a", "b", "c"], "t": Log(1e-4, 10)})
    Z = space.sobol(64, seed=0)
    coded = space.from_unit(Z)
    torch.testing.assert_close(space.to_unit(coded), Z)
    assert {point["k"] for point in space.points(coded)} == set(range(-2, 5))
    assert set(coded[:, 2].tolist()) == {0.0, 1.0, 2.0}
    assert torch.equal(space.features(Z)[:, 2:5].sum(1), torch.ones(64).double())
    assert space.steps(categorical=False) == {1: [k / 6 for k in range(7)]}
    torch.testing.assert_close(space.codes(space.points(coded)), coded)
    for part in candidates(Region(space), Z[:2], seed=1):
        torch.testing.assert_close(space.to_unit(space.from_unit(part)), part)


@pytest.mark.slow
def test_mixed_inputs():
    """Largest at 0.6, 3 and the second of three kinds."""

    def mixed(point):
        return -((point["x"] - 0.6) ** 2) - 0.2 * (point["k"] - 3) ** 2 + (point["kind"] == "b")

    loop = Optimiser({"x": (0, 1), "k": range(7), "kind": ["a", "b", "c"]}, design=8)
    assert run(loop, mixed, 14).best().y > 0.95


# ------------------------------------------------------------------ the best point, and how it goes


def test_best_averages_runs_of_one_point():
    loop = Optimiser([(0, 1)], maximize=False)
    loop.tell([[0.1], [0.5], [0.5]], [2.0, 0.0, 3.0])
    assert (loop.best().x.tolist(), loop.best().y) == ([0.5], 1.5)


def test_best_of_noisy_results_has_an_interval():
    """The largest of many noisy results was lucky: the interval lies below it."""
    generator = np.random.default_rng(0)
    X = generator.random((40, 1))
    loop = Optimiser([(0, 1)])
    loop.tell(X, -4 * (X[:, 0] - 0.5) ** 2 + 0.2 * generator.normal(size=40))
    best = loop.best()
    low, high = best.interval
    assert low < -4 * (best.x[0] - 0.5) ** 2 < high < best.y
    assert low < best.model_y < best.y
    assert abs(best.model_x[0] - 0.5) < 0.2
    few = Optimiser([(0, 1)])
    few.tell([0.5], 1.0)
    assert few.best().interval is None


def test_repr_says_how_it_goes():
    loop = Optimiser(MIXED, maximize=False)
    assert repr(loop).startswith(
        "<Optimiser: goal: minimise, inputs: x 0 to 10; k 1 to 10 by 1; solvent water, ethanol; "
        "t 0.001 to 1 (log), runs: 0"
    )
    assert repr(loop).endswith("runs: 0, failed: 0, pending: 0>")
    points = loop.ask(3)
    loop.tell(points[:2], [None, 2.5])
    loop.remaining(0.1)
    assert "runs: 2, failed: 1, pending: 1, best: 2.5 at {'x':" in repr(loop)
    assert "100.0% for more than 0.1 after 2 runs" in loop._repr_html_()
    assert ">best</td>" in loop._repr_html_()
    arrays = Optimiser(BOX)
    arrays.tell([0.25, 1.0], 3.0)
    assert "inputs: x0 -1 to 1; x1 0 to 2" in repr(arrays)
    assert "best: 3 at [0.25 1.  ]" in repr(arrays)
    assert Optimiser(Bounds([-1, 0], [1, 2])).record.space == arrays.record.space
    small = Optimiser({"t": Log(1e-9, 1e-7)})
    small.tell({"t": 4.24329756e-9}, 3.0)
    assert "{'t': 4.2433e-09}" in repr(small)


# ------------------------------------------------------------------ batches


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_points_of_a_batch_are_apart(noise):
    """Also where nothing is left to gain, and where another run of the best point would pay."""
    generator = np.random.default_rng(0)
    loop = run(Optimiser(BOX, design=6), lambda x: bowl(x) + noise * generator.normal(), 14)
    batch = torch.from_numpy(loop.ask(8))
    apart = (batch[:, None] - batch).abs().amax(-1) / 2.0 + torch.eye(8)
    assert apart.min() >= APART
    assert len(loop.pending) == 8
    loop.tell(batch[1], bowl(batch[1]))
    assert np.array_equal(loop.pending, batch[[0, 2, 3, 4, 5, 6, 7]])


@pytest.mark.parametrize("inputs", [{"k": range(6)}, {"a": ["x", "y"], "k": range(3)}])
def test_a_design_of_few_values_repeats_none_while_there_are_others(inputs):
    for seed in range(5):
        loop = Optimiser(inputs, design=6, random_state=seed)
        loop.tell(loop.ask(2), [0.0, 1.0])
        loop.ask(4)
        first = [tuple(run.x) for run in loop.record.runs] + list(map(tuple, loop.record.pending))
        assert len(set(first)) == 6
        assert len(loop.ask(3)) == 3  # none is left


def test_a_batch_of_few_values_repeats_none_while_there_are_others():
    loop = Optimiser({"k": range(6)}, design=3)
    loop.tell([{"k": k} for k in (0, 2, 5)], [0.0, 2.0, 1.0])
    assert len({point["k"] for point in loop.ask(4)}) == 4


# ------------------------------------------------------------------ when to stop


def test_probability_of_a_gain_over_known_draws():
    """Independent normal gains: 1 - Phi(a)^m."""
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(20_000, 6, generator=generator, dtype=torch.float64)
    draws[:, 0] = 0.0
    below = float(torch.special.ndtr(torch.tensor(1.5)))
    for runs in (2, 5, 50):
        expected = 1 - below ** min(runs, 5)
        assert probability_of_gain(draws, 1.5, runs) == pytest.approx(expected, abs=0.01)


def test_points_that_are_alike_are_not_counted_twice():
    """Twins gain in the same draws: of two runs one is better spent on the other candidate."""
    draws = torch.zeros(10, 4, dtype=torch.float64)
    draws[:6, 1:3] = 1.0
    draws[6:9, 3] = 1.0
    assert [probability_of_gain(draws, 0.5, runs) for runs in (1, 2, 5)] == pytest.approx(
        [0.6, 0.9, 0.9]
    )
    assert probability_of_gain(draws[:, :1], 0.0, 5) == 0.0


def test_remaining_is_calibrated_where_the_model_is_right():
    """Functions drawn from a GP, on a grid: what is left to gain is gained as often as is said."""
    grid = np.linspace(0, 1, 30)[:, None]
    distance = np.abs(grid - grid.T) / 0.15
    factor = np.linalg.cholesky(np.exp(-0.5 * distance**2) + 1e-8 * np.eye(30))
    generator = np.random.default_rng(0)
    said, gained = [], []
    for seed in range(60):
        values = factor @ generator.normal(size=30)
        rows = generator.permutation(30)[:9]
        loop = Optimiser([(0, 1)], design=3, random_state=seed)
        loop.tell(grid[rows], values[rows])
        said.append(loop.remaining(0.3, among=grid))
        gained.append(values.max() > values[rows].max() + 0.3)
    # Surprises are allowed for: it errs on the side of going on, never by much on the other.
    assert np.mean(said) > np.mean(gained) - 3 * np.std(gained) / 60**0.5
    certain = np.array(said) < 0.2
    assert certain.any()
    assert np.mean(np.array(gained)[certain]) <= 0.2


def test_stop_when_little_is_left():
    loop = Optimiser(BOX, design=5)
    assert loop.remaining() == 1.0
    assert not loop.stop(amount=10.0)
    while not loop.stop(0.05, amount=0.3) and loop.n_runs < 40:
        x = loop.ask()
        loop.tell(x, bowl(x))
    assert loop.n_runs < 40
    assert loop.best().y > -0.3
    assert loop.remaining(0.0) > loop.remaining(1e-3) >= loop.remaining(0.3)
    titles = [ax.get_title(loc) for ax in loop.plot().axes for loc in ("left", "center")]
    assert "Left to gain" in titles


def test_results_that_do_not_differ_yet_are_no_reason_to_stop():
    """No product in the first runs says nothing about how much there could be."""
    loop = Optimiser(BOX, design=5)
    loop.tell(loop.ask(8), np.zeros(8))
    assert loop.remaining(np.float32(0.5)) == 1.0
    assert not loop.stop(amount=np.int64(1))
    loop.tell(loop.ask(), 1e-3)
    assert loop.remaining(100) < 0.5


def test_questions_about_stopping_that_are_refused():
    loop = Optimiser(BOX)
    with pytest.raises(TypeError, match="amount"):  # without one it would never stop
        loop.stop()
    for call, message in (
        (lambda: loop.remaining(-1.0), "amount: expected a nonnegative number, found -1.0"),
        (lambda: loop.remaining("much"), "amount: expected a nonnegative number"),
        (lambda: loop.remaining(1.0, runs=0), "runs"),
        (
            lambda: loop.stop(5, amount=1),
            r"probability: expected numbers in \(0, 1\), found 5; did",
        ),
    ):
        with pytest.raises(InvalidInputError, match=message):
            call()


# ------------------------------------------------------------------ what goes wrong


def test_failed_runs_are_recorded_and_avoided():
    """Everything to the right fails, the best bowl included."""
    loop = run(Optimiser(BOX, design=5), lambda x: None if x[0] > 0.0 else bowl(x), 16)
    failed = torch.tensor([record.x for record in loop.record.runs if record.failed])
    assert len(failed) >= 3
    assert torch.pdist(failed).min() > 0.01
    best = loop.best()
    assert best.x[0] <= 0.0
    assert best.y > -0.2
    assert "failed" in [t.get_text() for t in optimisation_figure(loop).axes[0].get_legend().texts]


@pytest.mark.parametrize("result", [None, math.nan, math.inf, -math.inf, np.nan, [None]])
def test_results_that_are_failures(result):
    loop = run(Optimiser(BOX, design=3), lambda x: result, 6)
    assert all(record.failed for record in loop.record.runs)
    with pytest.raises(InvalidInputError, match="best: expected a run with a result"):
        loop.best()


@pytest.mark.slow
def test_outlier_does_not_stop_the_search(all_candidates):
    calls = []

    def once_wrong(x):
        calls.append(x)
        return bowl(x) - (40.0 if len(calls) == 7 else 0.0)

    loop = run(Optimiser(BOX, design=6), once_wrong, 18)
    by_chance = BOX_AREA * math.log(2) / (18 * math.pi)  # the median of 18 random points
    assert bowl(inputs(loop)).max() > -by_chance
    assert loop.record.data()[1].min() > -3.0
    assert min(run.y for run in loop.record.runs) < -40.0


@pytest.mark.slow
def test_noise_that_is_known():
    """Two runs at one place: the one with less noise counts."""
    X = np.random.default_rng(0).random((8, 2)) * 2.0 - [1.0, 0.0]
    loop = Optimiser(BOX, design=6)
    loop.tell(X, bowl(X))
    loop.ask()
    loop.tell(X, bowl(X), noise=np.full(8, 1e-4))
    loop.tell([0.3, 1.4], 3.0, noise=25.0)
    loop.tell([0.3, 1.4], 0.0, noise=1e-4)
    loop.ask()
    gp = loop.record.surrogate.gp
    assert gp.rows.noise is not None
    assert abs(float(gp.mean(loop.record.features(loop.record.unit([[0.3, 1.4]]))))) < 0.3
    assert loop.remaining(0.1) < 1.0
    with pytest.raises(InvalidInputError, match="noise: expected nonnegative variances"):
        loop.tell([0.3, 1.4], 0.0, noise=-1.0)


def test_scores_of_results_with_known_noise_are_in_units_of_that_noise():
    """Otherwise noise that was announced would count as surprise after surprise."""
    generator = np.random.default_rng(1)
    X = generator.random((30, 2)) * 2.0 - [1.0, 0.0]
    loop = Optimiser(BOX)
    loop.tell(X, bowl(X) + 0.3 * generator.normal(size=30), noise=np.full(30, 0.09))
    loop.ask()
    X = generator.random((40, 2)) * 2.0 - [1.0, 0.0]
    loop.tell(X, bowl(X) + 0.3 * generator.normal(size=40), noise=np.full(40, 0.09))
    scores = [run.score for run in loop.record.runs[30:]]
    assert 0.7 < np.std(scores) < 1.4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"acquisition": "ei"}, "acquisition: expected one of logei, ucb"),
        ({"delta": 1.0}, "delta: expected numbers in"),
        ({"delta": "high"}, "delta: expected numbers in"),
        ({"design": 0}, "design"),
        ({"random_state": None}, "random_state: expected a whole number"),
    ],
)
def test_settings_that_are_refused(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        Optimiser(BOX, **settings)


# ------------------------------------------------------------------ the model


def test_chosen_model_predicts_left_out_points_best(all_candidates, monkeypatch):
    X = torch.linspace(0, 3, 14, dtype=torch.float64)[:, None]
    y = (2.5 * X[:, 0]).exp()
    chosen = choose(X, y)
    assert isinstance(chosen.posterior, WarpedPosterior)
    monkeypatch.setattr(surrogate, "MIN_WARPED", math.inf)
    plain = choose(X, y)
    assert plain.warp is None
    assert left_out_density(chosen.posterior) > left_out_density(plain.posterior)
    torch.testing.assert_close(chosen.outward(chosen.inward(y)), y)


def test_the_smoother_kernel_has_to_earn_its_place(all_candidates, monkeypatch):
    """Many points of a smooth function speak for it, a few of one with a kink do not."""
    monkeypatch.setattr(surrogate, "MIN_WARPED", math.inf)
    for function, n, kernel in ((torch.sin, 24, "rbf"), (torch.abs, 9, "matern52")):
        X = torch.linspace(0, 1, n, dtype=torch.float64)[:, None]
        assert choose(X, function(6.0 * X[:, 0] - 2.2)).gp.covariance.kind == kernel


def test_left_out_density_is_that_of_refits():
    """Hyperparameters kept: each point under the GP conditioned on all others."""
    X = torch.linspace(0, 3, 9, dtype=torch.float64)[:, None]
    y = X[:, 0].sin() + 2.0
    gp = train(X, y, "matern52")[0]
    total = 0.0
    for i in range(9):
        rest = torch.arange(9) != i
        part = gp.conditioned_on(X[rest], y[rest])
        sigma = part.sigma(part.theta_R[None], X[i : i + 1])[0]
        total += float(torch.distributions.Normal(part.mean(X[i : i + 1]), sigma).log_prob(y[i]))
    assert left_out_density(gp) == pytest.approx(total, rel=1e-6)


@pytest.mark.slow
def test_all_candidates_are_tried_again_when_the_data_have_grown():
    loop = run(Optimiser(BOX, design=8), bowl, 9)
    assert loop.record.surrogate.trained_on == 8
    loop.ask()
    assert loop.record.surrogate.trained_on == 8
    run(loop, bowl, math.ceil(8 * GROWTH) - 9)
    loop.ask()
    assert loop.record.surrogate.trained_on == math.ceil(8 * GROWTH)


# ------------------------------------------------------------------ what is told


@pytest.mark.parametrize("kind", ["float32", "whole units"])
def test_rounded_points_are_no_longer_pending(kind):
    """Otherwise they are avoided for ever, and counted twice."""
    loop = Optimiser([(0, 10), (1, 80)], design=4)
    asked = loop.ask(2)
    told = asked.astype(np.float32) if kind == "float32" else asked.round()
    loop.tell(told, [1.0, 2.0])
    assert len(loop.pending) == 0
    loop.ask()
    loop.tell([5.0, 40.0], 1.0)  # another point
    assert len(loop.pending) == 1


def test_results_of_other_kinds():
    loop = Optimiser(BOX)
    with pytest.raises(InvalidInputError, match="expected a run with a result, found none"):
        loop.predict_interval([[0.0, 1.0]])
    x = torch.tensor([[0.1, 1.0]], requires_grad=True)
    loop.tell(x, bowl(x))
    assert loop.record.runs[0].y == pytest.approx(-0.2)
    for x, y, message in (
        ([0.0, 1.0], "failed", "y: expected numbers, found 'failed'; tell None for a run that"),
        ({"x": 0.0, "y": 1.0}, 1.0, r"X: expected points of 2 input\(s\), found a dict"),
        ([0.0, 1.0], [1.0, 2.0], "y: expected 1 number"),
        ([[0.5, 1.0], [0.0, 1.0]], [math.nan, -1e300], r"y: expected magnitudes .* tell None"),
        ([0.0, 1.0, 2.0], 1.0, r"X: expected points of 2 input\(s\), found shape \(3,\)"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            loop.tell(x, y)


def test_intervals_far_from_all_runs_are_not_warned_of():
    """Distances would be in units that the user has not seen, and a search has to go far."""
    loop = Optimiser([(0, 80)])
    loop.tell([[1.0], [2.0], [3.0]], [1.0, 2.0, 1.5])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        near, far = np.diff(loop.predict_interval([[2.5], [70.0]]))[:, 0]
    assert far > near


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_results_whose_squares_are_no_numbers_are_refused(unit):
    loop = Optimiser([(0, 1)], design=4)

    def run():
        for k in range(5):
            loop.tell(loop.ask(), unit * (1.0 + k))

    with pytest.raises(InvalidInputError, match=r"^y: expected .* choose other units"):
        run()


# ------------------------------------------------------------------ files


def noisy(x):
    return bowl(x) + 0.01 * math.cos(91 * x[0])


def test_a_loop_that_was_killed_goes_on_the_same(tmp_path):
    whole = run(Optimiser(BOX, design=5, random_state=3), noisy, 8)
    loop = Optimiser(BOX, design=5, random_state=3, file=tmp_path / "run.sgp")
    for step in range(8):
        if step in (2, 6):
            loop = Optimiser.load(tmp_path / "run.sgp")
        x = loop.ask()
        if step == 7:  # killed between question and answer
            loop = Optimiser.load(tmp_path / "run.sgp")
            assert np.array_equal(loop.pending, x[None])
        loop.tell(x, noisy(x))
    assert loop.record.runs == whole.record.runs
    assert np.array_equal(loop.ask(), whole.ask())
    assert torch.equal(loop.record.surrogate.gp.theta_R, whole.record.surrogate.gp.theta_R)


def test_a_program_that_is_run_again_goes_on_where_it_was_killed(tmp_path):
    """The point whose run was killed is asked for again, and no other changes."""
    whole = run(Optimiser(BOX, design=5), noisy, 8)

    def program(killed_at):
        loop = Optimiser(BOX, design=5, file=tmp_path / "run.sgp")
        while loop.n_runs < 8:
            x = loop.ask()
            if loop.n_runs == killed_at:
                return loop
            loop.tell(x, noisy(x))
        return loop

    for killed_at in (3, 3, 7, None):
        loop = program(killed_at)
    assert loop.record.runs == whole.record.runs
    assert len(loop.pending) == 0
    for inputs, settings, found in (
        (BOX, {"design": 6}, "found other design in"),
        (BOX, {"maximize": False, "random_state": 1}, "found other maximize, random_state in"),
        ({"x": (0, 1)}, {"design": 5}, "found other inputs in .*Optimiser.load"),
    ):
        with pytest.raises(InvalidInputError, match=f"same inputs and settings, {found}"):
            Optimiser(inputs, **settings, file=tmp_path / "run.sgp")


def test_files_keep_names_failures_and_answers(tmp_path):
    loop = Optimiser(MIXED, file=tmp_path / "run.sgp")
    asked = loop.ask()
    loop.tell(asked, None)
    loop.remaining(0.5)
    again = Optimiser.load(tmp_path / "run.sgp")
    assert again.record.runs[0].failed
    assert again.record.checks == [[1.0, 0.5, 1.0]]
    assert again.ask() == loop.ask()
    assert again.record.space == loop.record.space


def test_files_of_other_things_are_refused(tmp_path):
    X = torch.rand(5, 2, dtype=torch.float64)
    save(train(X, bowl(X))[0], tmp_path / "gp.sgp")
    with pytest.raises(InvalidInputError, match="file: expected an optimisation, found a Exact"):
        Optimiser.load(tmp_path / "gp.sgp")
    (tmp_path / "run.sgp").write_bytes(b"damaged")
    with pytest.raises(SharpGPError, match="cannot load"):
        Optimiser.load(tmp_path / "run.sgp")
