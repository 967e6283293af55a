"""Recalibration by a small network trained on the check score (NN)."""

import copy
import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from sharpgp._stored import Array, Several, agree, stored
from sharpgp._validation import as_target
from sharpgp.calibration.predictors.by_level import HeldOutPredictor
from sharpgp.calibration.recalibrator import PosteriorMethod, register
from sharpgp.exceptions import InvalidInputError, NumericalError, warn
from sharpgp.gp.posterior import Posterior
from sharpgp.gp.scaling import Affine
from sharpgp.rows import Inputs, Rows, rows_of_earlier
from sharpgp_benchmarks.methods import check_counts

#: Levels of the base quantiles that the network sees, and where its slope in ``u`` may change.
BASE_LEVELS = tuple(round(0.1 * j, 1) for j in range(1, 10))

_LEVELS_PER_EPOCH = 32
_CHECKED = 0.8  # coverage that the network has to reach on the points that it was trained on
_UNIT_SLOPE = math.log(math.e - 1.0)  # softplus of it is 1


@stored("Network", weights=Several(Tensor))
@dataclass(frozen=True, repr=False)
class Network:
    r"""A monotone map from a base z-score ``u`` to a recalibrated one, given base quantiles.

    ``g(u; f) = c(f) + int_0^u s(v; f) dv`` with an offset ``c`` and slopes ``s > 0`` that are
    constant between the base quantiles' z-scores, all of them the outputs of a perceptron with
    two hidden layers.  Positive slopes make ``g`` increase in ``u``, whatever the weights.

    Parameters
    ----------
    weights : tuple of Tensor
        Matrix and bias of each of the three layers.

    Examples
    --------
    >>> network = Network.fresh(4, torch.Generator().manual_seed(0))
    >>> u = torch.tensor([-1.0, 2.0], dtype=torch.float64)
    >>> network.scores(torch.zeros(3, len(BASE_LEVELS), dtype=torch.float64), u[:, None]).mT[0]
    tensor([-1.,  2.], dtype=torch.float64)
    """

    weights: tuple[Tensor, ...]

    @classmethod
    def fresh(cls, hidden: int, generator: torch.Generator) -> "Network":
        """A network with random hidden layers that maps every ``u`` to itself."""
        sizes = (len(BASE_LEVELS), hidden, hidden, len(BASE_LEVELS) + 2)
        weights: list[Tensor] = []
        for rows, columns in itertools.pairwise(sizes[:3]):
            draw = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
            weights += [draw / math.sqrt(rows), draw.new_zeros(columns)]
        weights += [draw.new_zeros(sizes[2], sizes[3]), draw.new_zeros(sizes[3])]
        return cls(tuple(weights))

    def _restored(self) -> None:
        agree("layers of the network", len(self.weights), 6)
        sizes = {"in": len(BASE_LEVELS), "out": len(BASE_LEVELS) + 2}
        shapes = ("in one", "one", "one two", "two", "two out", "out")
        for weight, shape in zip(self.weights, shapes, strict=True):
            Array(shape).check(weight, sizes)

    def to(self, device: torch.device) -> "Network":
        """The same network on another device."""
        return Network(tuple(w.to(device) for w in self.weights))

    def scores(self, features: Tensor, u: Tensor) -> Tensor:
        """``g(u; f)`` [K, T] for features [T, F] and base z-scores ``u`` [K, 1] or [K, T]."""
        W1, b1, W2, b2, W3, b3 = self.weights
        hidden = torch.tanh(torch.tanh(features @ W1 + b1) @ W2 + b2)
        offset, raw = (hidden @ W3 + b3).split([1, len(BASE_LEVELS) + 1], dim=-1)
        slopes = softplus(raw + _UNIT_SLOPE)
        knots = torch.special.ndtri(features.new_tensor(BASE_LEVELS))
        left = torch.cat([knots.new_tensor([-math.inf]), knots])
        right = torch.cat([knots, knots.new_tensor([math.inf])])
        # Signed length of the way from 0 to u within each cell.
        start = torch.zeros_like(left).clamp(left, right)
        way = torch.minimum(torch.maximum(u.unsqueeze(-1), left), right) - start
        return offset.squeeze(-1) + torch.einsum("ktc,tc->kt", way, slopes)

    def __repr__(self) -> str:
        return f"Network({self.weights[0].shape[1]} hidden units)"


