"""Ask and tell: designs, models, failures, whole numbers, noise known or learned, files."""

import math
import warnings

import numpy as np
import pytest
import torch

from sharpgp.bo import Optimiser
from sharpgp.bo.feasibility import Feasibility, MindingFailures
from sharpgp.bo.search import candidates
from sharpgp.bo.space import Space
from sharpgp.bo.surrogate import GROWTH, choose, left_out_density
from sharpgp.exceptions import InvalidInputError, SharpGPError
from sharpgp.gp.training import train
from sharpgp.gp.warped import WarpedPosterior
from sharpgp.persistence import save
from sharpgp.plots import optimisation_figure

BOX = [[-1.0, 0.0], [1.0, 2.0]]
BOX_AREA = 4.0


def bowl(X):
    """Largest, 0, at (0.3, 1.4)."""
    return -((X[:, 0] - 0.3) ** 2) - (X[:, 1] - 1.4) ** 2


def run(loop, function, steps):
    for _ in range(steps):
        x = loop.ask()
        loop.tell(x, function(x))
    return loop


def quick(*args, **settings):
    """One kernel and no warp: the choice has tests of its own."""
    return Optimiser(*args, kernels=["rbf"], warp=False, **settings)


# ------------------------------------------------------------------ the loop


@pytest.mark.parametrize(
    "acquisition", ["logei", pytest.param("ucb", marks=pytest.mark.slow), "thompson"]
)
def test_finds_a_maximum(acquisition):
    loop = run(quick(BOX, acquisition=acquisition, design=5), bowl, 12)
    x, value = loop.best()
    assert value > -0.02
    torch.testing.assert_close(x, torch.tensor([0.3, 1.4]).double(), rtol=0, atol=0.15)
    asked = [run.level for run in loop.record.runs]
    assert asked[:5] == [None] * 5
    assert all(0 <= level <= 1 for level in asked[5:])


@pytest.mark.slow
def test_finds_a_minimum():
    loop = run(quick(BOX, maximize=False, design=5), lambda X: 7.0 - bowl(X), 12)
    x, value = loop.best()
    assert value == pytest.approx(7.0, abs=0.02)
    low, high = loop.predict_interval(x[None], 0.9)[0].tolist()
    assert low < value < high
    assert optimisation_figure(loop).axes[1].get_ylabel() == "inside so far"


def test_levels_of_minimisation_are_those_of_the_results():
    """A result above all that is expected has a level near 1, whatever the direction."""
    for maximize in (True, False):
        loop = run(quick(BOX, maximize=maximize, design=6), bowl, 6)
        x = loop.ask()
        assert loop.level_of(x, 50.0) > 0.99
        assert loop.level_of(x, -50.0) < 0.01


