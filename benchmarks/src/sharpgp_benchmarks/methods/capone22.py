"""Uniform error bounds that hold for a whole region of hyperparameters."""

from typing import Self

import torch
from torch import Tensor

from sharpgp._stored import Array, agree, stored
from sharpgp._validation import check_choice
from sharpgp.calibration.predictors.by_level import LevelPredictor
from sharpgp.calibration.recalibrator import PosteriorMethod, register
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.kernel_posterior import KernelPosterior
from sharpgp.gp.posterior import Posterior
from sharpgp.rows import Rows
from sharpgp_benchmarks.methods import check_counts
from sharpgp_benchmarks.methods.hyperposterior import laplace, observed, standardised
from sharpgp_benchmarks.methods.nuts import sample

#: Training points up to which the hyperposterior is sampled: thousands of gradients cost ``N^3``
#: each.
MOST_SAMPLED = 500
HYPERPOSTERIORS = ("auto", "nuts", "laplace")
SCALINGS = ("practical", "theorem")


def simultaneous_score(coverage: Tensor, points: int) -> Tensor:
    r"""Factor of the standard deviation that bounds ``M`` jointly Gaussian errors at once.

    By Sidak's inequality ``P(|z_i| <= b for all i) >= (2 Phi(b) - 1)^M`` whatever the
    correlations, so that ``b = Phi^-1((1 + coverage^(1/M)) / 2)`` is enough.

    References
    ----------
    Z. Sidak, "Rectangular confidence regions for the means of multivariate normal
    distributions", JASA, 1967.

    Examples
    --------
    >>> round(float(simultaneous_score(torch.tensor(0.95).double(), 1)), 4)
    1.96
    >>> round(float(simultaneous_score(torch.tensor(0.95).double(), 100)), 4)
    3.474
    """
    # 1 - coverage^(1/M) without cancellation, as coverage goes to 1.
    outside = -torch.expm1(coverage.log() / points)
    return -torch.special.ndtri(0.5 * outside)


@stored("BoundingBox", centre=Array("P"), spread=Array("P", positive=True), radii=Tensor | None)
class BoundingBox:
    r"""Boxes ``theta' <= theta <= theta''`` that contain a given share of a hyperposterior.

    Boxes are nested, around the centre of ``log theta`` and in units of its spread:
    ``|log theta_j - centre_j| <= t spread_j`` for all ``j``, with ``t`` such that the box contains
    the given share.

    Parameters
    ----------
    centre, spread : Tensor [P]
        Of ``log theta``.
    radii : Tensor [S] or None
        ``max_j |log theta_j - centre_j| / spread_j`` of ``S`` samples: ``t`` is their
        ``ceil(share (S + 1))``-th smallest.  Beyond the largest, or without samples, it is that of
        a Gaussian ``log theta``, by Sidak's inequality.

    Examples
    --------
    >>> box = BoundingBox(torch.zeros(1).double(), torch.ones(1).double(), None)
    >>> lower, upper = box.bounds(torch.tensor([0.95]).double())
    >>> [round(float(v.log()), 2) for v in (lower, upper)]
    [-1.96, 1.96]
    """

    def __init__(self, centre: Tensor, spread: Tensor, radii: Tensor | None) -> None:
        self.centre = centre
        self.spread = spread
        self.radii = None if radii is None else radii.sort().values

    @classmethod
    def of_samples(cls, theta: Tensor) -> "BoundingBox":
        """Boxes around samples [S, P]: their medians, and deviations from these."""
        log = theta.log()
        centre = log.median(0).values
        spread = (log - centre).square().mean(0).sqrt()
        spread = spread.clamp_min(1e-12 * (1.0 + centre.abs()))
        return cls(centre, spread, ((log - centre).abs() / spread).amax(-1))

    def radius(self, share: Tensor) -> Tensor:
        """``t`` [K] of the boxes that hold these shares [K]."""
        gaussian = simultaneous_score(share, len(self.centre))
        if self.radii is None:
            return gaussian
        S = len(self.radii)
        rank = (share * (S + 1) - 1e-9).ceil().long()
        inside = self.radii[rank.clamp(1, S) - 1]
        last = simultaneous_score(share.new_tensor(S / (S + 1)), len(self.centre))
        return torch.where(rank <= S, inside, self.radii[-1] * gaussian / last)

    def bounds(self, share: Tensor) -> tuple[Tensor, Tensor]:
        """Componentwise bounds ``theta'`` and ``theta''`` [K, P]."""
        half = self.radius(share).unsqueeze(-1) * self.spread
        return (self.centre - half).exp(), (self.centre + half).exp()


