r"""Bayesian optimisation with calibrated quantiles, in BoTorch's terms.

:class:`CalibratedUpperConfidenceBound` goes wherever BoTorch takes an acquisition function;
:class:`Optimiser` is a loop around it, for those who have none of their own.
"""

import warnings
from typing import Any, Protocol

import gpytorch
import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import AffineInputTransform
from botorch.optim import optimize_acqf
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from sharpgp._ranks import points_needed, supported
from sharpgp._validation import as_count, as_features, as_levels
from sharpgp.calibration import Calibrated
from sharpgp.calibration.calibrated import calibrated_of
from sharpgp.exceptions import CalibrationWarning, InvalidInputError
from sharpgp.gp.covariance import STATIONARY, Stationary
from sharpgp.gp.exact import ExactPosterior
from sharpgp.gp.ties import per_feature

# Steps of the search for the best point; bounds are smooth, and the next point need not be exact.
_MOST_STEPS = 100


class CalibratedUpperConfidenceBound(AcquisitionFunction):
    r"""The calibrated ``delta``-quantile as an upper confidence bound.

    ``mu(x) + beta(delta) sigma(theta(delta), x)``: the mean of the base model, and the spread of
    the calibrated one; for minimisation, minus the ``1 - delta``-quantile.  A drop-in for
    BoTorch's ``UpperConfidenceBound``: gradients, batches of any shape, ``optimize_acqf``, and
    whatever device the model is on.

    Pending points enter as observations of their own mean (hallucinations): the mean stays, and
    the spread shrinks around them, so that ``optimize_acqf(q=..., sequential=True)`` spreads a
    batch out.

    Parameters
    ----------
    model : SharpGPRegressor or Calibrated
        A fitted estimator, or what a recalibrator's ``fit`` returned.
    delta : float
        Level of the bound.  With fewer than ``1 / (1 - delta) - 1`` calibration points (99 for
        0.99) it lies in the modelled tail, and a warning says so.
    maximize : bool
        False to minimise the target.
    X_pending : Tensor [n, d], optional
        Points that are being evaluated.

    References
    ----------
    A. Capone, S. Hirche and G. Pleiss, "Sharp Calibrated Gaussian Processes", NeurIPS 2023,
    supplement.  T. Desautels, A. Krause and J. Burdick, "Parallelizing Exploration-Exploitation
    Tradeoffs in Gaussian Process Bandit Optimization", JMLR 2014 (pending points).

    Examples
    --------
    >>> from botorch.optim import optimize_acqf
    >>> from sharpgp import SharpGPRegressor
    >>> X = torch.linspace(-1, 1, 120, dtype=torch.float64)[:, None]
    >>> y = -(X[:, 0] - 0.3).square() + 0.01 * torch.cos(57 * X[:, 0])
    >>> model = SharpGPRegressor(calibration="kuleshov18", cal_size=99, random_state=0).fit(X, y)
    >>> bound = CalibratedUpperConfidenceBound(model, delta=0.99)
    >>> bounds = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
    >>> best, value = optimize_acqf(bound, bounds, q=1, num_restarts=2, raw_samples=16)
    >>> bool(abs(best.item() - 0.3) < 0.1)
    True
    """

    def __init__(
        self,
        model: Any,
        delta: float = 0.99,
        *,
        maximize: bool = True,
        X_pending: Tensor | None = None,
    ) -> None:
        calibrated = calibrated_of(model)
        super().__init__(model=calibrated)  # type: ignore[arg-type]
        levels, single = as_levels(delta)
        if not single:
            raise InvalidInputError(f"delta: expected one level in (0, 1), found {delta!r}")
        level = levels[0]
        self.maximize = maximize
        side = level if maximize else 1.0 - level
        self.delta = torch.tensor([side], dtype=torch.float64, device=calibrated.posterior.device)
        C = calibrated.n_cal
        if C is not None and not bool(supported(self.delta, C)):
            warnings.warn(
                f"delta {level:g} needs at least {points_needed(level)} calibration points, found "
                f"{C}: the bound lies in a modelled tail, without a guarantee",
                CalibrationWarning,
                stacklevel=2,
            )
        self._base = calibrated
        self.set_X_pending(X_pending)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Take account of points [n, d] that are being evaluated; None for none."""
        super().set_X_pending(X_pending)
        model = self._base
        if self.X_pending is not None and len(self.X_pending):
            with torch.no_grad():
                X = as_features(self.X_pending, device=model.posterior.device)
                model = model.condition_on_observations(X, model.predict_mean(X))
        self._now = model

    @t_batch_mode_transform(expected_q=1)  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """The bound at each of ``X`` [..., 1, d], as [...]."""
        points = X.reshape(-1, X.shape[-1]).to(self.delta)
        quantile = self._now.quantiles(points, self.delta)[0]
        value = quantile if self.maximize else -quantile
        return value.reshape(X.shape[:-2]).to(X)


def as_botorch(posterior: ExactPosterior) -> SingleTaskGP:
    """The same GP as a BoTorch model, hyperparameters included, for BoTorch's own acquisitions.

    Needs one of the named kernels.  Mean and variance agree to rounding.

    Examples
    --------
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 20, dtype=torch.float64)[:, None]
    >>> posterior, _ = train(X, 3 + X[:, 0].sin())
    >>> model = as_botorch(posterior)
    >>> bool((model.posterior(X).mean[:, 0] - posterior.mean(X)).abs().max() < 1e-8)
    True
    """
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


class Recalibrate(Protocol):
    """Trains and calibrates on all data so far, ``X`` [n, d] and ``y`` [n]."""

    def __call__(self, X: Tensor, y: Tensor) -> Calibrated:
        """The calibrated predictor."""


class Optimiser:
    """Ask for a point, tell its value: a loop around an acquisition function.

    The model is conditioned on every new point; its hyperparameters and curves are kept, unless
    ``recalibrate`` is called every ``every`` points.

    Parameters
    ----------
    model : SharpGPRegressor or Calibrated
    bounds : Tensor [2, d]
        Lower and upper bounds of the search space.
    delta, maximize
        As in :class:`CalibratedUpperConfidenceBound`.
    recalibrate : callable, optional
        ``recalibrate(X, y)`` returns a predictor trained and calibrated on all data so far.
    every : int
        Points between two recalibrations.
    num_restarts, raw_samples : int
        Of ``optimize_acqf``.

    Examples
    --------
    >>> from sharpgp import Vanilla
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(-1, 1, 8, dtype=torch.float64)[:, None]
    >>> model = Vanilla().fit(train(X, (2 * X[:, 0]).cos())[0], None, None)
    >>> loop = Optimiser(model, torch.tensor([[-1.0], [1.0]]).double(), delta=0.9)
    >>> for _ in range(3):
    ...     x = loop.ask()
    ...     loop.tell(x, (2 * x[:, 0]).cos())
    >>> loop.model.posterior.n_train, bool(abs(x.item()) < 0.2)
    (11, True)
    """

    def __init__(
        self,
        model: Any,
        bounds: Tensor,
        *,
        delta: float = 0.99,
        maximize: bool = True,
        recalibrate: Recalibrate | None = None,
        every: int = 10,
        num_restarts: int = 4,
        raw_samples: int = 64,
    ) -> None:
        self.model = calibrated_of(model)
        self.bounds = bounds.to(self.model.posterior.theta_R)
        self.delta = delta
        self.maximize = maximize
        self.recalibrate = recalibrate
        self.every = as_count(every, "every", least=1)
        self.num_restarts = num_restarts
        self.raw_samples = raw_samples
        self._since = 0

    def acquisition(self) -> AcquisitionFunction:
        """The bound under the model as it is now."""
        with warnings.catch_warnings():
            # Said once by whoever made the model; not again at every point.
            warnings.simplefilter("ignore", CalibrationWarning)
            return CalibratedUpperConfidenceBound(self.model, self.delta, maximize=self.maximize)

    def ask(self, q: int = 1) -> Tensor:
        """The next ``q`` points to evaluate, [q, d]."""
        points, _ = optimize_acqf(
            self.acquisition(),
            self.bounds,
            q=q,
            sequential=q > 1,
            num_restarts=self.num_restarts,
            raw_samples=self.raw_samples,
            options={"maxiter": _MOST_STEPS},
        )
        found: Tensor = points
        return found

    def tell(self, X: Tensor, y: Tensor) -> None:
        """Values ``y`` [n] that were observed at ``X`` [n, d]."""
        self.model = self.model.condition_on_observations(X, y)
        self._since += len(X)
        if self.recalibrate is not None and self._since >= self.every:
            gp = self.model.posterior
            self.model, self._since = self.recalibrate(gp.X_train, gp.y_train), 0
