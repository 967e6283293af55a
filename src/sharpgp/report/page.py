"""The HTML page: numbers, sentences and a template become one self-contained file."""

import base64
import hashlib
import json
import os
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from sharpgp._files import replacing
from sharpgp.diagnostics import Diagnostics, diagnose
from sharpgp.report import words
from sharpgp.report.numbers import Numbers, numbers_of
from sharpgp.report.words import Finding

#: Coverage that the page shows first.
FIRST_COVERAGE = 0.95

#: Metrics of the table: label, and what it tells.
_METRICS = {
    "ece": ("ECE", "Mean squared gap between nominal and observed shares over 21 levels."),
    "ece_floor": ("ECE floor", "What a perfectly calibrated model scores on as many points."),
    "coverage_95": ("Coverage of 95 % intervals", "Share of points inside; 0.95 is asked for."),
    "width_95": ("Width of 95 % intervals", "Mean width; smaller is better at equal coverage."),
    "interval_score_95": ("Interval score, 95 %", "Width plus a charge for each miss."),
    "crps": ("CRPS", "Distance of the whole distribution from what came; in target units."),
    "nll": ("NLL", "Negative log density at what came; very sensitive to the tails."),
    "pinball": ("Pinball loss", "Mean loss of the quantiles at 19 levels."),
    "std": ("Predictive STD", "Mean standard deviation of the predictions."),
    "rmse": ("RMSE", "Error of the mean alone, without its uncertainty."),
}


def write_report(
    model: Any,
    X: Any,
    y: Any,
    out: str | os.PathLike[str],
    *,
    feature_names: Sequence[str] | None = None,
    title: str = "Calibration report",
) -> Path:
    """Write the calibration report of a fitted model on test data as one HTML file.

    The page holds a reliability diagram with its sampling band, interval widths, coverage by
    width and by feature, the PIT histogram, the curves ``beta`` and ``theta``, and a table of
    metrics with the ECE floor, each with a sentence that says what it shows and what to do. It
    needs no network.

    Parameters
    ----------
    model : SharpGPRegressor, Calibrated, or a fitted Pipeline or search that ends in one
    X : array or frame of shape (n, d)
    y : array of shape (n,)
        Test data: neither trained nor calibrated on.
    out : path
        File to write.
    feature_names : sequence of d str, optional
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
    page = render_report(diagnose(model, X, y, feature_names=feature_names), title=title)
    with replacing(out) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return Path(out)


def render_report(found: Diagnostics, *, title: str = "Calibration report") -> str:
    """The page of :func:`write_report` as a string, from what ``diagnose`` collected."""
    numbers = numbers_of(found)
    first = int(np.abs(found.coverages - FIRST_COVERAGE).argmin())
    feature = _first_feature(numbers, first)
    _add_words(found, numbers)
    numbers["first"] = {"coverage": first, "feature": feature}
    shown = numbers["intervals"][first]
    reliability = words.reliability(found, numbers)
    text = {
        "title": escape(title),
        "sizes": escape(_sizes(found)),
        "verdict": _verdict(found, reliability),
        "tiles": _tiles(found),
        "reliability": _sentence(reliability),
        "pit": _sentence(words.pit(found, numbers)),
        "widths": _sentence(Finding(**shown["words"]["widths"])),
        "by_width": _sentence(Finding(**shown["words"]["by_width"])),
        "by_feature": _sentence(Finding(**shown["words"]["by_feature"][feature])),
        "beta": _sentence(words.beta_curve(found, numbers)),
        "theta": _sentence(words.theta_curve(found, numbers)),
        "metrics": _metrics(found),
    }
    style, script = _resource("style.css"), _resource("figures.js")
    page = _resource("page.html")
    # Hashes in place of 'unsafe-inline': a browser then runs this script and no other.
    policy = f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'"
    parts = {"policy": policy, "style": style, "script": script, "numbers": _json(numbers), **text}
    for name, content in parts.items():
        page = page.replace(f"<!--{name}-->", content)
    return page


def _add_words(found: Diagnostics, numbers: Numbers) -> None:
    """Sentences for every choice that the page's controls offer."""
    names = numbers["features"]
    for part in numbers["intervals"]:
        part["words"] = {
            "widths": vars(words.widths(found, part)),
            "by_width": vars(words.by_width(found, part)),
            "by_feature": [
                vars(words.by_feature(found, part, j, names)) for j in range(len(names))
            ],
        }


def _first_feature(numbers: Numbers, k: int) -> int:
    """The feature along which coverage strays most from the band of chance."""
    part = numbers["intervals"][k]

    def stray(bins: list[Numbers]) -> float:
        return max(max(b["low"] - b["covered"], b["covered"] - b["high"]) for b in bins)

    return int(np.argmax([stray(bins) for bins in part["by_feature"]]))


def _sizes(found: Diagnostics) -> str:
    calibrated = "no calibration points" if found.n_cal is None else f"{found.n_cal:,} calibration"
    if found.counted == "groups":
        calibrated += " groups"
    return (
        f"Calibration {found.method}; {found.n_train:,} training, {calibrated} and "
        f"{len(found.y):,} test points; {found.X.shape[1]} features"
    )


def _verdict(found: Diagnostics, reliability: Finding) -> str:
    if reliability.well:
        return (
            '<p class="verdict well"><strong>Calibrated</strong>, as far as these points can tell.'
            "</p>"
        )
    return (
        '<p class="verdict look"><strong>Not calibrated</strong> on these points, beyond chance: '
        "see the reliability diagram.</p>"
    )


def _tiles(found: Diagnostics) -> str:
    report = found.report
    tiles = {
        "95 % coverage": f"{100 * report['coverage_95']:.1f} %",
        "95 % width": f"{report['width_95']:.3g}",
        "CRPS": f"{report['crps']:.3g}",
        "ECE / floor": f"{report['ece'] / report['ece_floor']:.2f}",
    }
    return "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in tiles.items())


def _sentence(finding: Finding) -> str:
    mark = "well" if finding.well else "look"
    return (
        f'<p class="shows">{escape(finding.shows)}</p>'
        f'<p class="advice {mark}">{escape(finding.advice)}</p>'
    )


def _metrics(found: Diagnostics) -> str:
    rows = []
    for key, value in found.report.items():
        label, meaning = _METRICS.get(key, (key, ""))
        rows.append(
            f'<tr><th scope="row">{escape(label)}</th><td>{value:.4g}</td>'
            f"<td>{escape(meaning)}</td></tr>"
        )
    return "".join(rows)


def _json(numbers: Numbers) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(numbers, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _resource(name: str) -> str:
    return files("sharpgp.report").joinpath(name).read_text(encoding="utf-8")


def _digest(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