@stored(
    "NetworkPredictor",
    posterior=Posterior,
    network=Network,
    units=Affine,
    method=PosteriorMethod,
    earlier=rows_of_earlier,
    rows_cal=Rows,
    y_cal=Array("C"),
    n_cal=int,
)
class NetworkPredictor(HeldOutPredictor):
    """``Q(delta, x) = mu(x) + g(Phi^-1(delta); f(x)) sigma(theta_R, x)``.

    Parameters
    ----------
    posterior : Posterior
    network : Network
    units : Affine
        Units of the features.
    method : Kuleshov22
        The settings that the network was trained with.
    rows_cal, y_cal : Rows [C], Tensor [C]
        The calibration points, of which ``n_cal`` trained the network.
    """

    def __init__(
        self,
        posterior: Posterior,
        network: Network,
        units: Affine,
        method: "Kuleshov22",
        rows_cal: Inputs,
        y_cal: Tensor,
    ) -> None:
        self.posterior = posterior
        self.network = network
        self.units = units
        self.method = method
        self.rows_cal = Rows.of(rows_cal)
        self.y_cal = y_cal
        self.n_cal: int = min(len(y_cal), method.max_points)

    def calibrated_on(self, X: Rows, y: Tensor) -> "NetworkPredictor":
        """The network is trained again."""
        return self.method._fit(self.posterior, X, y)

    def _restored(self) -> None:
        agree("number of calibration points", self.n_cal > 0, True)
        agree("units of the network", self.units.shift.dim(), 0)

    def quantiles_inside(self, X: Rows, delta: Tensor) -> Tensor:
        mu, sigma = base_prediction(self.posterior, X)
        features = base_quantiles(mu, sigma, self.units)
        scores = self.network.scores(features, torch.special.ndtri(delta).unsqueeze(-1))
        # In exact arithmetic g increases; rounding may disagree for levels next to each other.
        return mu + scores.cummax(0).values * sigma

    def band(self, X: Rows, coverage: float) -> tuple[Tensor, Tensor]:
        """The band with ``coverage`` of the predicted mass.

        Between ``Q(p)`` and ``Q(p + coverage)`` lies that mass for every ``p``; the band is
        symmetric at the ``p`` where ``g(p) + g(p + coverage) = 0``, and the left side increases.
        """
        mu, sigma = base_prediction(self.posterior, X)
        features = base_quantiles(mu, sigma, self.units)
        shift = torch.tensor([[0.0], [coverage]], dtype=torch.float64, device=X.device)
        low = torch.zeros_like(mu)
        high = torch.full_like(mu, 1.0 - coverage)
        for _ in range(60):
            middle = 0.5 * (low + high)
            levels = (middle + shift).clamp(max=1.0 - 2.0**-53)
            ends = self.network.scores(features, torch.special.ndtri(levels))
            positive = ends.sum(0) > 0
            low, high = torch.where(positive, low, middle), torch.where(positive, middle, high)
        radius = 0.5 * (ends[1] - ends[0]) * sigma
        return mu - radius, mu + radius


def base_prediction(posterior: Posterior, X: Rows) -> tuple[Tensor, Tensor]:
    """``mu`` and ``sigma`` [T] of the base model."""
    return posterior.mean(X), posterior.sigma(posterior.theta_R.unsqueeze(0), X)[0]


def base_units(mu: Tensor, sigma: Tensor) -> Affine:
    """Mean and standard deviation of the target over points drawn from their base predictions."""
    typical = sigma.mean()  # in its units squares neither overflow nor vanish
    variance = (mu / typical).var(correction=0) + (sigma / typical).square().mean()
    return Affine(mu.mean(), typical * variance.sqrt())


