"""Input that nobody should pass, everywhere: a clean error, or an answer without NaN."""

import datetime
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
import torch

from helpers import wavy
from sharpgp import PredictiveDistribution, Sharp, SharpGPError, SharpGPRegressor, Sparse
from sharpgp.calibration import known_methods
from sharpgp.calibration.recalibrator import make_recalibrator
from sharpgp.gp.training import train

X, Y = wavy(24)
X_NEW, Y_NEW = wavy(6, seed=1)

Case = tuple[str, Callable[[], Any]]


def _put(array: np.ndarray, index: Any, value: Any) -> np.ndarray:
    out = np.array(array, dtype=object if isinstance(value, str | complex) else None)
    out[index] = value
    return out


def bad_features() -> dict[str, Any]:
    return {
        "None": None,
        "text": "abc",
        "number": 3.0,
        "empty list": [],
        "dict": {"a": [1, 2]},
        "bytes": b"12345",
        "no rows": X[:0],
        "no columns": X[:, :0],
        "one dimension": X[:, 0],
        "three dimensions": X[:, :, None],
        "ragged": [[1.0, 2.0], [3.0]],
        "NaN": _put(X, (2, 1), np.nan),
        "infinity": _put(X, (2, 1), np.inf),
        "minus infinity": _put(X, (0, 0), -np.inf),
        "a string inside": _put(X, (2, 1), "a"),
        "complex": X + 1j,
        "dates": np.full(X.shape, datetime.datetime(2020, 1, 1)),
        "numpy dates": np.full(X.shape, np.datetime64("2020-01-01")),
        "objects": np.full(X.shape, object()),
        "sparse": scipy.sparse.csr_matrix(X),
        "NaN as None": _put(X.astype(object), (1, 1), None),
        "frame with text": pd.DataFrame({"a": X[:, 0], "b": "x"}),
        "frame with missing": pd.DataFrame(X).mask(lambda f: f > 1.5),
        "frame with dates": pd.DataFrame({"a": X[:, 0], "b": pd.Timestamp("2020-01-01")}),
        "generator": (row for row in X),
        "masked": np.ma.masked_greater(X, 1.0),
        "tensor with NaN": torch.from_numpy(_put(X, (0, 1), np.nan)),
        "tensor of three dimensions": torch.zeros(24, 2, 2),
        "largest numbers": np.where(X > 0, 1.7e308, -1.7e308),
        "smallest numbers": 5e-324 * np.sign(X),
    }


def bad_targets() -> dict[str, Any]:
    return {
        "None": None,
        "text": "abc",
        "number": 3.0,
        "empty": [],
        "short": Y[:-1],
        "long": np.r_[Y, 0.0],
        "two columns": np.column_stack([Y, Y]),
        "NaN": _put(Y, 2, np.nan),
        "infinity": _put(Y, 2, np.inf),
        "a string inside": _put(Y, 2, "a"),
        "strings": ["a"] * len(Y),
        "complex": Y + 1j,
        "constant": np.full(len(Y), 2.5),
        "constant but for rounding": 1.0 + 2.2e-16 * (np.arange(len(Y)) % 2),
        "dates": np.full(len(Y), np.datetime64("2020-01-01")),
        "objects": np.full(len(Y), object()),
        "None inside": _put(Y.astype(object), 1, None),
        "largest numbers": np.where(Y > 0, 1.7e308, -1.7e308),
        "smallest numbers": 5e-324 * np.sign(Y),
        "series with missing": pd.Series(Y).mask(lambda s: s > 0.5),
    }


JUNK: dict[str, Any] = {
    "None": None,
    "text": "abc",
    "empty text": "",
    "minus one": -1,
    "zero": 0,
    "one and a half": 1.5,
    "NaN": float("nan"),
    "infinity": float("inf"),
    "huge": 10**400,
    "list": [],
    "nested": [[0.5, 0.5]],
    "list of text": ["a"],
    "dict": {},
    "object": object(),
    "class": int,
    "bytes": b"0.5",
    "bool": True,
    "complex": 1j,
    "array of NaN": np.array([np.nan]),
}


