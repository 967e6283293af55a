"""The tables of the report, as HTML."""

from html import escape

from sharpgp._numbers import number, percent
from sharpgp.diagnostics import Diagnostics
from sharpgp.report.numbers import Numbers

#: Metrics of the table: label and meaning.
_METRICS = {
    "ece": ("ECE", "Mean squared gap between nominal and observed shares over 21 levels."),
    "ece_floor": ("ECE floor", "What a perfectly calibrated model scores on as many points."),
    "coverage_95": ("Coverage of 95 % intervals", "Share of points inside; should be 0.95."),
    "width_95": ("Width of 95 % intervals", "Mean width; smaller is better at equal coverage."),
    "interval_score_95": ("Interval score, 95 %", "Width plus a charge for each miss."),
    "excess_risk_95": (
        "Excess risk at 95 %",
        "How far coverage given the features is from 0.95 on average, as far as a classifier "
        "can tell.",
    ),
    "excess_risk_chance_95": (
        "Excess risk by chance",
        "49 in 50 models with 0.95 everywhere stay below it on as many points.",
    ),
    "crps": ("CRPS", "Distance of the whole distribution from the observation, in target units."),
    "nll": ("NLL", "Negative log density at the observation; very sensitive to the tails."),
    "pinball": ("Pinball loss", "Mean loss of the quantiles at 19 levels."),
    "std": ("Predictive STD", "Mean standard deviation of the predictions."),
    "rmse": ("RMSE", "Error of the mean alone, without its uncertainty."),
}


def tiles(found: Diagnostics, shown: Numbers) -> str:
    """The numbers below the verdict; ``shown``: those of the intervals that are shown first."""
    unit = f" {found.unit}" if found.unit else ""
    asked = percent(shown["coverage"])
    tiles = {
        f"{asked} intervals cover": percent(shown["covered"]),
        "Their mean width": f"{number(shown['width'], 3)}{unit}",
        "CRPS": f"{number(found.report['crps'], 3)}{unit}",
        "Variance explained": percent(found.explained),
    }
    if not found.out_of_fold:
        tiles["Calibration error / chance"] = number(found.ece_ratio, 3)
    return "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in tiles.items()
    )


def metrics(found: Diagnostics) -> str:
    """Rows of the table of metrics."""
    rows = []
    for key, value in found.report.items():
        label, meaning = _METRICS.get(key, (key, ""))
        rows.append(
            f'<tr><th scope="row">{escape(label)}</th><td>{number(value)}</td>'
            f"<td>{escape(meaning)}</td></tr>"
        )
    return "".join(rows)


def worst(found: Diagnostics, numbers: Numbers) -> str:
    """Rows of the table of the points that lie farthest out."""
    return "".join(
        f'<tr><th scope="row">{point["row"]:,}</th><td>{found.show(point["observed"])}</td>'
        f'<td class="wide">{found.show(point["mean"])}</td>'
        f"<td>{found.show(point['lower'])} to {found.show(point['upper'])}</td>"
        f"<td>{point['away']:.2f}</td></tr>"
        for point in numbers["worst"]
    )


def members(numbers: Numbers) -> str:
    """Rows of the table of pooled models."""
    rows = []
    for one in numbers["learned"]["members"]:
        crps = "" if one["crps"] is None else number(one["crps"])
        rows.append(
            f'<tr><th scope="row">{escape(one["name"])}</th>'
            f"<td>{100 * one['weight']:.0f} %</td><td>{crps}</td></tr>"
        )
    return "".join(rows) or '<tr><td colspan="3">Not known for this model.</td></tr>'