def test_design_is_seeded_and_fills_the_space():
    first, again, other = (Optimiser(BOX, design=6, random_state=s).ask(6) for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    lower, upper = torch.tensor(BOX).double()
    assert ((first >= lower) & (first <= upper)).all()
    assert len(first.unique(dim=0)) == 6


def test_results_that_were_not_asked_for_count_as_design():
    X = torch.rand(8, 2, dtype=torch.float64)
    loop = quick(BOX, design=6)
    loop.tell(X, bowl(X))
    loop.ask()
    assert loop.record.surrogate.posterior.n_train == 8
    assert len(loop.pending) == 1


def test_pending_points_are_kept_apart():
    loop = run(quick(BOX, design=5), bowl, 9)
    batch = loop.ask(3)
    assert torch.pdist(batch).min() > 1e-3
    assert len(loop.pending) == 3
    loop.tell(batch[1], bowl(batch[1:2]))
    assert torch.equal(loop.pending, batch[[0, 2]])


def test_points_of_a_table():
    rows = torch.cartesian_prod(*[torch.linspace(0, 1, 8, dtype=torch.float64)] * 2)
    rows = rows * torch.tensor([2.0, 2.0]).double() - torch.tensor([1.0, 0.0]).double()
    loop = quick(BOX, design=5)
    for _ in range(12):
        x = loop.ask(among=rows)
        assert (rows == x).all(1).any()
        loop.tell(x, bowl(x))
    asked = torch.tensor([run.x for run in loop.record.runs], dtype=torch.float64)
    assert len(asked.unique(dim=0)) == 12
    assert bowl(asked).max() == bowl(rows).max()
    with pytest.raises(InvalidInputError, match="among: expected a point that has not been run"):
        loop.ask(among=asked)


# ------------------------------------------------------------------ what goes wrong


def test_failed_runs_are_recorded_and_avoided():
    """Everything to the right fails, the best bowl included."""

    def failing(X):
        y = bowl(X)
        return torch.where(X[:, 0] > 0.0, torch.nan, y)

    loop = run(quick(BOX, design=5), failing, 16)
    failed = torch.tensor([record.x for record in loop.record.runs if record.failed])
    assert len(failed) >= 3
    assert torch.pdist(failed).min() > 0.01
    x, value = loop.best()
    assert x[0] <= 0.0
    assert value > -0.2
    assert "failed" in [t.get_text() for t in optimisation_figure(loop).axes[0].get_legend().texts]


def test_only_failures_fill_the_space():
    loop = run(quick(BOX, design=3), lambda X: X[:, 0] * torch.inf, 6)
    assert all(record.failed for record in loop.record.runs)
    with pytest.raises(InvalidInputError, match="best: expected a run with a result"):
        loop.best()


def test_probability_of_success_and_its_gradient():
    X = torch.rand(6, 2, dtype=torch.float64)
    succeeded = torch.tensor([True, False] * 3)
    chance = Feasibility(X, succeeded)
    squares = (X[:, None] - X).square().sum(-1) / 2
    k = sum(w * torch.exp(-0.5 * squares / h**2) for h, w in ((0.2, 1), (0.05, 4), (0.0125, 16)))
    expected = (0.05 + k[:, succeeded].sum(1)) / (0.05 + k.sum(1))
    torch.testing.assert_close(chance(X), expected**3)
    assert torch.autograd.gradcheck(chance, X.clone().requires_grad_())


def test_value_falls_to_the_floor_where_runs_fail():
    from botorch.acquisition import UpperConfidenceBound

    from sharpgp.bo import as_botorch

    X = torch.rand(8, 2, dtype=torch.float64)
    bound = UpperConfidenceBound(as_botorch(train(X, bowl(X))[0]), beta=4.0)
    chance = Feasibility(X, torch.tensor([False] * 8))
    value = bound(X.unsqueeze(1))
    minded = MindingFailures(bound, chance, floor=-5.0)(X.unsqueeze(1))
    torch.testing.assert_close(minded, -5.0 + (value + 5.0) * chance(X))
    assert (minded < -4.9).all()
    logs = MindingFailures(bound, chance, floor=None)(X.unsqueeze(1))
    torch.testing.assert_close(logs, value + chance(X).log())


@pytest.mark.slow
def test_outlier_does_not_stop_the_search():
    calls = []

    def once_wrong(X):
        calls.append(len(X))
        return bowl(X) - (40.0 if len(calls) == 7 else 0.0)

    loop = run(Optimiser(BOX, design=6), once_wrong, 18)
    by_chance = BOX_AREA * math.log(2) / (18 * math.pi)  # the median of 18 random points
    assert bowl(torch.tensor([run.x for run in loop.record.runs])).max() > -by_chance
    assert loop.record.data()[1].min() > -3.0
    assert min(run.y for run in loop.record.runs) < -40.0


@pytest.mark.slow
def test_noise_that_is_known():
    """Two runs at one place: the one with less noise counts."""
    X = torch.rand(8, 2, dtype=torch.float64) * 2.0 - torch.tensor([1.0, 0.0]).double()
    loop = quick(BOX, design=6)
    loop.tell(X, bowl(X), noise=np.full(8, 1e-4))
    place = torch.tensor([[0.3, 1.4]]).double()
    loop.tell(place, 3.0, noise=25.0)
    loop.tell(place, 0.0, noise=1e-4)
    loop.ask()
    gp = loop.record.surrogate.gp
    assert gp.covariance.known_noise
    assert abs(float(gp.mean(loop.record.features(loop.record.space.to_unit(place))))) < 0.3
    with pytest.raises(InvalidInputError, match="noise: expected nonnegative variances"):
        loop.tell(place, 0.0, noise=-1.0)


def test_noise_that_is_learned(tmp_path):
    """Next to none on the left, and much on the right."""
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(60, 1, generator=generator, dtype=torch.float64)
    draws = torch.randn(60, generator=generator, dtype=torch.float64)
    y = (4.0 * X[:, 0]).sin() + (0.01 + (X[:, 0] > 0.5)) * draws
    ends = torch.tensor([[0.2], [0.8]], dtype=torch.float64)
    ratio = {}
    for noise in ("same", "learned"):
        loop = quick([[0.0], [1.0]], noise=noise, file=tmp_path / f"{noise}.sgp")
        loop.tell(X, y)
        assert 0.0 <= float(loop.ask()) <= 1.0
        left, right = loop.predict_interval(ends, 0.8).diff(dim=1)[:, 0].tolist()
        ratio[noise] = right / left
        assert loop.record.surrogate.knows_noise == (noise == "learned")
        again = Optimiser.load(tmp_path / f"{noise}.sgp")
        torch.testing.assert_close(again.predict_interval(ends), loop.predict_interval(ends))
    assert ratio["same"] < 1.5
    assert ratio["learned"] > 3.0
    # Between two choices the noise is kept, and the GP trained on.
    loop.tell(loop.pending, 0.0)
    kept = loop.record.surrogate.noise
    loop.ask()
    assert loop.record.surrogate.noise is kept
    # Variances that are told count for more than those that are learned.
    loop.tell([0.5], 0.0, noise=0.01)
    loop.ask()
    assert loop.record.surrogate.told_noise


def test_what_is_refused():
    for wrong, message in (
        ({"bounds": [0.0, 1.0]}, "bounds: expected lower and upper ones"),
        ({"bounds": [[1.0], [0.0]]}, "bounds: expected finite numbers, each lower"),
        ({"acquisition": "ei"}, "acquisition: expected one of logei, ucb, thompson"),
        ({"calibration": "lower"}, "calibration: expected one of all, upper, none"),
        ({"kernels": ["cubic"]}, "kernels: expected one of"),
        ({"delta": 1.0}, "delta: expected a level"),
        ({"integer": [2]}, "integer: expected positions below 2"),
        ({"bounds": [[0.0], [1.5]], "integer": [0]}, "bounds: expected whole numbers"),
        ({"integer": [0], "categorical": [0]}, "categorical: expected inputs that are not"),
        ({"design": 0}, "design"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            Optimiser(**{"bounds": BOX, **wrong})
    loop = Optimiser(BOX)
    with pytest.raises(InvalidInputError, match="y: expected 1 number"):
        loop.tell([0.0, 1.0], [1.0, 2.0])


# ------------------------------------------------------------------ whole numbers and categories


def test_space_there_and_back():
    space = Space.of([[0.0, -2, 0], [10.0, 4, 2]], integer=[1], categorical=[2])
    Z = space.sobol(64, seed=0)
    X = space.from_unit(Z)
    torch.testing.assert_close(space.to_unit(X), Z)
    assert set(X[:, 1].tolist()) == {float(k) for k in range(-2, 5)}
    assert set(X[:, 2].tolist()) == {0.0, 1.0, 2.0}
    assert torch.equal(space.features(Z)[:, 2:].sum(1), torch.ones(64).double())
    assert space.steps([1]) == {1: [k / 6 for k in range(7)]}
    wide, near = candidates(space, Z[:2], seed=1)
    for part in (wide, near):
        torch.testing.assert_close(space.to_unit(space.from_unit(part)), part)


@pytest.mark.slow
def test_mixed_inputs():
    """Largest at 0.6, 3 and the second of three kinds."""

    def mixed(X):
        kind = (X[:, 2] == 1).double()
        return -((X[:, 0] - 0.6) ** 2) - 0.2 * (X[:, 1] - 3) ** 2 + kind

    loop = quick([[0.0, 0, 0], [1.0, 6, 2]], integer=[1], categorical=[2], design=8)
    run(loop, mixed, 14)
    asked = torch.tensor([run.x for run in loop.record.runs])
    assert torch.equal(asked[:, 1:], asked[:, 1:].round())
    assert mixed(asked).max() > 0.95


# ------------------------------------------------------------------ the model


def test_chosen_model_predicts_left_out_points_best():
    X = torch.linspace(0, 3, 14, dtype=torch.float64)[:, None]
    y = (2.5 * X[:, 0]).exp()
    chosen = choose(X, y)
    assert isinstance(chosen.posterior, WarpedPosterior)
    plain = choose(X, y, warped=False)
    assert plain.warp is None
    assert left_out_density(chosen.posterior) > left_out_density(plain.posterior)
    torch.testing.assert_close(chosen.outward(chosen.inward(y)), y)


def test_the_smoother_kernel_has_to_earn_its_place():
    """Many points of a smooth function speak for it, a few of one with a kink do not."""
    for function, n, kernel in ((torch.sin, 24, "rbf"), (torch.abs, 9, "matern52")):
        X = torch.linspace(0, 1, n, dtype=torch.float64)[:, None]
        assert choose(X, function(6.0 * X[:, 0] - 2.2), warped=False).kernel == kernel


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
    loop = run(quick(BOX, design=8), bowl, 9)
    assert loop.record.surrogate.trained_on == 8
    loop.ask()
    assert loop.record.surrogate.trained_on == 8
    run(loop, bowl, math.ceil(8 * GROWTH) - 9)
    loop.ask()
    assert loop.record.surrogate.trained_on == math.ceil(8 * GROWTH)


# ------------------------------------------------------------------ what is told


@pytest.mark.parametrize("kind", ["float32", "four digits"])
def test_rounded_points_are_no_longer_pending(kind):
    """Otherwise they are avoided for ever, and counted twice."""
    loop = Optimiser([[0.0, 1.0], [10.0, 80.0]], design=4)
    asked = loop.ask(2)
    told = asked.float() if kind == "float32" else (100 * asked).round() / 100
    loop.tell(told, [1.0, 2.0])
    assert len(loop.pending) == 0
    loop.ask()
    loop.tell([5.0, 40.0], 1.0)  # another point
    assert len(loop.pending) == 1


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([11.0, 2, 1], "between 0 and 10 for input 0, found 11"),
        ([5.0, 1.5, 1], "whole numbers for input 1, found 1.5"),
        ([5.0, 2, 3], "between 0 and 2 for input 2, found 3"),
        ([5.0, 2], "expected 3 features"),
        (["a", 2, 1], "X: expected numbers"),
    ],
)
def test_inputs_outside_of_the_space(x, message):
    """A code that there is not would be a category of its own, and ``best`` might name it."""
    loop = Optimiser([[0.0, 0, 0], [10.0, 4, 2]], integer=[1], categorical=[2])
    calls = [lambda: loop.tell(x, 1.0), lambda: loop.ask(among=[x])]
    loop.tell([10.0 + 1e-7, 1, 0], 1.0)  # rounding
    for call in [*calls, lambda: loop.predict_interval([x])]:
        with pytest.raises(InvalidInputError, match=message):
            call()
    assert loop.record.runs[0].x == (10.0, 1.0, 0.0)


def test_results_of_other_kinds():
    loop = Optimiser(BOX)
    with pytest.raises(InvalidInputError, match="expected a run with a result, found none"):
        loop.predict_interval([[0.0, 1.0]])
    x = torch.tensor([[0.1, 1.0]], requires_grad=True)
    loop.tell(x, bowl(x))
    assert loop.record.runs[0].y == pytest.approx(-0.2)
    with pytest.raises(InvalidInputError, match="y: expected numbers"):
        loop.tell([0.0, 1.0], "failed")
    with pytest.raises(InvalidInputError, match=r"y: expected magnitudes below .* tell NaN"):
        loop.tell([[0.5, 1.0], [0.0, 1.0]], [float("nan"), -1e300])


def test_intervals_far_from_all_runs_are_not_warned_of():
    """Distances would be in units that the user has not seen, and a search has to go far."""
    loop = quick([[0.0], [80.0]])
    loop.tell([[1.0], [2.0], [3.0]], [1.0, 2.0, 1.5])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        near, far = loop.predict_interval([[2.5], [70.0]]).diff(dim=1)[:, 0].tolist()
    assert far > near


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bounds": "ab"}, "bounds: expected numbers"),
        ({"integer": 1}, r"integer: expected positions of inputs, such as \[0\], found 1"),
        ({"categorical": ["x"]}, "categorical: expected positions"),
        ({"kernels": []}, r"kernels: expected a list of names, found \[\]"),
        ({"kernels": "rbf"}, "kernels: expected a list of names, found 'rbf'"),
        ({"delta": "high"}, "delta: expected a level"),
        ({"random_state": None}, "random_state: expected a whole number"),
    ],
)
def test_settings_of_another_kind(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        Optimiser(settings.pop("bounds", BOX), **settings)


def test_bounds_may_be_a_frame():
    pd = pytest.importorskip("pandas")
    assert Optimiser(pd.DataFrame(BOX)).ask().shape == (1, 2)


# ------------------------------------------------------------------ files


def test_a_loop_that_was_killed_goes_on_the_same(tmp_path):
    def noisy(X):
        return bowl(X) + 0.01 * torch.cos(91 * X[:, 0])

    whole = run(quick(BOX, design=5, random_state=3), noisy, 8)
    loop = quick(BOX, design=5, random_state=3, file=tmp_path / "run.sgp")
    for step in range(8):
        if step in (2, 6):
            loop = Optimiser.load(tmp_path / "run.sgp")
        x = loop.ask()
        if step == 7:  # killed between question and answer
            loop = Optimiser.load(tmp_path / "run.sgp")
            assert torch.equal(loop.pending, x)
        loop.tell(x, noisy(x))
    assert loop.record.runs == whole.record.runs
    assert torch.equal(loop.ask(), whole.ask())
    assert torch.equal(loop.record.surrogate.gp.theta_R, whole.record.surrogate.gp.theta_R)


def test_a_program_that_is_run_again_does_not_overwrite_the_file(tmp_path):
    Optimiser(BOX, file=tmp_path / "run.sgp").tell([0.0, 1.0], 2.0)
    with pytest.raises(InvalidInputError, match=r"file: expected a new one, .*Optimiser\.load"):
        Optimiser(BOX, file=tmp_path / "run.sgp")
    assert len(Optimiser.load(tmp_path / "run.sgp").record.runs) == 1


def test_files_keep_failures_and_refuse_other_things(tmp_path):
    loop = Optimiser(BOX, categorical=(), file=tmp_path / "run.sgp")
    loop.tell([0.0, 1.0], math.nan)
    again = Optimiser.load(tmp_path / "run.sgp")
    assert again.record.runs[0].failed
    X = torch.rand(5, 2, dtype=torch.float64)
    save(train(X, bowl(X))[0], tmp_path / "gp.sgp")
    with pytest.raises(InvalidInputError, match="file: expected an optimisation, found a Exact"):
        Optimiser.load(tmp_path / "gp.sgp")
    (tmp_path / "run.sgp").write_bytes(b"damaged")
    with pytest.raises(SharpGPError, match="cannot load"):
        Optimiser.load(tmp_path / "run.sgp")


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_results_whose_squares_are_no_numbers_are_refused(unit):
    loop = Optimiser([[0.0], [1.0]], design=4)

    def run():
        for k in range(5):
            loop.tell(loop.ask(), unit * (1.0 + k))

    with pytest.raises(InvalidInputError, match=r"^y: expected .* choose other units"):
        run()