def cases() -> Iterator[Case]:
    """Every case, with a name that says what is wrong."""
    for method in ("kuleshov18", "vanilla", "cv"):
        for name, bad in bad_features().items():
            yield f"fit {method}: X {name}", lambda m=method, b=bad: _fitted(m, b, Y)
        for name, bad in bad_targets().items():
            yield f"fit {method}: y {name}", lambda m=method, b=bad: _fitted(m, X, b)
    for name, bad in bad_features().items():
        yield f"calibration X {name}", lambda b=bad: _asked(_model().fit(X, Y, X_cal=b, y_cal=Y))
    for name, bad in bad_targets().items():
        yield f"calibration y {name}", lambda b=bad: _asked(_model().fit(X, Y, X_cal=X, y_cal=b))
    for setting in ("base", "calibration", "approximation", "cal_size", "device", "random_state"):
        for name, bad in JUNK.items():
            yield (
                f"{setting}={name}",
                lambda s=setting, b=bad: _asked(_model(**{"calibration": "paper", s: b}).fit(X, Y)),
            )
    for name, bad in JUNK.items():
        yield f"base=[{name}]", lambda b=bad: _model(base=[b], calibration="cv").fit(X, Y)
        yield f"effort={name}", lambda b=bad: _model(effort=b).fit(X, Y)
        yield f"levels={name}", lambda b=bad: _model(calibration=Sharp(levels=b)).fit(X, Y)
        yield f"m={name}", lambda b=bad: _model(approximation=Sparse(b)).fit(X, Y)
    model = _model().fit(X, Y)
    for ask in ("predict", "predict_interval", "predict_dist", "score"):
        for name, bad in bad_features().items():
            more = (Y,) if ask == "score" else ()
            yield f"{ask}: X {name}", lambda a=ask, b=bad, m=more: getattr(model, a)(b, *m)
    for name, bad in JUNK.items():
        yield f"coverage {name}", lambda b=bad: model.predict_interval(X_NEW, b)
        yield f"levels {name}", lambda b=bad: model.predict_quantiles(X_NEW, b)
    for name, bad in bad_targets().items():
        yield f"report: y {name}", lambda b=bad: model.calibration_report(X, b)
    yield from _torch_level()
    yield from _distributions()


def _torch_level() -> Iterator[Case]:
    posterior, _ = train(torch.from_numpy(X), torch.from_numpy(Y))
    for method in known_methods():
        if method in ("fully_bayesian", "capone22", "vanilla"):
            continue
        few = {
            "no points": (X[:0], Y[:0]),
            "one point": (X[:1], Y[:1]),
            "short": (X, Y[:-1]),
            "too few features": (X[:, :1], Y),
            "NaN": (X, _put(Y, 0, np.nan)),
            "text": (X, ["a"] * len(Y)),
            "nothing": (None, None),
        }
        for name, (X_cal, y_cal) in few.items():
            if (method, name) == ("cv", "nothing"):
                continue  # it needs none
            yield (
                f"{method}: calibrated on {name}",
                lambda m=method, a=X_cal, b=y_cal: _asked(
                    make_recalibrator(m, random_state=0).fit(posterior, a, b)
                ),
            )


def _distributions() -> Iterator[Case]:
    levels, table = [0.2, 0.5, 0.8], np.array([[-1.0], [0.0], [1.0]])
    dist = PredictiveDistribution(levels, table, numpy=True)
    for name, bad in JUNK.items():
        yield f"distribution: levels {name}", lambda b=bad: PredictiveDistribution(b, table)
        yield f"distribution: table {name}", lambda b=bad: PredictiveDistribution(levels, b)
        for ask in ("quantile", "interval", "cdf", "log_prob", "crps", "sample"):
            if (ask, name) in {("quantile", "zero"), ("interval", "zero"), ("sample", "zero")}:
                continue  # legal, and infinite or empty by definition
            yield f"distribution: {ask} {name}", lambda a=ask, b=bad: getattr(dist, a)(b)


def _model(**settings: Any) -> SharpGPRegressor:
    return SharpGPRegressor(**{"calibration": "kuleshov18", "random_state": 0, **settings})


def _fitted(method: str, X: Any, y: Any) -> Any:
    return _asked(_model(calibration=method).fit(X, y), X)


def _asked(fitted: Any, X: Any = X_NEW) -> Any:
    return np.asarray(fitted.predict_interval(X, 0.5))


def judge(case: Case) -> tuple[str, str | None]:
    """``"error"`` or ``"answer"``, and what is wrong with it if anything is."""
    name, call = case
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            answer = call()
        except (SharpGPError, ValueError) as error:
            text = str(error)
            # Messages of scikit-learn's own validation have several lines now and then.
            ours = isinstance(error, SharpGPError)
            problem = f"{name}: an error without a text" if not text else None
            if ours and "\n" in text:
                problem = f"{name}: an error of several lines: {text!r}"
            return "error", problem
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            if isinstance(error, TypeError) and "sklearn" in place.filename:
                return "error", None  # scikit-learn's own, about sparse tables and text
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            return "error", f"{name}: {text} ({place.filename}:{place.lineno})"
    if isinstance(answer, np.ndarray) and answer.dtype.kind == "f" and np.isnan(answer).any():
        return "answer", f"{name}: NaN in the answer"
    return "answer", None
