"""Bugs planted one at a time in a copy of the source: the tests must notice every one of them.

``python tests/stress/planted.py`` prints, for each, the first test that failed.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
STATISTICS = ("tests/test_statistics.py", "tests/test_ranks.py")


@dataclass(frozen=True)
class Bug:
    """One line of the source, and what it is replaced by."""

    name: str
    file: str
    line: str
    planted: str
    tests: tuple[str, ...] = STATISTICS
    only: str = ""


BUGS = (
    Bug(
        "rank one too high in whole ranks",
        "calibration/ranks.py",
        "index = torch.searchsorted(weights.cumsum(0), needed)",
        "index = torch.searchsorted(weights.cumsum(0), needed) + 1",
    ),
    Bug(
        "rank one too low in whole ranks",
        "calibration/ranks.py",
        "index = torch.searchsorted(weights.cumsum(0), needed)",
        "index = (torch.searchsorted(weights.cumsum(0), needed) - 1).clamp(min=0)",
    ),
    Bug(
        "scores at j/C instead of j/(C+1)",
        "calibration/ranks.py",
        "self.weights + typical) / (2.0 * (self.total + typical))",
        "self.weights + typical) / (2.0 * self.total)",
    ),
    Bug(
        "calibration points leak into training",
        "_fit.py",
        "        train, cal = train[rest], train[out]\n",
        "        cal = train[out]\n",
    ),
    Bug(
        "folds see the points that they leave out (cv)",
        "models/splitters.py",
        "rest[test] = False",
        "rest[test] = True",
        only="cv",
    ),
    Bug(
        "noise left out of sigma",
        "gp/exact/posterior.py",
        "Z, prior = rows.X, self.covariance.prior(theta, rows)",
        "Z, prior = rows.X, self.covariance.diag(theta, rows.X)",
        tests=("tests/test_posterior.py", "tests/test_estimator.py", "tests/test_contract.py"),
    ),
    Bug(
        "noise in beta's sigma, but not in the width's",
        "models/laws.py",
        "return (y - self.location[rows]) / self.spread[rows]",
        "return 0.7 * (y - self.location[rows]) / self.spread[rows]",
    ),
    Bug(
        "wrong sign of delta: the upper quantile below",
        "calibration/methods/sharp/predictor.py",
        "offset = beta * spread_of(self.posterior, self.curves.theta_at(delta), X)",
        "offset = -(beta * spread_of(self.posterior, self.curves.theta_at(delta), X)).flip(0)",
    ),
    Bug(
        "wrong sign of the scores (kuleshov18, marx22, exact)",
        "models/laws.py",
        "return (y - self.location[rows]) / self.spread[rows]",
        "return (self.location[rows] - y) / self.spread[rows]",
    ),
    Bug(
        "the lower end of an interval moved inward, so that ties fall outside",
        "calibration/ranks.py",
        "lower = -lower",
        "lower = -lower + 3.0 * self._slack(lower)",
    ),
    Bug(
        "points of a group counted as independent",
        "calibration/ranks.py",
        "self.weights = own / self.groups.bincount()[self.groups]",
        "self.weights = own",
        tests=("tests/test_new_groups.py",),
    ),
    Bug(
        "wrong sign of the residuals (paper)",
        "calibration/methods/sharp/method.py",
        "r = y - posterior.mean(X)",
        "r = posterior.mean(X) - y",
        only="paper",
    ),
    Bug(
        "wrong sign of the residuals (cv)",
        "models/model.py",
        "return HeldOut.from_law(tested, law, y[tested])",
        "return HeldOut(tested, law, -law.score(y[tested]))",
        only="cv",
    ),
)


def first_failure(bug: Bug) -> str | None:
    """The first test that fails with the bug, or None where all pass."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        file = source / "sharpgp" / bug.file
        text = file.read_text()
        if text.count(bug.line) < 1:
            raise SystemExit(f"{bug.name}: {bug.file} has no line {bug.line!r}")
        file.write_text(text.replace(bug.line, bug.planted))
        chosen = ["-k", bug.only] if bug.only else []
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p",
             "no:doctest", "-o", "addopts=--import-mode=importlib", *bug.tests, *chosen],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=900,
        )  # fmt: skip
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if done.returncode == 0:
        return None
    if found is None or done.returncode != 1:
        raise SystemExit(f"{bug.name}: the tests did not run\n{done.stdout}\n{done.stderr}")
    return found[1]


def main() -> int:
    missed = 0
    for bug in BUGS:
        caught = first_failure(bug)
        missed += caught is None
        print(f"{bug.name}: {caught or 'NOT CAUGHT'}", flush=True)
    print(f"planted bugs: {len(BUGS)}, caught: {len(BUGS) - missed}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
