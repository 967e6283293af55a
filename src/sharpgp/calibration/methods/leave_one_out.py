"""Leave-one-out scores of the one fit, without refits."""

from sharpgp.calibration.cautions import warn_if_overfitted
from sharpgp.calibration.methods.cross_validation import WithoutHoldout
from sharpgp.calibration.recalibrator import CalibrationPoints, Scored, register
from sharpgp.data.folds import row_labels
from sharpgp.exceptions import InvalidInputError
from sharpgp.models.pool import Base, inputs_of, pooled


@register("loo")
class LeaveOneOut(WithoutHoldout):
    """No holdout and no refits: leave-one-out scores of one fit, in closed form.

    Quick, but optimistic by a point or so, because the hyperparameters have seen every point.
    Rows with equal inputs are left out together, and calibrated as :class:`CrossValidated` does.

    Examples
    --------
    >>> import torch
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> posterior, _ = train(X, X[:, 0].sin() + 0.1 * torch.cos(37 * X[:, 0]))
    >>> LeaveOneOut().fit(posterior).n_cal
    60
    """

    knows_inputs = True
    takes_groups = False

    def _scored(self, base: Base, points: CalibrationPoints) -> Scored:
        if points.groups is not None or points.groups_train is not None:
            raise InvalidInputError(
                "loo: expected points without groups, found groups, of which it would leave "
                "out only one point at a time; use calibration='cv'"
            )
        models, _ = self._everything(base, points)
        gps = [gp for model in models.values() if (gp := model.gp) is not None]
        if gps:
            warn_if_overfitted(gps[0])
        labels = row_labels(inputs_of(models))
        held = [model.leave_one_out(labels, self.seed) for model in models.values()]
        return Scored(*pooled(models, held))
