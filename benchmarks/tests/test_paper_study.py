"""One command for the whole paper: its tasks, its page, and its verdicts."""

import pytest
from typer.testing import CliRunner

from sharpgp.cli import app
from sharpgp.exceptions import InvalidInputError
from sharpgp_benchmarks import bo, claims, paper, paper_page, regression
from sharpgp_benchmarks.formats import as_csv, from_csv, render
from sharpgp_benchmarks.store import Store
from sharpgp_benchmarks.tables import summarise
from sharpgp_benchmarks.task import Outcome, Result, Task

cli = CliRunner()

SIZES = {"n_train": 304, "n_train_available": 304, "n_cal": 101, "n_test": 101}


def results(
    width: float = 1.0, coverage: float = 0.93, ece: float = 0.003, repeats: int = 3
) -> list[Result]:
    """Splits of boston with trained base models; the paper's method as told."""
    rows = {
        "paper": (width, coverage, ece),
        "kuleshov18": (1.4, 0.95, 0.003),
        "vovk20": (1.4, 0.95, 0.003),
        "marx22": (1.5, 0.95, 0.003),
        "kuleshov22": (0.9, 0.85, 0.006),
        "vanilla": (1.3, 0.9, 0.004),
        "exact": (1.35, 0.95, 0.003),
    }
    found = []
    for seed in range(repeats):
        for method, (w, c, e) in rows.items():
            w += 0.02 * seed
            metrics = {"width_95": w, "std": w / 4, "coverage_95": c, "ece": e}
            metrics["interval_score_95"] = w + 0.5
            task = Task("regression", "boston", method, seed, {"base": "trained"})
            found.append(Result(task, "ok", metrics, SIZES))
    return found


def verdicts(found: list[Result]) -> dict[str, str]:
    return {claim.says: claim.verdict for claim in claims.judged(summarise(found))}


def says(text: str, found: list[Result]) -> str:
    (one,) = [verdict for claim, verdict in verdicts(found).items() if text in claim]
    return one


def test_verdicts_follow_the_numbers():
    assert says("sharper than RK", results()) == "reproduced."
    assert says("sharper than RK", results(width=1.45)) == "not reproduced."
    assert says("stays ahead", results()) == "reproduced."
    assert says("as wide as printed (within 10 %)", results()) == "not reproduced."
    assert says("as wide as printed (within 10 %)", results(width=0.76)) == "reproduced."
    assert says("Coverage holds", results(coverage=0.945)) == "reproduced."
    assert says("Coverage holds", results(coverage=0.9)) == "not reproduced."
    assert says("calibration error", results(ece=0.02)) == "not reproduced."
    assert says("network", results()) == "reproduced."
    assert (
        says("as wide as printed (within 20 %)", results()) == "only when: RK on boston (trained)."
    )
    assert says("On Ackley it has the lower simple", results()) == "not run."


def test_verdicts_on_bounds_and_optimisations():
    found = []
    for method, length in (("paper", 1.5), ("capone22", 20.0)):
        metrics = {"violation_rate": 0.01 if method == "paper" else 0.0, "length_100": length}
        tasks = [Task("bounds", "mpg", method, seed, {"base": "trained"}) for seed in range(3)]
        found += [Result(task, "ok", metrics) for task in tasks]
    for method, regret in (("calibrated", 2.0), ("calibrated_1", 4.0), ("ucb", 3.0)):
        metrics = {"simple_regret": regret, "cumulative_regret": 10 * regret}
        tasks = [Task("bo", "ackley", method, seed, {"iterations": 9}) for seed in range(3)]
        found += [Result(task, "ok", metrics) for task in tasks]
    assert says("100 % intervals are shorter", found) == "reproduced."
    assert says("violated less often", found) == "not reproduced."
    assert says("On Ackley it has the lower simple", found) == "only when: calibrated."


def test_few_repetitions_give_no_verdict():
    found = results(repeats=2)
    assert set(verdicts(found).values()) == {"too few repetitions.", "not run."}
    (claim,) = [c for c in claims.judged(summarise(found)) if "sharper than RK" in c.says]
    assert claim.kind == ""
    assert "of RK's width" in claim.detail, "the numbers are shown all the same"
    short = [r for r in results() if r.task.method != "kuleshov22" or r.task.seed == 0]
    assert says("network", short) == "too few repetitions."
    assert says("sharper than RK", short) == "reproduced."