def base_quantiles(mu: Tensor, sigma: Tensor, units: Affine) -> Tensor:
    """Features [T, F]: base quantiles in standardised units."""
    u = torch.special.ndtri(mu.new_tensor(BASE_LEVELS))
    return units.forward(mu).unsqueeze(-1) + (sigma / units.scale).unsqueeze(-1) * u


@register("kuleshov22")
class Kuleshov22(PosteriorMethod):
    r"""A network maps base quantiles and a level to a new quantile, trained on the check score.

    ``Q(delta, x) = mu(x) + g(Phi^-1(delta); f(x)) sigma(theta_R, x)``, where ``f(x)`` are nine
    quantiles of the base prediction, standardised by the mean and the standard deviation that the
    base model predicts for the target over the calibration points, and ``g`` (a
    :class:`Network`) minimises over random levels ``delta`` and the calibration points

    ``mean max(delta (y - Q), (delta - 1) (y - Q))``.

    ``g`` increases in the level by construction, so that quantiles cannot cross, and starts as the
    identity, that is, at the base GP's own quantiles.  It is trained by AdamW on all calibration
    points at once, with 32 levels per epoch, evenly spread and randomly shifted.  Nothing in it
    enforces calibration: expect narrower intervals than those from ranks, and coverage below the
    nominal one with few calibration points, or with a base model so far off that training does not
    make up for it; a warning then says that its intervals do not even cover the points it was
    trained on.

    Parameters
    ----------
    random_state : int or None
        Seed of the initial weights, the levels and the choice of points.
    epochs : int
        Passes over the calibration data.
    max_points : int
        Most calibration points to use; of more, a random subset that depends on ``random_state``
        and not on the order of the rows.
    hidden : int
        Units in each of the two hidden layers.
    learning_rate : float
        AdamW's first step size; it falls to zero along a half cosine.
    weight_decay : float
        AdamW's decay, which pulls the answer towards the base quantiles.
    start : Network, optional
        Weights to start from; see :meth:`pretrained_on`.

    References
    ----------
    V. Kuleshov and S. Deshpande, "Calibrated and Sharp Uncertainties in Deep Learning via
    Density Estimation", ICML 2022.

    Examples
    --------
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> y = X[:, 0].sin() + 0.1 * torch.cos(37 * X[:, 0])
    >>> posterior, _ = train(X[::2], y[::2])
    >>> calibrated = Kuleshov22(epochs=50, random_state=0).fit(posterior, X[1::2], y[1::2])
    >>> calibrated.predict_interval(X[:3], coverage=0.9).shape
    torch.Size([3, 2])
    """

    def __init__(
        self,
        *,
        random_state: int | None = None,
        epochs: int = 200,
        max_points: int = 500,
        hidden: int = 20,
        learning_rate: float = 0.003,
        weight_decay: float = 1.0,
        start: Network | None = None,
    ) -> None:
        super().__init__(random_state=random_state)
        check_counts(epochs=epochs, max_points=max_points, hidden=hidden)
        if not learning_rate >= 0:
            raise InvalidInputError(f"learning_rate: expected at least 0, found {learning_rate}")
        if start is not None and not isinstance(start, Network):
            raise InvalidInputError(f"start: expected a Network, found {type(start).__name__}")
        self.epochs = epochs
        self.max_points = max_points
        self.hidden = hidden
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.start = start

    def pretrained_on(
        self, posterior: Posterior, X_cal: Any, y_cal: Any, *, epochs: int = 2000
    ) -> "Kuleshov22":
        """The same method, starting from weights trained on another data set.

        Features and losses have no units, so that weights carry over between targets.

        Parameters
        ----------
        posterior : Posterior
            A GP trained on the other data set.
        X_cal, y_cal : arrays of shape (C, d) and (C,)
            Calibration data of the other data set.
        epochs : int

        Returns
        -------
        Kuleshov22
            A new recalibrator; this one is not changed.

        Examples
        --------
        >>> from sharpgp.gp.training import train
        >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
        >>> y = X[:, 0].sin() + 0.1 * torch.cos(37 * X[:, 0])
        >>> posterior, _ = train(X[::2], y[::2])
        >>> method = Kuleshov22(random_state=0)
        >>> method.pretrained_on(posterior, X[1::2], y[1::2], epochs=50).start
        Network(20 hidden units)
        """
        X = Rows.checked(X_cal, n_features=posterior.n_features, device=posterior.device)
        y = as_target(y_cal, n_rows=len(X), device=posterior.device)
        pretrained = copy.copy(self)
        pretrained.epochs = epochs
        pretrained.start = pretrained._fit(posterior, X, y).network
        pretrained.epochs = self.epochs
        return pretrained

    def _fit(self, posterior: Posterior, X: Rows, y: Tensor) -> NetworkPredictor:
        generator = torch.Generator()
        generator.manual_seed(int(np.random.default_rng(self.seed).integers(2**62)))
        start = self.start or Network.fresh(self.hidden, generator)
        rows_cal, y_cal = X, y
        X, y = self._chosen(X, y, generator)
        mu, sigma = base_prediction(posterior, X)
        units = base_units(mu, sigma)
        features = base_quantiles(mu, sigma, units)
        residual, spread = (y - mu) / units.scale, sigma / units.scale
        network = self._trained(start.to(X.device), features, residual, spread, generator)
        fitted = NetworkPredictor(posterior, network, units, copy.copy(self), rows_cal, y_cal)
        lower, upper = fitted.band(X, _CHECKED)
        inside = float(((lower <= y) & (y <= upper)).double().mean())
        if inside < _CHECKED - 2.0 * math.sqrt(_CHECKED * (1.0 - _CHECKED) / len(y)):
            warn(
                f"{_CHECKED:.0%} intervals cover only {inside:.0%} of the {len(y)} calibration "
                "points themselves: they will cover much less than requested; use "
                "calibration='exact'"
            )
        return fitted

    def _chosen(self, X: Rows, y: Tensor, generator: torch.Generator) -> tuple[Rows, Tensor]:
        """At most ``max_points`` points; sorted first, as their order must not matter."""
        columns = torch.cat([X.X, y.unsqueeze(-1)], dim=-1).cpu().numpy()
        order = torch.from_numpy(np.lexsort(columns.T))
        if len(y) > self.max_points:
            order = order[torch.randperm(len(y), generator=generator)[: self.max_points]]
        order = order.to(y.device)
        return X[order], y[order]

    def _trained(
        self,
        start: Network,
        features: Tensor,
        residual: Tensor,
        spread: Tensor,
        generator: torch.Generator,
    ) -> Network:
        """Minimise the mean check score of ``residual`` [C] against ``spread * g`` [K, C]."""
        with torch.enable_grad():
            weights = tuple(w.clone().requires_grad_() for w in start.weights)
            network = Network(weights)
            optimiser = torch.optim.AdamW(
                weights, lr=self.learning_rate, weight_decay=self.weight_decay
            )
            for epoch in range(self.epochs):
                factor = 0.5 * (1.0 + math.cos(math.pi * epoch / self.epochs))
                optimiser.param_groups[0]["lr"] = self.learning_rate * factor
                delta = _random_levels(generator).to(residual.device)
                scores = network.scores(features, torch.special.ndtri(delta))
                error = residual - spread * scores
                loss = torch.maximum(delta * error, (delta - 1.0) * error).mean()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        if not all(bool(torch.isfinite(w).all()) for w in weights):
            raise NumericalError(
                "expected finite network weights, found NaN or inf; lower the learning_rate"
            )
        return Network(tuple(w.detach() for w in weights))


def _random_levels(generator: torch.Generator) -> Tensor:
    """Levels [K, 1] in (0, 1): one drawn in each of ``K`` cells of equal width."""
    draw = torch.rand(_LEVELS_PER_EPOCH, 1, generator=generator, dtype=torch.float64)
    first = torch.arange(_LEVELS_PER_EPOCH, dtype=torch.float64).unsqueeze(-1)
    return ((first + draw) / _LEVELS_PER_EPOCH).clamp(1e-6, 1.0 - 1e-6)
