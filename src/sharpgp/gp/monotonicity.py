"""Does ``sigma`` grow with ``theta``?  The paper assumes it; this counts where it does not."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sharpgp._validation import as_count
from sharpgp.gp.posterior import Posterior

# Below this share of sigma a difference is rounding: half the digits of float64.
_ROUNDING = 1e-8
#: Factors, in logarithms, by which theta differs from theta_R, and the larger of a pair from it.
_AROUND, _STEP = math.log(10.0), math.log(3.0)


@dataclass(frozen=True)
class Monotonicity:
    """How often ``sigma`` fell while no entry of ``theta`` did.

    Attributes
    ----------
    pairs, points : int
        Number of pairs ``theta <= theta'`` compared, and of points at which each was.
    violations : int
        Comparisons with ``sigma(theta, x) > sigma(theta', x)``, beyond rounding.
    pairs_violated : int
        Pairs with a violation at any point.
    largest : float
        Largest share by which ``sigma`` fell; 0 if it never did.
    """

    pairs: int
    points: int
    violations: int
    pairs_violated: int
    largest: float

    @property
    def share(self) -> float:
        """Violations among all comparisons."""
        return self.violations / (self.pairs * self.points)


def count_violations(
    posterior: Posterior, X: Tensor, *, pairs: int = 40, random_state: int = 0
) -> Monotonicity:
    """Compare ``sigma`` at ``X`` [T, d] under random pairs ``theta <= theta'`` around ``theta_R``.

    Only entries that a calibration searches are moved: ``theta`` by up to a factor of ten from
    ``theta_R`` either way, ``theta'`` up from it by up to a factor of three, in one entry for every
    other pair and in a random half of them for the rest.

    Examples
    --------
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 30, dtype=torch.float64)[:, None]
    >>> posterior, _ = train(X[::2], X[::2, 0].sin())
    >>> count_violations(posterior, X[1::2], pairs=10).violations
    0
    """
    pairs = as_count(pairs, "pairs", least=1)
    generator = torch.Generator().manual_seed(random_state)
    searched = posterior.searched.nonzero().squeeze(-1).cpu()
    P = len(posterior.theta_R)
    violations = violated = 0
    largest = 0.0
    for pair in range(pairs):
        lower, step = torch.zeros(P, dtype=torch.float64), torch.zeros(P, dtype=torch.float64)
        draw = torch.rand(3, len(searched), generator=generator, dtype=torch.float64)
        lower[searched] = _AROUND * (2.0 * draw[0] - 1.0)
        moved = draw[2] == draw[2].max() if pair % 2 else draw[2] > 0.5
        step[searched] = torch.where(moved, _STEP * draw[1], 0.0)
        logs = posterior.theta_R.log() + torch.stack([lower, lower + step]).to(posterior.device)
        with torch.no_grad():
            before, after = posterior.sigma(logs.exp(), X)
        fall = 1.0 - after / before
        count = int((fall > _ROUNDING).sum())
        violations, violated = violations + count, violated + (count > 0)
        largest = max(largest, float(fall.max()) if count else 0.0)
    return Monotonicity(pairs, len(X), violations, violated, largest)