def test_the_page_has_claims_tables_and_what_is_missing(tmp_path):
    store = Store(tmp_path).prepare()
    for result in results():
        store.write(result)
    blocks = summarise(store.results())
    missing = ["facebook2: cannot be had here"]
    page = paper_page.Page(blocks, claims.judged(blocks), missing, ["toy.png"], "")
    text = paper_page.as_md(page)
    assert (
        "**4 of 13 claims reproduce; 1 does so in some cases only, 2 do not, 6 were not run.**"
        in text
    )
    assert "- It is sharper than RK" in text
    assert '<strong style="color:#1c6b46">reproduced.</strong><details>' in text
    assert "- Not run: facebook2" in text
    assert "Fewer than 3 repetitions give none." in text
    assert "![toy.png](figures/toy.png)" in text
    assert "| 95 % CI in print | 0.76 |" in text
    assert "| boston, trained | 7.4 | 1.32 (90.0 %) | 1.4 | 1.42 (95.0 %) | 0.76 | " in text
    assert "\n\n\n" not in text
    (tmp_path / "toy.png").write_bytes(b"picture")
    html = paper_page.as_html(page, tmp_path)
    assert '<div class="claim yes"><strong>It is sharper than RK' in html
    assert '<img src="data:image/png;base64,cGljdHVyZQ==" alt="99 % intervals' in html
    assert '<tr class="print">\n      <th>95 % CI in print</th>\n      <td>0.76</td>' in html
    assert html.count("<td>") == html.count("</td>")


def test_a_page_from_a_summary_is_that_of_the_results(tmp_path, monkeypatch):
    monkeypatch.setattr(paper_page, "_figures", lambda *_: ([], ""))
    one = Task("regression", "boston", "cv", 0, {"base": "trained"})
    store = Store(tmp_path / "run").prepare()
    for result in [*results(), Result(one, "ok", {"width_95": 1.5}, SIZES)]:
        store.write(result)
    summary = tmp_path / "summary.csv"
    summary.write_text(render(tmp_path / "run", "csv"), encoding="utf-8")
    assert as_csv(from_csv(summary)) == summary.read_text(encoding="utf-8")
    paper_page.write_page(tmp_path / "run", {})
    options = ["--summary", str(summary), "--datasets", "diabetes", "--out", str(tmp_path)]
    done = cli.invoke(app, ["bench", "paper", *options])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "paper.md").read_text() == (tmp_path / "run" / "paper.md").read_text()
    summary.write_text("set,mean\n", encoding="utf-8")
    for file in (summary, tmp_path / "none.csv"):
        with pytest.raises(InvalidInputError, match="summary: expected"):
            from_csv(file)


def test_the_table_of_widths_tells_a_thorough_search_apart():
    found = results(coverage=0.945)
    own = {"base": "trained", "of_method": {**paper.THOROUGH, "restarts": 2}}
    tasks = [Task("regression", "boston", "paper", seed, own) for seed in range(3)]
    metrics = {"width_95": 0.8, "coverage_95": 0.84}
    found += [Result(task, "ok", metrics, SIZES) for task in tasks]
    ((_, cells),) = paper_page.widths(summarise(found)).iterrows()
    assert cells["its 95 % levels alone, thorough search"] == "0.8 (84.0 %)"
    assert cells["paper"] == "1.02 (94.5 %)"
    assert cells["paper in print"] == "0.76"
    assert says("Coverage holds", found) == "only when: boston (trained) ours."


def test_parts_of_the_paper():
    assert {task.experiment for task in paper.plan(["boston"], parts=["bounds"])} == {"bounds"}
    with pytest.raises(InvalidInputError, match="parts"):
        paper.plan(["boston"], parts=["tables"])


def test_settings_of_a_method_make_a_column_of_their_own():
    plain = Task("regression", "boston", "paper", 0, {"base": "trained"})
    own = Task("regression", "boston", "paper", 0, {"base": "trained", "of_method": {"effort": 2}})
    assert plain.key != own.key
    assert plain.group == own.group
    metrics = {"width_95": 1.0}
    (block,) = summarise([Result(plain, "ok", metrics), Result(own, "ok", metrics)])
    assert list(block.cells) == ["paper", "paper effort=2"]
    assert block.cells["paper effort=2"]["width_95"].printed == 0.76


