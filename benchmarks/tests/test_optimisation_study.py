"""Optimisations from small designs: loops that are compared, tasks, tables and figures."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import wilcoxon

from sharpgp.bo import Optimiser
from sharpgp.exceptions import InvalidInputError
from sharpgp_benchmarks import regret
from sharpgp_benchmarks.evidence import bo_stopping
from sharpgp_benchmarks.optimisation import coco, experiment, tables
from sharpgp_benchmarks.optimisation.methods import METHODS
from sharpgp_benchmarks.optimisation.problems import PROBLEMS, Problem, problem_of
from sharpgp_benchmarks.optimisation.trust_region import FIRST, SMALLEST, SUCCESSES, TrustRegion
from sharpgp_benchmarks.store import Store
from sharpgp_benchmarks.task import Result, Task, perform

SQUARE = Problem(
    torch.tensor([[-1.0, -1.0], [1.0, 3.0]], dtype=torch.float64),
    lambda X: -X.square().sum(-1),
    optimum=0.0,
)


def started(problem=SQUARE, seed=0):
    generator = torch.Generator().manual_seed(seed)
    X = problem.design(generator)
    return TrustRegion(problem, X, problem.observe(X, generator), seed)


# ------------------------------------------------------------------ the trust region


def test_region_halves_after_failures_doubles_after_successes_and_starts_afresh():
    loop = started()
    loop.ask()
    x, best = torch.zeros(1, 2, dtype=torch.float64), float(loop.y.max())
    for _ in range(4):
        assert loop.side == FIRST
        loop.tell(x, torch.tensor([best - 1.0], dtype=torch.float64))
    assert loop.side == FIRST / 2
    for k in range(SUCCESSES):
        assert loop.side == FIRST / 2
        loop.tell(x, torch.tensor([best + 1.0 + k], dtype=torch.float64))
    assert loop.side == FIRST
    loop.side, loop.failures = SMALLEST, 3
    loop.tell(x, torch.tensor([best - 1.0], dtype=torch.float64))
    assert loop.side == FIRST
    assert loop.forgotten == len(loop.y)
    # A design of its own, which no model predicts.
    assert SQUARE.bounds[0].le(loop.ask()).all()
    assert loop.levels(x, loop.y[:1]) == [None]


def test_candidates_lie_in_the_region_around_the_best_point():
    loop = started()
    x = loop.ask()
    centre = loop.X[int(loop.y.argmax())]
    loop.side = 0.1
    box = loop._box(centre)
    lengths = loop.model.covar_module.lengthscale.reshape(-1)
    sides = (box[1] - box[0]) / (SQUARE.bounds[1] - SQUARE.bounds[0])
    inside = (box[0] > SQUARE.bounds[0]).all() and (box[1] < SQUARE.bounds[1]).all()
    assert inside
    # In the ratio of the lengthscales, with the volume of a cube of this side.
    torch.testing.assert_close(sides[0] / sides[1], lengths[0] / lengths[1])
    torch.testing.assert_close(sides.prod(), torch.tensor(0.01, dtype=torch.float64))
    points = loop._candidates(centre, box)
    assert points.shape == (200, 2)
    assert ((points >= box[0]) & (points <= box[1])).all()
    assert not (points == centre).all(1).any()
    assert 0.0 < loop.levels(x, SQUARE.function(x))[0] < 1.0


def test_region_of_a_table_has_its_rows():
    grid = torch.cartesian_prod(*[torch.linspace(-1, 1, 9, dtype=torch.float64)] * 2)
    bounds = torch.tensor([[-1.0, -1.0], [1.0, 1.0]], dtype=torch.float64)
    table = Problem(bounds, SQUARE.function, 0.0, rows=grid)
    loop = started(table)
    for side in (FIRST, 1e-6):  # the second has no row in it: the nearest is taken
        loop.side = side
        x = loop.ask()
        assert (grid == x).all(1).any()
        assert not (x == loop.X).all(1).any()
        loop.tell(x, table.function(x))


# ------------------------------------------------------------------ tasks


def test_plan_has_whole_repetitions_first():
    tasks = experiment.plan(["branin", "levy4"], ["logei", "turbo"], repeats=3, iterations=5)
    assert [task.seed for task in tasks] == sorted(task.seed for task in tasks)
    assert len(experiment.plan()) == 20 * len(PROBLEMS) * 7
    with pytest.raises(InvalidInputError, match="methods: expected one of logei, ucb"):
        experiment.plan(methods=["ei"])


@pytest.mark.parametrize(
    "method", ["random", "turbo", pytest.param("botorch_ucb", marks=pytest.mark.slow)]
)
def test_one_task(method):
    result = perform(Task("optimisation", "branin", method, 0, {"iterations": 2}), {})
    assert result.status == "ok", result.error
    assert len(result.info["regret"]) == 2
    assert result.metrics["simple_regret"] <= result.info["start"]
    again = perform(result.task, {})
    assert again.metrics == result.metrics


def test_a_task_that_takes_too_long_fails(monkeypatch):
    monkeypatch.setattr(experiment, "MOST_SECONDS", 0.0)
    result = perform(Task("optimisation", "branin", "random", 0, {"iterations": 9}), {})
    assert result.status == "failed"
    assert "found more after 1 points; ask for fewer iterations" in result.error


def test_noise_is_left_out_of_regrets():
    problem = problem_of("heteroscedastic")
    X = problem.design(torch.Generator().manual_seed(0))
    draws = [problem.observe(X, torch.Generator().manual_seed(seed)) for seed in (1, 2)]
    assert not draws[0].equal(draws[1])
    torch.testing.assert_close(problem.regret(X), problem.optimum - problem.function(X))


# ------------------------------------------------------------------ tables and figures


def results(better=10):
    """Ten repetitions; ours is ahead in the first few, by more and more."""
    for seed in range(10):
        gain = (0.1 + 0.01 * seed) * (1 if seed < better else -1)
        ours = {"logei": 1.0 - gain, "botorch_logei": 1.0, "random": 20.0}
        for method, value in ours.items():
            regrets = [value + seed, value + seed + 1.0]
            task = Task("optimisation", "branin", method, seed, {"iterations": 2})
            info = {"start": 40.0, "regret": regrets, "seconds": [0.1, 0.2]}
            yield Result(task, "ok", experiment.summary(40.0, regrets, [0.5, 0.99]), info)


@pytest.mark.parametrize(("better", "verdict"), [(10, "better"), (0, "worse"), (5, "")])
def test_pairs_are_tested_by_signed_ranks(better, verdict):
    runs = tables.collected(results(better))["branin"]
    ratio, p, found = tables.paired(runs["logei"], runs["botorch_logei"], "simple_regret")
    assert found == verdict
    signs = [-1] * better + [1] * (10 - better)
    ranks = [sign * (seed + 1) for seed, sign in enumerate(signs)]
    assert p == pytest.approx(wilcoxon(ranks).pvalue)
    if verdict:
        assert (ratio < 1) == (verdict == "better")
    text = " ".join(tables.compare(results(better)).split())
    assert f"of 1, p < 0.05 {int(better == 10)} better, {int(better == 0)} worse" in text


def test_runs_that_are_equal_are_not_told_apart():
    runs = tables.collected(results())["branin"]
    assert tables.paired(runs["logei"], runs["logei"], "area") == (1.0, 1.0, "")


def test_ranks_bands_and_seconds():
    text = tables.compare(results())
    assert "1 problems, 10 to 10 repetitions" in text
    lines = {line.split("  ")[0]: line.split() for line in text.splitlines()}
    assert lines["logei"][1:4] == ["1.00", "1.00", "1.00"]
    assert lines["logei"][4:] == ["50.0", "%", "50.0", "%", "0.15"]
    assert "24.5 (22 to 27)" in text  # 20 to 29
    assert tables.compare([]) == ""


def test_figure_from_results(tmp_path):
    store = Store(tmp_path / "results").prepare()
    for result in results():
        store.write(result)
    assert regret.draw(store.folder, tmp_path) == ["optimisation_regret.png"]
    assert (tmp_path / "optimisation_regret.png").stat().st_size > 10_000


# ------------------------------------------------------------------ batches, stops, COCO


@pytest.mark.parametrize("method", ["logei", "botorch_logei"])
def test_batches(method):
    settings = {"iterations": 8, "batch": 4}
    result = perform(Task("optimisation", "branin", method, 0, settings), {})
    assert result.status == "ok", result.error
    assert len(result.info["regret"]) == 8
    assert len(result.info["seconds"]) == 2
    with pytest.raises(InvalidInputError, match="methods of batches: expected one of logei"):
        experiment.plan(methods=["turbo"], batch=2)


def test_batch_of_rows_has_no_row_twice():
    grid = torch.cartesian_prod(*[torch.linspace(-1, 1, 5, dtype=torch.float64)] * 2)
    bounds = torch.tensor([[-1.0, -1.0], [1.0, 1.0]], dtype=torch.float64)
    table = Problem(bounds, SQUARE.function, 0.0, rows=grid)
    generator = torch.Generator().manual_seed(0)
    X = table.design(generator)
    loop = METHODS["botorch_logei"](table, X, table.observe(X, generator), 0)
    batch = loop.ask(4)
    assert len(batch.unique(dim=0)) == 4


def test_stops_are_counted_by_amount():
    loops = [[(0.1, 10, True), (0.03, -1, False)], [(0.1, 5, False)], [(0.1, -1, False)]]
    assert bo_stopping.stops(loops, 0.1) == (2, 1, pytest.approx((50 + 55) / 180))
    assert bo_stopping.stops(loops, 0.03) == (0, 0, 0.0)


def test_loop_goes_on_until_what_it_could_gain_is_known(monkeypatch):
    answers, asked = iter([False, True, True, True]), []
    monkeypatch.setattr(Optimiser, "stop", lambda self, **_: next(answers))
    monkeypatch.setattr(
        Optimiser, "ask", lambda self, n, among: asked.append(n) or np.zeros((1, 2))
    )
    monkeypatch.setattr(bo_stopping, "MORE", 2)
    branin = problem_of("branin")
    flat = replace(branin, function=lambda X: torch.zeros(len(X), dtype=torch.float64))
    monkeypatch.setattr(bo_stopping, "problem_of", lambda name: replace(flat, optimum=1.0))
    # Nothing is gained, which is known after two more runs.
    assert bo_stopping.endings("flat", 0) == [(share, 1, False) for share in bo_stopping.SHARES]
    assert len(asked) == 1 + 2


def test_coco_from_its_own_files(tmp_path):
    pytest.importorskip("cocoex", reason="no COCO; the extra coco installs it")
    pytest.importorskip("cocopp")
    how = {"instances": 2, "budget": 20}
    for _ in range(2):  # the second finds all done
        coco.run(tmp_path, ["cma", "random"], [1, 8], [2], **how)
    found = coco.shares(tmp_path, budget=20)
    assert found["share"].between(0.0, 1.0).all()
    lines = coco.table(found).splitlines()
    assert lines[0].split() == ["d", "functions", "cma", "random", "best", "2009"]
    assert [line.split()[1] for line in lines[1:]] == ["separable", "moderate"]
    with pytest.raises(InvalidInputError, match="methods: expected one of logei, ucb"):
        coco.run(tmp_path, ["pso"], [1], [2])
