"""The HTML page: numbers, sentences and a template become one self-contained file."""

import base64
import hashlib
import json
import os
from collections.abc import Sequence
from datetime import date
from html import escape
from importlib.resources import files
from pathlib import Path

from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

import sharpgp
from sharpgp._files import replacing
from sharpgp.calibration.predictors.base import FittedModel
from sharpgp.diagnostics import Diagnostics, diagnose
from sharpgp.report import curve_words, tables, words
from sharpgp.report.explanation import Statement, explain
from sharpgp.report.numbers import Numbers, numbers_of
from sharpgp.report.words import Finding, Verdict, sentence


def write_report(
    model: FittedModel | BaseEstimator,
    X: ArrayLike,
    y: ArrayLike,
    out: str | os.PathLike[str],
    *,
    feature_names: Sequence[str] | None = None,
    target: str | None = None,
    unit: str = "",
    groups: ArrayLike | None = None,
    title: str = "Calibration report",
) -> Path:
    """Write the calibration report of a fitted model on test data as one HTML file.

    The page begins with a verdict: calibrated, calibrated on average but not everywhere, or not
    calibrated, with the worst finding by name. Below it are a reliability diagram with its
    sampling band, the PIT histogram, observed against predicted values, interval widths, coverage
    by width and by feature, the worst points, what was learned (models, weights, relevance of the
    features), the curves ``beta`` and ``theta``, and a table of metrics with the ECE floor, each
    with a sentence that says what it shows and what to do. It needs no network, and prints on
    three pages.

    Parameters
    ----------
    model : SharpGPRegressor, Calibrated, or what :func:`sharpgp.through` takes
    X : array or frame of shape (n, d)
    y : array of shape (n,)
        Test data: neither trained nor calibrated on.  None for both: the calibration points, out of
        fold.
    out : path
        File to write.
    feature_names : sequence of d str, optional
    target, unit : str, optional
        Name and unit of the target; by default the name of ``y``, if any.
    groups : array of shape (n,), optional
        Which test points belong together, such as those of one patient.
    title : str
        Heading of the page.

    Returns
    -------
    Path
        Of the file.

    Examples
    --------
    >>> import tempfile
    >>> from sharpgp import SharpGPRegressor
    >>> from sharpgp.toy import make_toy
    >>> toy = make_toy(random_state=0)
    >>> model = SharpGPRegressor(calibration="kuleshov18")
    >>> model = model.fit(toy.X_train, toy.y_train, toy.X_cal, toy.y_cal)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_report(model, toy.X_test, toy.y_test, f"{folder}/report.html")
    ...     path.read_text(encoding="utf-8")[:15]
    '<!doctype html>'
    """
    found = diagnose(
        model, X, y, feature_names=feature_names, target=target, unit=unit, groups=groups
    )
    page = render_report(found, title=title)
    with replacing(out) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return Path(out)


def verdict_of(found: Diagnostics) -> Verdict:
    """Only the first sentence of the report: its state, what was found, and what to do."""
    return words.verdict(found, explain(found))


def render_report(
    found: Diagnostics, *, title: str = "Calibration report", day: date | None = None
) -> str:
    """The page of :func:`write_report` as a string, from what ``diagnose`` collected."""
    numbers = numbers_of(found)
    wrong = explain(found)
    _add_words(found, numbers, wrong)
    shown, feature = numbers["intervals"][found.first], numbers["first"]["feature"]
    notes = (words.rows(found), words.below_zero(found), words.suspicions(found))
    text = {
        "title": escape(title),
        "sizes": escape(_sizes(found)),
        "origin": escape(_origin(found, day or date.today())),
        "verdict": _verdict(words.verdict(found, wrong), wrong),
        "tiles": tables.tiles(found, shown),
        "rows": "".join(map(_sentence, filter(None, notes))),
        "promise": "" if found.promise is None else found.promise._repr_html_(),
        "reliability": _sentence(words.reliability(found, numbers, wrong)),
        "pit": _sentence(words.pit(found, numbers, wrong)),
        "points": _sentence(Finding(**shown["words"]["points"])),
        "worst": tables.worst(found, numbers),
        "widths": _sentence(Finding(**shown["words"]["widths"])),
        "by_width": _sentence(Finding(**shown["words"]["by_width"])),
        "by_feature": _sentence(Finding(**shown["words"]["by_feature"][feature])),
        "members": tables.members(numbers),
        "beta": _sentence(curve_words.beta_curve(found, numbers)),
        "theta": _sentence(curve_words.theta_curve(found, numbers)),
        "metrics": tables.metrics(found),
    }
    style, script = _resource("style.css"), _resource("figures.js")
    page = _resource("page.html")
    # Hashes in place of 'unsafe-inline': a browser then runs this script and no other.
    policy = f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'"
    parts = {"policy": policy, "style": style, "script": script, "numbers": _json(numbers), **text}
    for name, content in parts.items():
        page = page.replace(f"<!--{name}-->", content)
    return page


def _add_words(found: Diagnostics, numbers: Numbers, wrong: Sequence[Statement]) -> None:
    """Sentences for every choice that the page's controls offer."""
    names = numbers["features"]
    for part in numbers["intervals"]:
        part["words"] = {
            "points": vars(words.points(found, part, numbers)),
            "widths": vars(words.widths(found, part, wrong)),
            "by_width": vars(words.by_part(part, part["by_width"], "")),
            "by_feature": [
                vars(words.by_part(part, bins, name))
                for bins, name in zip(part["by_feature"], names, strict=True)
            ],
        }


def _sizes(found: Diagnostics) -> str:
    unit = f" ({found.unit})" if found.unit else ""
    opening = f"Target {found.target}{unit}; calibration" if found.target else "Calibration"
    columns = len(found.columns)
    tested = f"{len(found.y):,} test points"
    if found.out_of_fold:
        tested = "judged on these, each by fits that have not seen it"
    return (
        f"{opening} {found.method}; {_points(found)} and {tested}; "
        f"{columns} {'column' if columns == 1 else 'columns'}"
    )


def _points(found: Diagnostics) -> str:
    """Numbers of training and calibration points; the same points if none were held out."""
    if found.n_cal is None:
        return f"{found.n_train:,} training, no calibration points"
    if found.method in ("cv", "cv+", "loo") and found.n_cal == found.n_train:
        return f"{found.n_train:,} points that trained and calibrated it"
    groups = " groups" if found.counted == "groups" else ""
    return f"{found.n_train:,} training, {found.n_cal:,} calibration{groups}"


def _origin(found: Diagnostics, day: date) -> str:
    return f"{day.isoformat()}, sharpgp {sharpgp.__version__}, test data {found.fingerprint}"


def _verdict(verdict: Verdict, wrong: Sequence[Statement]) -> str:
    more = "".join(
        f"<li>{escape(sentence(one.says))} {escape(one.advice)}</li>" for one in wrong[1:]
    )
    return (
        f'<div class="verdict {verdict.state}"><p><strong>{escape(verdict.heading)}</strong> '
        f"{escape(verdict.says)}</p>"
        + (f'<p class="do">{escape(verdict.advice)}</p>' if verdict.advice else "")
        + (f"<ul>{more}</ul>" if more else "")
        + "</div>"
    )


def _sentence(finding: Finding) -> str:
    mark = "well" if finding.well else "look"
    return (
        f'<p class="shows">{escape(finding.shows)}</p>'
        f'<p class="advice {mark}">{escape(finding.advice)}</p>'
    )


def _json(numbers: Numbers) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(numbers, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _resource(name: str) -> str:
    return files("sharpgp.report").joinpath(name).read_text(encoding="utf-8")


def _digest(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
