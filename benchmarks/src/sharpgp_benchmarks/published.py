"""Figures printed in the paper, for comparison."""

#: Where the figures come from.
REFERENCE = (
    'A. Capone, S. Hirche and G. Pleiss, "Sharp Calibrated Gaussian Processes", NeurIPS 2023'
)

_METHODS = ("paper", "kuleshov18", "vovk20", "marx22", "kuleshov22", "vanilla")

# Table 1, means over 100 repetitions. One row per metric; kin8nm in the target's own units, the
# other sets in standard deviations of the target.
_TABLE_1 = {
    "boston": {
        "ece": (0.003, 0.0029, 0.0029, 0.0029, 0.0056, 0.041),
        "std": (0.16, 0.31, 0.3, 0.33, 0.22, 1.9),
        "nll": (0.21, 0.39, 0.4, 0.42, -0.24, 1.6),
        "width_95": (0.76, 1.4, 1.4, 1.4, 0.73, 7.4),
    },
    "yacht": {
        "ece": (0.0044, 0.0043, 0.0044, 0.0043, 0.0081, 0.039),
        "std": (0.16, 0.5, 0.47, 0.5, 0.14, 2.8),
        "nll": (0.26, 0.68, 0.69, 0.68, -2.0, 2.0),
        "width_95": (0.76, 2.3, 2.3, 2.3, 0.3, 11),
    },
    "mpg": {
        "ece": (0.0036, 0.0035, 0.0035, 0.0035, 0.0053, 0.044),
        "std": (0.13, 0.38, 0.38, 0.38, 0.29, 2.8),
        "nll": (0.032, 0.63, 0.64, 0.63, 0.02, 2.0),
        "width_95": (0.6, 1.7, 1.8, 1.7, 0.96, 11),
    },
    "wine": {
        "ece": (0.00047, 0.00047, 0.00047, 0.00047, 0.0067, 0.0058),
        "std": (0.54, 1.0, 1.0, 0.88, 0.72, 1.4),
        "nll": (1.2, 1.3, 1.3, 1.3, -0.36, 1.4),
        "width_95": (2.1, 3.8, 3.8, 3.9, 2.8, 5.4),
    },
    "concrete": {
        "ece": (0.00071, 0.00064, 0.00064, 0.00064, 0.00076, 0.032),
        "std": (0.25, 0.64, 0.64, 0.64, 0.57, 2.8),
        "nll": (0.72, 1.1, 1.1, 1.1, 0.85, 2.0),
        "width_95": (0.93, 2.5, 2.5, 2.5, 2.1, 11),
    },
    "kin8nm": {
        "ece": (0.00016, 0.00016, 0.00016, 0.00016, 0.00053, 0.028),
        "std": (0.074, 0.12, 0.12, 0.12, 0.098, 0.4),
        "nll": (-0.54, -0.65, -0.65, -0.63, -0.76, 0.1),
        "width_95": (0.26, 0.47, 0.47, 0.48, 0.44, 1.6),
    },
    "facebook2": {
        "ece": (0.00044, 0.00043, 0.00043, 0.00045, 0.0089, 0.044),
        "std": (0.068, 0.18, 0.18, 0.18, 0.18, 1.2),
        "nll": (3.6, -1.3, -1.3, -1.2, -2.3, 1.2),
        "width_95": (0.6, 1.7, 1.7, 1.7, 3.4, 4.6),
    },
}

# The supplement's table, means over 10 repetitions, by method.
_UNIFORM_BOUNDS: dict[str, dict[str, dict[str, float]]] = {
    "boston": {
        "violation_rate": {"paper": 0.00376, "capone22": 0.000172},
        "length_100": {"paper": 1.2, "capone22": 28.3},
    },
    "mpg": {
        "violation_rate": {"paper": 0.004, "capone22": 0.0065},
        "length_100": {"paper": 1.7, "capone22": 24.13},
    },
    "wine": {
        "violation_rate": {"paper": 0.00072, "capone22": 0.00096},
        "length_100": {"paper": 4.7, "capone22": 24.8},
    },
}

#: Data sets in the order of the table.
DATASETS = tuple(_TABLE_1)


def printed(dataset: str, method: str, metric: str) -> float | None:
    """Figure of the paper's first table or of its supplement's, if it has one.

    Examples
    --------
    >>> printed("boston", "kuleshov18", "width_95")
    1.4
    >>> printed("boston", "capone22", "length_100")
    28.3
    >>> printed("boston", "exact", "width_95") is None
    True
    """
    bounds = _UNIFORM_BOUNDS.get(dataset, {}).get(metric)
    if bounds is not None:
        return bounds.get(method)
    row = _TABLE_1.get(dataset, {}).get(metric)
    return None if row is None or method not in _METHODS else row[_METHODS.index(method)]
