"""Numbers by size and settings on the pages are those of the policy and the registry."""

import importlib
import inspect
import re
import typing
from pathlib import Path

import pytest

import sharpgp
import transcripts
from sharpgp import SharpGPRegressor
from sharpgp._ranks import points_needed
from sharpgp._validation import LARGEST_TARGET
from sharpgp.calibration.cautions import MIN_ROWS_CV, MIN_ROWS_PER_HYPERPARAMETER
from sharpgp.calibration.methods.cv_plus import CVPlus
from sharpgp.calibration.predictors.parts import MIN_ROWS_PER_CLASS
from sharpgp.calibration.ranks import DEFAULT_GRID
from sharpgp.calibration.recalibrator import chosen_recalibrator
from sharpgp.data.column import MAX_CATEGORIES
from sharpgp.data.inputs import MIN_TARGET
from sharpgp.data.suspicions import _NEXT, _TIMES_AS_FAR, MIN_MIDDLE_SPREAD
from sharpgp.gp.compute import MAX_ROWS_BATCHED, MAX_ROWS_ONE_THREAD, MIN_ROWS_GPU
from sharpgp.gp.dense import JITTER_SCHEDULE
from sharpgp.gp.priors import ENOUGH_PER_HYPERPARAMETER, LEAST_PER_HYPERPARAMETER
from sharpgp.gp.training import _STARTS, _TRIED_FOR, NOISE_FLOOR
from sharpgp.metrics.report import MIN_ROWS_CONDITIONAL
from sharpgp.models.trees.forests import MOST_GROWN_ON, MOST_IN_LEAVES
from sharpgp.models.trees.tree_model import MOST_LEFT_OUT, TREES
from sharpgp.names import CALIBRATIONS, is_kernel_name
from sharpgp.policy import (
    BLOCK_ENTRIES,
    BLOCK_LANDMARKS,
    BLOCK_ROWS,
    EXACT_ROWS,
    FEW_LEARNINGS,
    HALO,
    INDUCING,
    JUDGED_ROWS,
    LANDMARK_ENTRIES,
    LANDMARKS,
    LEARNED_ROWS,
    LEARNINGS,
    NEIGHBOURS,
    ONLY_NEIGHBOURS,
    POOLS,
    SCORED_ROWS,
    SEARCHED_ROWS,
    SOME_LEARNINGS,
    Policy,
)
from sharpgp.tabular.files import MAX_ROWS_FITTED

ROOT = Path(__file__).resolve().parents[1]
WORDS = {2: "two", 3: "three", 4: "four", 5: "five", 7: "seven", 10: "ten", 20: "twenty"}
LARGE, FAQ, METHOD, NUMERICS = (
    f"docs/{name}.md" for name in ("guides/large_data", "faq", "method", "numerics")
)
CHOOSING, TABLES = "docs/choosing.md", "docs/guides/tables.md"


def short(number):
    """``1e-6``, as pages write it."""
    return f"{number:.0e}".replace("e-0", "e-").replace("e+", "e")