@stored(
    "UniformBoundPredictor",
    posterior=Posterior,
    own=KernelPosterior,
    box=BoundingBox,
    points=int,
    scaling=str,
)
class UniformBoundPredictor(LevelPredictor):
    r"""``mu(x) -+ beta_bar sigma(theta'', x)`` at the bounding hyperparameters of each coverage.

    Parameters
    ----------
    posterior : Posterior
    own : KernelPosterior
        The same GP in standardised units, which the box refers to.
    box : BoundingBox
    points : int
        Number ``M`` of points at which the bound holds at once.
    scaling : {"practical", "theorem"}
    """

    n_cal = None

    def __init__(
        self,
        posterior: Posterior,
        own: KernelPosterior,
        box: BoundingBox,
        points: int,
        scaling: str,
    ) -> None:
        self.posterior = posterior
        self.own = own
        self.box = box
        self.points = points
        self.scaling = scaling

    def _restored(self) -> None:
        agree("features", self.own.n_features, self.posterior.n_features)
        agree("length of theta", len(self.box.centre), len(self.own.theta_R))

    def _updated(
        self, X: Rows, y: Tensor, weights: Tensor | None, units: Tensor | None = None
    ) -> Self:
        return self._conditioned(X, y)

    def _conditioned(self, X: Rows, y: Tensor) -> Self:
        other = super()._conditioned(X, y)
        other.own = self.own.conditioned_on(other.posterior.rows, other.posterior.y_train)
        return other

    def bound(self, X: Rows, coverage: Tensor) -> Tensor:
        """Half-widths [K, T] of the bounds at increasing coverages [K], nondecreasing."""
        share = coverage.sqrt()  # one half of the risk for theta, the other for y given theta
        lower, upper = self.box.bounds(share)
        upper = torch.maximum(upper, self.own.theta_R)  # the mean's own theta belongs to the box
        factor = simultaneous_score(share, self.points)
        if self.scaling == "theorem":
            factor = self._robust(factor, torch.minimum(lower, self.own.theta_R), upper)
        half = factor.unsqueeze(-1) * self.own.sigma(upper, X)
        return half.cummax(0).values  # sigma need not grow with every inverse lengthscale

    def _robust(self, factor: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        d = self.own.n_inverse
        log_gamma = 0.5 * (upper[:, :d] / lower[:, :d]).log().sum(-1)
        norm = self.own.y_standardised.square().sum().sqrt()
        beta_bar = (factor + 2.0 * norm / lower[:, -1].sqrt()).log() + log_gamma
        return beta_bar.clamp(max=_LOG_LARGEST).exp()

    def quantiles_inside(self, X: Rows, delta: Tensor) -> Tensor:
        """An end of the bound at coverage ``|2 delta - 1|``."""
        coverage = (2.0 * delta - 1.0).abs()
        distinct, position = coverage.unique(return_inverse=True)
        half = self.bound(X, distinct.clamp_min(torch.finfo(distinct.dtype).tiny))[position]
        return self.posterior.mean(X) + (delta - 0.5).sign().unsqueeze(-1) * half

    def band(self, X: Rows, coverage: float) -> tuple[Tensor, Tensor]:
        mean = self.posterior.mean(X)
        half = self.bound(X, torch.tensor([coverage], dtype=torch.float64, device=X.device))[0]
        return mean - half, mean + half


# Wider bounds say nothing, and infinite ones would break whatever is computed from them.
_LOG_LARGEST = 100.0


@register("capone22")
class Capone22(PosteriorMethod):
    r"""Uniform error bounds from bounding hyperparameters of the hyperposterior.

    A box ``theta' <= theta <= theta''`` contains ``sqrt(coverage)`` of the posterior of the
    hyperparameters; for every ``theta`` in it, ``M`` observations lie within
    ``b sigma(theta, x_i)`` of ``mu(theta, x_i)`` at once with probability ``sqrt(coverage)``.
    With probability ``coverage`` therefore, at all ``M`` points,
    ``|y - mu(x)| <= beta_bar sigma(theta'', x)``, where ``theta''`` bounds inverse lengthscales
    and variances from above and

    - ``scaling="practical"``: ``beta_bar = b``.  This assumes that ``sigma`` grows with the
      inverse lengthscales, as the papers on this method and on :class:`Sharp` do, and that the
      mean under ``theta_R`` is as good as that under ``theta``;
    - ``scaling="theorem"``: ``beta_bar = gamma (b + 2 |y| / sigma_n')``, which assumes neither:
      ``gamma^2 = prod_j theta''_j / theta'_j`` over the inverse lengthscales bounds
      ``sigma(theta, x) <= gamma sigma(theta'', x)`` for every ``theta`` in the box, and the norm
      ``|y|`` of the training targets over the least noise ``sigma_n'`` the difference of the
      means.  Enormous for more than one or two features.

    The quantile at level ``delta`` is an end of the bound at coverage ``|2 delta - 1|``, so that
    intervals are much wider than they need to be at a single point.  The prior is that of
    :class:`FullyBayesian`.  Calibration data are ignored.

    Parameters
    ----------
    random_state : int or None
        Seed of the sampler.
    hyperposterior : {"auto", "nuts", "laplace"}
        NUTS samples of the hyperparameters (``pip install "sharpgp-benchmarks[bayes]"``), or a
        Gaussian approximation of their logarithms at the mode; ``"auto"`` samples up to 500
        training points, :data:`MOST_SAMPLED`.
    scaling : {"practical", "theorem"}
    points : int
        Number ``M`` of points at which the bound holds at once.
    warmup, samples, max_tree_depth : int
        As in :class:`FullyBayesian`.  ``S`` samples back coverages up to ``(S / (S + 1))^2``: 100
        are enough for 0.98, and 0.99 takes 199; beyond, the box grows as a Gaussian's would.

    References
    ----------
    A. Capone, A. Lederer and S. Hirche, "Gaussian Process Uniform Error Bounds with Unknown
    Hyperparameters for Safety-Critical Applications", ICML 2022.

    Examples
    --------
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 40, dtype=torch.float64)[:, None]
    >>> y = X[:, 0].sin() + 0.1 * torch.cos(37 * X[:, 0])
    >>> posterior, _ = train(X[::2], y[::2])
    >>> bounds = Capone22(hyperposterior="laplace", points=20).fit(posterior, None, None)
    >>> lower, upper = bounds.predict_interval(X[1::2], coverage=0.99).T
    >>> bool(((lower <= y[1::2]) & (y[1::2] <= upper)).all())
    True
    """

    needs_calibration = False

    def __init__(
        self,
        *,
        random_state: int | None = None,
        hyperposterior: str = "auto",
        scaling: str = "practical",
        points: int = 100,
        warmup: int = 100,
        samples: int = 100,
        max_tree_depth: int = 7,
    ) -> None:
        super().__init__(random_state=random_state)
        check_choice(hyperposterior, "hyperposterior", HYPERPOSTERIORS)
        check_choice(scaling, "scaling", SCALINGS)
        check_counts(points=points, warmup=warmup, samples=samples, max_tree_depth=max_tree_depth)
        self.hyperposterior = hyperposterior
        self.scaling = scaling
        self.points = points
        self.warmup = warmup
        self.samples = samples
        self.max_tree_depth = max_tree_depth

    def _fit(self, posterior: Posterior, X: Rows, y: Tensor) -> UniformBoundPredictor:
        gp = standardised(posterior, self.name)
        return UniformBoundPredictor(
            posterior, gp, self._box(observed(gp, self.seed)), self.points, self.scaling
        )

    def _box(self, gp: ExactPosterior) -> BoundingBox:
        kind = self.hyperposterior
        if kind == "auto":
            kind = "nuts" if gp.n_train <= MOST_SAMPLED else "laplace"
        if kind == "laplace":
            approximation = laplace(gp)
            return BoundingBox(approximation.mode, approximation.scale, None)
        theta = sample(
            gp,
            seed=self.seed,
            warmup=self.warmup,
            samples=self.samples,
            chains=1,
            max_tree_depth=self.max_tree_depth,
            name=self.name,
        )
        return BoundingBox.of_samples(theta)
