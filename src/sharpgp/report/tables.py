"""The tables of the report, as HTML."""

from html import escape

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


def tiles(found: Diagnostics) -> str:
    """The numbers below the verdict."""
    report = found.report
    unit = f" {found.unit}" if found.unit else ""
    shown = {
        "95 % coverage": f"{100 * report['coverage_95']:.1f} %",
        "95 % width": f"{report['width_95']:.3g}{unit}",
        "CRPS": f"{report['crps']:.3g}{unit}",
        "ECE / floor": f"{report['ece'] / report['ece_floor']:.2f}",
    }
    if "excess_risk_95" in report:
        risk, chance = report["excess_risk_95"], report["excess_risk_chance_95"]
        shown["Excess risk / chance"] = f"{max(risk, 0.0) / chance:.2f}"
    return "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in shown.items()
    )


def metrics(found: Diagnostics) -> str:
    """Rows of the table of metrics."""
    rows = []
    for key, value in found.report.items():
        label, meaning = _METRICS.get(key, (key, ""))
        rows.append(
            f'<tr><th scope="row">{escape(label)}</th><td>{value:.4g}</td>'
            f"<td>{escape(meaning)}</td></tr>"
        )
    return "".join(rows)


def worst(found: Diagnostics, numbers: Numbers) -> str:
    """Rows of the table of the points that lie farthest out."""
    return "".join(
        f'<tr><th scope="row">{point["row"]}</th><td>{point["observed"]:.4g}</td>'
        f'<td class="wide">{point["mean"]:.4g}</td>'
        f"<td>{point['lower']:.4g} to {point['upper']:.4g}</td>"
        f"<td>{point['away']:.2f}</td></tr>"
        for point in numbers["worst"]
    )


def members(numbers: Numbers) -> str:
    """Rows of the table of pooled models."""
    rows = []
    for one in numbers["learned"]["members"]:
        crps = "" if one["crps"] is None else f"{one['crps']:.4g}"
        rows.append(
            f'<tr><th scope="row">{escape(one["name"])}</th>'
            f"<td>{100 * one['weight']:.0f} %</td><td>{crps}</td></tr>"
        )
    return "".join(rows) or '<tr><td colspan="3">Not known for this model.</td></tr>'