def test_plan_of_the_paper():
    tasks = paper.plan(["boston", "kin8nm"])
    count = {}
    for task in tasks:
        key = task.experiment, task.dataset, task.column, task.settings.get("base")
        count[key] = count.get(key, 0) + 1
    assert count["regression", "boston", "paper", "trained"] == 100
    assert count["regression", "boston", "kuleshov22 pretrained_on=yacht", "undertrained"] == 100
    assert count["regression", "boston", "paper effort=2 levels=0.025/0.975", "trained"] == 100
    assert count["regression", "kin8nm", "paper", "undertrained"] == 10
    assert count["bounds", "boston", "capone22", "trained"] == 10
    assert count["bo", "ackley", "calibrated_1", None] == 20
    quick = paper.plan(["boston", "yacht", "wine"], quick=True, of_paper={"family": "scaled"})
    assert {task.dataset for task in quick} == {"boston", "yacht", *paper.FUNCTIONS}
    assert len(quick) < 150
    assert "paper family=scaled" in {task.column for task in quick}
    with pytest.raises(InvalidInputError, match="found none"):
        paper.plan(["wine"], quick=True)


def test_a_quick_run_has_enough_repetitions_for_verdicts_and_needs_no_sampler():
    tasks = paper.plan(["boston", "mpg"], quick=True)
    counts = {}
    for task in tasks:
        place = task.experiment, task.dataset, task.column, task.settings.get("base")
        counts[place] = counts.get(place, 0) + 1
    assert set(counts.values()) == {claims.LEAST_REPETITIONS}
    assert counts["bounds", "boston", "capone22 hyperposterior=laplace", "trained"] == 3


def test_no_set_pretrains_its_own_network():
    own = {"kuleshov22": {regression.PRETRAINED_ON: "yacht"}}
    tasks = regression.plan(["yacht", "mpg"], ["kuleshov22"], repeats=1, of_method=own)
    assert [task.settings["of_method"]["pretrained_on"] for task in tasks] == ["boston", "yacht"]


def test_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(paper, "available", lambda names, home: (["boston"], {}))
    monkeypatch.setattr(paper, "plan", lambda *_, **__: [Task("rehearsal", "none", "draw", 0)])
    monkeypatch.setattr(paper_page, "_figures", lambda *_: ([], "No figures: none asked for"))
    done = cli.invoke(app, ["bench", "paper", "--quick", "--workers", "1", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert f"Wrote {tmp_path / 'paper.html'} and {tmp_path / 'paper.md'}" in done.stdout
    assert "No figures" in (tmp_path / "paper.md").read_text()
    (tmp_path / "paper.md").unlink()
    done = cli.invoke(app, ["bench", "paper", "--only-page", "--out", str(tmp_path)])
    assert (done.exit_code, done.stdout.count("Wrote")) == (0, 1)
    assert "No figures" in (tmp_path / "paper.md").read_text()
    done = cli.invoke(app, ["bench", "paper", "--only-page", "--out", str(tmp_path / "nowhere")])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    for wrong in ("effort", "depth=3"):
        done = cli.invoke(app, ["bench", "paper", "--paper", wrong, "--out", str(tmp_path)])
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1)


@pytest.mark.slow
def test_the_factor_one_scales_the_bound_alone():
    problem = bo.Problem.draw("branin", 0)
    plain = bo.calibrate(problem.X, problem.y, bo.N_TRAIN)
    unit = bo.calibrate_with_factor_one(problem.X, problem.y, bo.N_TRAIN)
    X = problem.X[:5]
    beta = plain.curves.beta_at(X.new_tensor([bo.DELTA]))
    wide = plain.predict_quantiles(X, bo.DELTA) - plain.predict_mean(X)
    narrow = unit.predict_quantiles(X, bo.DELTA) - unit.predict_mean(X)
    assert (wide / narrow).tolist() == pytest.approx([float(beta)] * 5)


def test_settings_reach_the_method(monkeypatch, tmp_path):
    seen = {}

    class Known:
        def fit(self, *_):
            return self

    def make(name, **settings):
        seen.update(settings)
        return Known()

    class FakeProblem:
        posterior, info = None, {}

        class part:  # noqa: N801
            X_cal = y_cal = X_test = y_test = None

    monkeypatch.setattr(regression, "make_recalibrator", make)
    monkeypatch.setattr(regression, "make_problem", lambda *_: FakeProblem)
    monkeypatch.setattr(regression, "measure", lambda *_: {"width_95": 1.0})
    settings = {"base": "trained", "of_method": {"effort": 2}}
    found = regression.run_task(Task("regression", "boston", "paper", 3, settings), {})
    assert isinstance(found, Outcome)
    assert seen == {"random_state": 3, "effort": 2}
