"""The paper's figures of the one-dimensional problem."""

import warnings
from collections.abc import Mapping
from pathlib import Path

import torch

from sharpgp._files import make_folder
from sharpgp.calibration import Calibrated
from sharpgp.calibration.recalibrator import make_recalibrator
from sharpgp.exceptions import CalibrationWarning, InvalidInputError
from sharpgp.gp.training import train
from sharpgp.toy import Split, make_toy

#: Titles of the panels, in the order of the paper's figure.
PANELS = {
    "paper": "sharp",
    "kuleshov18": "RK",
    "vovk20": "RV",
    "marx22": "RM",
    "kuleshov22": "NN",
    "vanilla": "vanilla GP",
}
_BAYES = {"fully_bayesian": "fully Bayesian"}
#: Training points and seed of a problem whose GP covers less than 80 % at 95 %, as in the paper's
#: first figure: too few points to tell noise from signal.
OVERCONFIDENT = (16, 2)


def calibrate(methods: Mapping[str, str], data: Split, seed: int = 0) -> dict[str, Calibrated]:
    """Predictors by title, all from one base model.

    Examples
    --------
    >>> models = calibrate({"vanilla": "vanilla GP", "kuleshov18": "RK"}, make_toy())
    >>> list(models)
    ['vanilla GP', 'RK']
    """
    posterior, _ = train(torch.from_numpy(data.X_train), torch.from_numpy(data.y_train), prior=None)
    return {
        title: make_recalibrator(method, random_state=seed).fit(posterior, data.X_cal, data.y_cal)
        for method, title in methods.items()
    }


def draw(out: Path, *, fully_bayesian: bool = False, seed: int = 0) -> list[str]:
    """Write ``toy.png`` (99 % intervals of all methods) and two figures of Bayesian and sharp.

    ``toy_95.png`` has 95 % intervals of the same models, ``toy_overconfident.png`` those of a GP
    that covers far less than it says (:data:`OVERCONFIDENT`).

    Parameters
    ----------
    out : Path
        Folder, made if it is not there.
    fully_bayesian : bool
        The mixture over sampled hyperparameters as a seventh panel, and in the second figure in
        place of the GP with its most likely ones.
    seed : int
        Of the data.

    Returns
    -------
    list of str
        Names of the files.
    """
    from sharpgp import plots

    if seed < 0:
        raise InvalidInputError(f"seed: expected a whole number >= 0, found {seed}")
    make_folder(out)
    data = make_toy(random_state=seed)
    methods = {**PANELS, **(_BAYES if fully_bayesian else {})}
    with warnings.catch_warnings():
        # 200 calibration points support the quantiles of a 99 % interval only just.
        warnings.simplefilter("ignore", CalibrationWarning)
        models = calibrate(methods, data, seed)
        plots.toy_figure(models, data, coverage=0.99).savefig(out / "toy.png", dpi=150)
        bayesian = _BAYES["fully_bayesian"] if fully_bayesian else PANELS["vanilla"]
        pair = {"Bayesian": models[bayesian], "sharp": models[PANELS["paper"]]}
        plots.toy_figure(pair, data, coverage=0.95).savefig(out / "toy_95.png", dpi=150)
        few = overconfident()
        models = calibrate({"vanilla": "Bayesian", "paper": "sharp"}, few)
        figure = plots.toy_figure(models, few, coverage=0.95)
        figure.savefig(out / "toy_overconfident.png", dpi=150)
    return ["toy.png", "toy_95.png", "toy_overconfident.png"]


def overconfident() -> Split:
    """The problem of the paper's first figure.

    Examples
    --------
    >>> data = overconfident()
    >>> model = calibrate({"vanilla": "Bayesian"}, data)["Bayesian"]
    >>> lower, upper = model.predict_quantiles(data.X_test, [0.025, 0.975]).numpy().T
    >>> bool(((lower <= data.y_test) & (data.y_test <= upper)).mean() < 0.8)
    True
    """
    n_train, seed = OVERCONFIDENT
    return make_toy(n_train=n_train, random_state=seed)
