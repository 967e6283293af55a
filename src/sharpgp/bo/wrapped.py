"""Calibrated models and GPs as BoTorch models, for BoTorch's own acquisition functions."""

from collections.abc import Callable

import gpytorch
import torch
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.models.transforms.input import AffineInputTransform
from botorch.posteriors import TransformedPosterior
from botorch.posteriors.posterior import Posterior
from torch import Tensor

from sharpgp.bo.acquisition import NODES, STEP
from sharpgp.calibration.predictors.base import Calibrated, FittedModel, calibrated_of
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp import posterior as gps
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.kernels.covariance import STATIONARY, Stationary
from sharpgp.gp.ties import per_feature
from sharpgp.rows import Rows

# Normal scores at which mean and variance are summed up, by the trapezoidal rule.
_SUMMED = torch.arange(-28, 29, dtype=torch.float64) * STEP
_SHARES = torch.softmax(-0.5 * _SUMMED.square(), 0)


def as_botorch(model: FittedModel | ExactPosterior) -> Model:
    r"""A BoTorch model, for any of BoTorch's acquisition functions, objectives and constraints.

    Of a calibrated model: joint draws of its GP, each moved through the calibrated marginals.  A
    draw ``f`` of the GP at some points has normal scores ``u = (f - mu) / sigma``; what the BoTorch
    model draws is ``Q(Phi(u), x)``, so that every point has its calibrated distribution, and points
    depend on one another as they do under the GP.  Several in a ``ModelList`` make several
    objectives, or an objective and its constraints.  Of an exact GP (``model.posterior_``): the
    same GP.  Both need one of the named kernels.

    Parameters
    ----------
    model : SharpGPRegressor, Calibrated or ExactPosterior

    Examples
    --------
    >>> from botorch.acquisition import qLogExpectedImprovement
    >>> from sharpgp import Kuleshov18
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 40, dtype=torch.float64)[:, None]
    >>> posterior, _ = train(X[::2], 3 + X[::2, 0].sin())
    >>> calibrated = Kuleshov18().fit(posterior, X[1::2], 3 + X[1::2, 0].sin())
    >>> batch = qLogExpectedImprovement(as_botorch(calibrated), best_f=3.9)
    >>> batch(X[None, 8:11]).shape
    torch.Size([1])
    """
    if isinstance(model, gps.Posterior):
        return _single_task_gp(model)
    return CalibratedModel(calibrated_of(model))


class CalibratedModel(Model):
    """A calibrated model as a BoTorch model: see :func:`as_botorch`."""

    def __init__(self, calibrated: Calibrated) -> None:
        super().__init__()
        self.gp = _single_task_gp(calibrated.posterior)
        self._calibrated = calibrated
        self._nodes = NODES.to(calibrated.posterior.device)

    @property
    def num_outputs(self) -> int:
        """One."""
        return 1

    @property
    def batch_shape(self) -> torch.Size:
        """None."""
        return torch.Size()

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: Callable[[Posterior], Posterior] | None = None,
    ) -> Posterior:
        """Joint distribution at ``X`` [..., q, d]; marginals are those of an observation."""
        joint = self.gp.posterior(X)
        points = X.reshape(-1, X.shape[-1]).to(self._nodes)
        quantiles = self._calibrated.quantiles(Rows(points), torch.special.ndtr(self._nodes))
        table = quantiles.mT.reshape(*X.shape[:-1], 1, len(self._nodes))
        mean, deviation = joint.mean, joint.variance.clamp(min=1e-300).sqrt()

        def moved(samples: Tensor) -> Tensor:
            return between(table, (samples - mean) / deviation)

        summed = between(table, _SUMMED.to(table).reshape(-1, *[1] * (table.dim() - 1)))
        shares = _SHARES.to(table)
        centre = torch.tensordot(shares, summed, 1)
        variance = torch.tensordot(shares, (summed - centre).square(), 1)
        found: Posterior = TransformedPosterior(
            joint, moved, lambda mean, var: centre, lambda mean, var: variance
        )
        return found if posterior_transform is None else posterior_transform(found)


def between(table: Tensor, u: Tensor) -> Tensor:
    """Quantiles at normal scores ``u`` [..., n, 1], from a table [n, 1, K] at the nodes.

    Linear between nodes, and beyond the outermost ones as there.
    """
    place = (u - NODES[0].item()) / STEP
    left = place.detach().floor().clamp(0, table.shape[-1] - 2)
    shape = torch.broadcast_shapes(u.shape, table.shape[:-1])
    wide = table.expand(*shape, table.shape[-1])
    index = left.expand(shape).long().unsqueeze(-1)
    low, high = wide.gather(-1, index).squeeze(-1), wide.gather(-1, index + 1).squeeze(-1)
    return low + (place - left) * (high - low)


def _single_task_gp(posterior: gps.Posterior) -> SingleTaskGP:
    covariance = getattr(posterior, "covariance", None)
    if not isinstance(posterior, ExactPosterior) or not isinstance(covariance, Stationary):
        raise InvalidInputError(
            f"expected an exact GP with one of the kernels {', '.join(STATIONARY)}, found "
            f"{type(posterior).__name__}"
        )
    theta, scale = posterior.theta_R, posterior.y_units.scale
    kernel = covariance.as_gpytorch().to(theta)
    likelihood = gpytorch.likelihoods.GaussianLikelihood(
        noise_constraint=gpytorch.constraints.Positive()
    ).to(theta)
    mean = gpytorch.means.ConstantMean().to(theta)
    kernel.base_kernel.lengthscale = 1.0 / per_feature(theta[:-2], covariance.ties)
    kernel.outputscale = theta[-2] * scale.square()
    likelihood.noise = theta[-1] * scale.square()
    mean.constant = posterior.y_units.shift
    model = SingleTaskGP(
        posterior.X_train,
        posterior.y_train.unsqueeze(-1),
        likelihood=likelihood,
        covar_module=kernel,
        mean_module=mean,
        outcome_transform=None,
        input_transform=AffineInputTransform(
            d=posterior.n_features,
            coefficient=posterior.x_units.scale,
            offset=posterior.x_units.shift,
        ),
    )
    return model.eval()
