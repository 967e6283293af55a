"""What a pass over the training rows adds up: sums of a sparse GP, and gradients of its bound.

A pass is a function of one unit that can be sent to where the unit is visited; what it gives is a
few tensors, whatever the number of rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from sharpgp._validation import as_features, as_target
from sharpgp.exceptions import InvalidInputError
from sharpgp.frames.encoding import TableEncoding
from sharpgp.gp.bound import BoundGradient, Targets
from sharpgp.gp.covariance import Covariance
from sharpgp.gp.dense import cholesky
from sharpgp.gp.scaling import Affine
from sharpgp.gp.sparse import SparsePosterior
from sharpgp.gp.whitening import (
    Data,
    Factors,
    KernelGradient,
    factors_of,
    inducing_covariance,
    whitened_sums,
)
from sharpgp.tabular.streamed.rows import Unit, batches_of
from sharpgp.tabular.streamed.survey import Table

#: Tensors by name: what a unit gives, and what all units give together.
Sums = dict[str, Tensor]
# Names of extremes, which do not add up.
_LOWEST, _HIGHEST = "low", "high"


def merged(total: Sums | None, part: Sums) -> Sums:
    """The sums so far and those of the next unit.

    Examples
    --------
    >>> one = {"n": torch.tensor(2), "low": torch.tensor(5)}
    >>> merged(merged(None, one), {"n": torch.tensor(3), "low": torch.tensor(4)})
    {'n': tensor(5), 'low': tensor(4)}
    """
    if total is None:
        return {name: value.clone() for name, value in part.items()}
    how = {_LOWEST: torch.minimum, _HIGHEST: torch.maximum}
    return {name: how.get(name, torch.add)(total[name], part[name]) for name in total}


@dataclass(frozen=True)
class Training:
    """The training rows of a unit, as the GP sees them."""

    table: Table
    encoding: TableEncoding
    covariance: Covariance
    x_units: Affine
    y_units: Affine
    batch_rows: int

    @classmethod
    def of(
        cls, table: Table, encoding: TableEncoding, gp: SparsePosterior, batch_rows: int
    ) -> "Training":
        """In the units of a GP that was trained on a sample."""
        return cls(table, encoding, gp.covariance, gp.x_units, gp.y_units, batch_rows)

    def batches(self, unit: Unit) -> Iterator[tuple[Tensor, Data]]:
        """Features [n, d] in the user's units, and standardised rows."""
        device = self.x_units.scale.device
        for place, batch in batches_of(unit, self.table.names, self.batch_rows):
            try:
                held, _ = self.table.roles(batch, unit, place)
                y, there = self.table.targets(batch, unit.row + place)
                rows = there & ~held
                if not rows.any():
                    continue
                encoded = self.encoding.encode(batch, unit.row + place).features
            except InvalidInputError as error:
                raise InvalidInputError(f"{unit.source}: {error}") from None
            X = as_features(encoded[rows], device=device)
            target = self.y_units.forward(as_target(y[rows], device=device))
            yield X, Data(self.covariance, self.x_units.forward(X), target)


@dataclass(frozen=True)
class Visit:
    """First visit: ``V V'``, ``V y``, ``y'y``, ``sum_i k_ii``, the rows and their range."""

    training: Training
    theta: Tensor
    Z: Tensor

    def __call__(self, unit: Unit) -> Sums:
        """The sums of one unit."""
        theta, Z, training = self.theta.unsqueeze(0), self.Z, self.training
        L = factor(training.covariance, theta, Z)
        zero = theta.new_zeros(1)
        total: Sums = {
            "square": torch.zeros_like(L),
            "product": torch.zeros_like(L[..., 0]),
            "targets": zero,
            "prior": zero,
            "n": torch.tensor([0], device=zero.device),
            _LOWEST: Z.new_full(Z.shape[1:], torch.inf),
            _HIGHEST: Z.new_full(Z.shape[1:], -torch.inf),
        }
        with torch.no_grad():
            for X, data in training.batches(unit):
                square, product = whitened_sums(data, theta, Z, L)
                part = {
                    "square": square,
                    "product": product,
                    "targets": (data.y @ data.y).reshape(1),
                    "prior": training.covariance.diag(theta, data.X).sum(-1),
                    "n": torch.tensor([len(data.y)], device=zero.device),
                    _LOWEST: X.amin(0),
                    _HIGHEST: X.amax(0),
                }
                total = merged(total, part)
        return total

    def factors(self, sums: Sums) -> Factors:
        """From the sums of all units."""
        theta = self.theta.unsqueeze(0)
        L = factor(self.training.covariance, theta, self.Z)
        return factors_of(L, sums["square"], sums["product"], theta[:, -1])


@dataclass(frozen=True)
class Pull:
    """Second visit: gradients of the bound for ``theta`` and ``Z`` through the rows."""

    visit: Visit
    gradient: BoundGradient

    def __call__(self, unit: Unit) -> Sums:
        """What the rows of one unit add to the gradients."""
        theta, Z = self.visit.theta.unsqueeze(0), self.visit.Z
        covariance = self.visit.training.covariance
        pull = KernelGradient((True, True), covariance, theta, Z)
        weight = torch.ones_like(theta[:, -1])
        prior = torch.zeros_like(theta)
        for _, data in self.visit.training.batches(unit):
            self.gradient.visit(pull, data, weight)
            leaf = theta.detach().requires_grad_()
            with torch.enable_grad():
                total = covariance.diag(leaf, data.X).sum()
            (slope,) = torch.autograd.grad(total, leaf, allow_unused=True)
            prior += 0.0 if slope is None else -0.5 * slope / self.gradient.factors.noise
        assert pull.Z is not None
        return {"theta": pull.theta + prior, "Z": pull.Z}


def bound_and_gradient(
    visit: Visit, sums: Sums, gradient: BoundGradient, pulled: Sums
) -> tuple[float, Tensor, Tensor]:
    """Titsias' bound of all training rows, and its gradients for ``theta`` [P] and ``Z`` [M, d]."""
    factors = gradient.factors
    targets = Targets(int(sums["n"]), sums["targets"], sums["prior"])
    theta = visit.theta.unsqueeze(0).detach().requires_grad_()
    Z = visit.Z.detach().requires_grad_()
    with torch.enable_grad():
        Kmm = inducing_covariance(visit.training.covariance, theta, Z)
    inducing = torch.autograd.grad(Kmm, (theta, Z), gradient.of_inducing(), allow_unused=True)
    by_theta, by_Z = (
        part + (torch.zeros_like(part) if more is None else more)
        for part, more in zip((pulled["theta"], pulled["Z"]), inducing, strict=True)
    )
    by_theta[:, -1] += targets.slope(factors, gradient.inner)
    return float(targets.bound(factors)), by_theta[0], by_Z


def factor(covariance: Covariance, theta: Tensor, Z: Tensor) -> Tensor:
    """``L`` [K, M, M] of the inducing inputs."""
    with torch.no_grad():
        return cholesky(inducing_covariance(covariance, theta, Z))[0]