JITTERS = [short(jitter) for jitter in JITTER_SCHEDULE[1:]]
#: Where, the words with a gap for each number, and the numbers.
CLAIMS = [
    (FAQ, "{} for 90 %, {} for 95 % and {} for 99 %", list(map(points_needed, (0.9, 0.95, 0.99)))),
    (FAQ, "warns below {} rows", [MIN_ROWS_CV]),
    (FAQ, "at least {} test rows", [MIN_ROWS_CONDITIONAL]),
    (FAQ, "Fits of up to {:,} rows are exact", [EXACT_ROWS]),
    (FAQ, "A GPU, from {:,} rows on", [MIN_ROWS_GPU]),
    (FAQ, "version = {{{}}}", [sharpgp.__version__]),
    (LARGE, "learned {} times, each time from at most {} rows", [WORDS[LEARNINGS], LEARNED_ROWS]),
    (LARGE, "exactly up to {:,} rows, on a GPU", [EXACT_ROWS]),
    (LARGE, "Every row, or {:,} random ones", [SCORED_ROWS]),
    (LARGE, "share the {} rows nearest to its centre and {} landmarks", [HALO, BLOCK_LANDMARKS]),
    (LARGE, "at most {} MiB for one GP, computed at", [8 * BLOCK_ENTRIES // 2**20]),
    (LARGE, "has {:,} random landmarks and the {} nearest", [LANDMARKS, NEIGHBOURS]),
    (METHOD, "cells of about {} rows", [BLOCK_ROWS]),
    (METHOD, "the {} rows nearest to their centre and {} landmarks", [HALO, BLOCK_LANDMARKS]),
    (METHOD, "leave-one-out CRPS of {} rows", [JUDGED_ROWS]),
    (LARGE, "From {},000 rows on landmarks become fewer", [LANDMARK_ENTRIES // LANDMARKS // 1000]),
    (LARGE, "at most {} MiB", [8 * LANDMARK_ENTRIES // 2**20]),
    (LARGE, "{} learnings of each GP then", [WORDS[FEW_LEARNINGS].capitalize()]),
    (LARGE, "holds out a quarter of the rows, at most {:,}", [SCORED_ROWS]),
    (LARGE, "a GPU from {:,} rows on", [MIN_ROWS_GPU]),
    (LARGE, "a sparse one beyond {:,} rows on a CPU", [SEARCHED_ROWS["cpu"]]),
    (LARGE, "Beyond {:,} points it keeps a single matrix", [MAX_ROWS_BATCHED]),
    (LARGE, "its own {} nearest", [ONLY_NEIGHBOURS]),
    (LARGE, "has {} inducing inputs", [INDUCING]),
    (LARGE, "Beyond {:,} rows each tree of the forest", [MOST_LEFT_OUT]),
    (LARGE, "is grown on at most {:,} rows", [MOST_GROWN_ON]),
    (LARGE, "leaves take {:,} of them at most", [MOST_IN_LEAVES]),
    (METHOD, "*Learn* $K = {}$ times", [LEARNINGS]),
    (METHOD, "these fifths, $K = {}$.", [SOME_LEARNINGS]),
    (LARGE, "Beyond 625 rows {} times", [WORDS[SOME_LEARNINGS]]),
    (METHOD, "of at most {} rows, taken", [LEARNED_ROWS]),
    (METHOD, "exactly up to $E = {}$ rows", [EXACT_ROWS]),
    (METHOD, "by {} learnings", [WORDS[FEW_LEARNINGS]]),
    (METHOD, "Beyond {:,} rows, as many random ones are scored", [SCORED_ROWS]),
    (METHOD, "By default {} levels are trained", [len(DEFAULT_GRID)]),
    (METHOD, "Beyond {:,} rows the forest", [MOST_LEFT_OUT]),
    (NUMERICS, "`cv` with fewer than {} rows", [MIN_ROWS_CV]),
    (NUMERICS, "fewer than {} training points per hyperparameter", [MIN_ROWS_PER_HYPERPARAMETER]),
    (NUMERICS, "up to {:,} training points", [MAX_ROWS_ONE_THREAD]),
    (NUMERICS, "Full weight up to {} training points", [WORDS[LEAST_PER_HYPERPARAMETER]]),
    (NUMERICS, "{} times as far from the median", [WORDS[int(_TIMES_AS_FAR)]]),
    (NUMERICS, "by the tail of the next {} (1e-4)", [_NEXT]),
    (NUMERICS, "the best one after {} evaluations", [_TRIED_FOR]),
    (NUMERICS, "from {} starts", [WORDS[len(_STARTS)]]),
    (NUMERICS, "Targets beyond {} or below {} are", [short(LARGEST_TARGET), short(MIN_TARGET)]),
    (NUMERICS, "Noise floor | {} of the", [short(NOISE_FLOOR)]),
    (NUMERICS, "none from {} on", [WORDS[ENOUGH_PER_HYPERPARAMETER]]),
    (NUMERICS, "less than {} deviations", [short(MIN_MIDDLE_SPREAD)]),
    (NUMERICS, "a jitter of {}, {} and {} of the mean", JITTERS),
    (NUMERICS, "Fewer than {} groups to calibrate with", [points_needed(0.95)]),
    (CHOOSING, "{} learnings of each model", [WORDS[LEARNINGS]]),
    (CHOOSING, "{} refits, kept for prediction", [WORDS[CVPlus().folds]]),
    (CHOOSING, "{} for 95 % and {} for 99 %", [points_needed(0.95), points_needed(0.99)]),
    (TABLES, "The {} most frequent categories", [MAX_CATEGORIES]),
    (TABLES, "Classes with fewer than {} are pooled", [WORDS[MIN_ROWS_PER_CLASS]]),
    ("docs/guides/out_of_core.md", "a table of up to {:,} rows as a whole", [MAX_ROWS_FITTED]),
]  # fmt: skip


def text_of(page):
    """A page on one line."""
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


@pytest.mark.parametrize(("page", "words", "numbers"), CLAIMS, ids=[claim[1] for claim in CLAIMS])
def test_pages_have_the_numbers_of_the_code(page, words, numbers):
    assert words.format(*numbers) in text_of(page)


def test_documented_defaults_are_those_of_the_code():
    """What README and the pages call the default."""
    defaults = inspect.signature(SharpGPRegressor).parameters
    assert {name: defaults[name].default for name in ("base", "calibration", "effort")} == {
        "base": "auto",
        "calibration": "auto",
        "effort": "auto",
    }
    names = [chosen_recalibrator("auto", 0, guarantee=given).name for given in (False, True)]
    assert names == ["cv", "exact"]
    assert defaults["cal_size"].default == 0.25  # "a quarter of the rows is held out"
    assert (
        inspect.signature(SharpGPRegressor.predict_interval).parameters["coverage"].default == 0.95
    )
    pool = Policy.choose(300, 8).pool
    gps = [name for name in pool if is_kernel_name(name)]
    assert (len(gps), len(set(pool) & set(TREES))) == (3, 1)  # "three kernels, a forest"
    assert "GPs with three kernels, a forest and [a network]" in text_of(CHOOSING)
    assert len(POOLS["low"]) == 1


def test_every_method_has_its_row_on_the_page_that_compares_them():
    page = text_of(CHOOSING)
    missing = [name for name in CALIBRATIONS if f'"{name}"' not in page]
    assert set(missing) <= {"vovk20", "auto"}  # one that "kuleshov18" stands for


@pytest.mark.parametrize("rows", [100, 625, 626, 3000, 4001, 40_000])
def test_the_policy_is_as_the_page_on_large_data_says(rows):
    found = Policy.choose(rows, 8)
    assert found.landmarks * min(rows, 2**14) <= 2**25
    assert found.is_exact(rows) == (rows <= EXACT_ROWS)
    few = SOME_LEARNINGS if rows <= EXACT_ROWS else FEW_LEARNINGS
    assert found.learnings == (LEARNINGS if rows <= 625 else few)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_low_effort_is_several_times_faster():
    """As README, FAQ and the landing page say."""
    import time

    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True)
    spent = {}
    for effort in ("low", "auto"):
        SharpGPRegressor(effort=effort, random_state=0).fit(X[:50], y[:50])
        start = time.process_time()
        SharpGPRegressor(effort=effort, random_state=0).fit(X[:331], y[:331])
        spent[effort] = time.process_time() - start
    assert spent["auto"] > 2.5 * spent["low"]


def test_the_notebook_is_the_tutorial():
    made = transcripts.notebook_text(ROOT / "docs" / "tutorial.md")
    assert (ROOT / "examples" / "tutorial.ipynb").read_text(encoding="utf-8") == made


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_notebook_runs(tmp_path, monkeypatch):
    """Its code cells in order; commands are run by the tutorial's own test."""
    import json

    monkeypatch.chdir(tmp_path)
    notebook = json.loads((ROOT / "examples" / "tutorial.ipynb").read_text(encoding="utf-8"))
    scope = {"__name__": "__main__"}
    for cell in notebook["cells"]:
        code = "".join(cell["source"])
        if cell["cell_type"] == "code" and not re.match(r"[%!]", code):
            exec(compile(code, cell["id"], "exec"), scope)
    assert (tmp_path / "report.html").is_file()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_blocks_of_readme_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = {}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for block in re.findall(r"```python\n(.*?)```", readme, re.S):
        exec(compile(block, "README.md", "exec"), scope)
    shapes = {"mean": (111,), "interval": (111, 2), "quantiles": (111, 3)}
    assert {name: scope[name].shape for name in shapes} == shapes
    assert (tmp_path / "report.html").is_file()


def test_the_pages_together_are_short():
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "guides").glob("*.md")]
    pages += [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages) < 46_000


#: Where anything may be passed: settings of other functions, and what a file holds.
OPEN = {
    "Calibrated.each_once: return",
    "Calibrated.at_own_points: return",
    "SharpGPRegressor.plot: settings",
    "plot: settings",
    "Optimiser.stop: remaining",
    "Optimiser.level_of: x",
    "Optimiser.level_of: y",
    "OptunaSampler.__init__: settings",
    "train_chosen: training",
    "read: return",
    "Optimiser.__init__: context",
    "Optimiser.tell: noise",
    "SharpGPRegressor.answer: ask",
    "SharpGPRegressor.answer: X",
    "WithoutHoldout.fit: roles",
    "Calibrated.test_weights: sample_weight",
    "Optimiser.tell: y",
    "Optimiser.best: fixed",
    "SharpGPRegressor.decide: utility",
    "SharpGPRegressor.decide: actions",
    "Optimiser.remaining: fixed",
    "Optimiser.ask: fixed",
    "OptunaSampler.after_trial: state",
    "ScoredPredictor.within: by",
}


def is_vague(kind):
    """Whether an annotation says ``Any``, but for the shapes and types within NumPy's own."""
    if isinstance(kind, str):
        return re.search(r"\bAny\b", kind) is not None
    if kind is typing.Any:
        return True
    if getattr(typing.get_origin(kind), "__module__", "").startswith("numpy"):
        return False
    inner = [
        one for part in typing.get_args(kind) for one in (part if type(part) is list else [part])
    ]
    return any(is_vague(one) for one in inner if not isinstance(one, str))


def public_functions():
    """Functions and methods, by name, of everything that users import."""
    modules = [importlib.import_module(f"sharpgp.{name}") for name in sharpgp._MODULES]
    found = {name: getattr(sharpgp, name) for name in sharpgp.__all__}
    for module in modules:
        own = [name for name, one in vars(module).items() if is_own(one, module.__name__)]
        found |= {name: getattr(module, name) for name in getattr(module, "__all__", own)}
    for name, one in found.items():
        if inspect.isfunction(one):
            yield name, one
        elif inspect.isclass(one):
            for cls in (cls for cls in one.__mro__ if cls.__module__.startswith("sharpgp.")):
                for method, given in vars(cls).items():
                    given = getattr(given, "fget", getattr(given, "__func__", given))
                    if inspect.isfunction(given) and (method[0] != "_" or method == "__init__"):
                        yield f"{cls.__name__}.{method}", given


def is_own(one, module):
    return getattr(one, "__module__", "") == module and getattr(one, "__name__", "_")[0] != "_"


def test_public_signatures_are_precise():
    """No ``Any`` where a user's editor looks."""
    functions = {
        name: one for name, one in public_functions() if not one.__module__.startswith("sharpgp._")
    }
    assert len(functions) > 250
    vague = set()
    for name, function in functions.items():
        kinds = function.__annotations__
        vague |= {f"{name}: {argument}" for argument, kind in kinds.items() if is_vague(kind)}
        parameters = set(inspect.signature(function).parameters) - {"self", "cls"}
        vague |= {f"{name}: {one}" for one in parameters - set(kinds)}
    assert vague <= OPEN
