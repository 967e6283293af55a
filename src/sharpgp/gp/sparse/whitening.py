r"""The data of a sparse GP, whitened, in blocks of rows: the basis of all its quantities.

With inducing inputs ``Z`` [M, d], ``Kmm = k(Z, Z)``, ``Kmn = k(Z, X)`` and noise ``s``, Titsias'
approximation replaces the prior covariance of the data by ``Q = Knm Kmm^-1 Kmn``.  Everything it
predicts goes through ``A = Kmm + Kmn Knm / s``, here in whitened form:

``L L' = Kmm``,  ``V = L^-1 Kmn``,  ``B = I + V V' / s = LB LB'``,  ``A^-1 = R R'`` with
``R = L^-T LB^-T``.

The data enter through sums over rows, so that rows are visited in blocks, forward and backward;
kernel values are recomputed in the backward pass instead of being kept.  Time is
``O(N M^2)`` and memory ``O(M^2)`` plus one block per thread, whatever ``N``.  All matrices carry a
leading batch of levels ``[K, ...]``.

Blocks and the order of their sums do not depend on the number of threads, and neither do results.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from sharpgp.gp.compute import block_entries, in_order
from sharpgp.gp.dense import add_to_diagonal, cholesky
from sharpgp.gp.kernels.covariance import NOISE, Covariance
from sharpgp.rows import Rows

#: Added to the diagonal of ``Kmm``, relative to its mean: inducing points may coincide.
JITTER = 1e-11

Result = TypeVar("Result")
#: Takes a gradient of ``k(Z, X)`` back to ``theta``, ``Z`` and ``X``.
Pull = Callable[[Tensor], list[Tensor | None]]


@dataclass(frozen=True)
class Data:
    """Rows that a GP is conditioned on, standardised: inputs [N, d] and targets [N].

    ``noise`` [N] is that of the rows' own, which sparse GPs do not have.
    """

    covariance: Covariance
    X: Tensor
    y: Tensor
    noise: Tensor | None = None

    def take(self, which: Tensor) -> Rows:
        """Some of the rows."""
        return Rows(self.X[which], None if self.noise is None else self.noise[which])

    def by_rows(
        self, function: Callable[[slice], Result], n_levels: int, n_inducing: int
    ) -> Iterator[Result]:
        """See :func:`by_rows`."""
        return by_rows(function, len(self.X), n_levels * n_inducing, self.X.device)


@dataclass(frozen=True)
class Factors:
    """``L``, ``LB``, ``B - I`` [K, M, M], ``c`` [K, M] and the noise ``s`` [K]."""

    L: Tensor
    LB: Tensor
    excess: Tensor
    c: Tensor
    noise: Tensor

    def whiten(self, Kx: Tensor) -> tuple[Tensor, Tensor]:
        """``w = L^-1 Kx`` and ``u = LB^-1 w`` [K, M, n]."""
        w = solve(self.L, Kx)
        return w, solve(self.LB, w)

    def unwhiten(self, w: Tensor, u: Tensor) -> Tensor:
        """``L^-T (w + LB^-T u)`` [K, M, n]: the transpose of :meth:`whiten`."""
        return solve_transposed(self.L, w + solve_transposed(self.LB, u))


def by_rows(
    function: Callable[[slice], Result], n_rows: int, entries_per_row: int, device: torch.device
) -> Iterator[Result]:
    """``function(rows)`` for blocks of rows, in order; several at a time on a CPU.

    Examples
    --------
    >>> list(by_rows(lambda rows: rows.stop, 3, 2**40, torch.device("cpu")))
    [1, 2, 3]
    """
    blocks = row_blocks(n_rows, entries_per_row, device)
    return in_order(function, blocks, in_turn=device.type != "cpu")


def row_blocks(n_rows: int, entries_per_row: int, device: torch.device) -> Iterator[slice]:
    """Slices of rows of about the same length that hold at most a block of entries each.

    Examples
    --------
    >>> len(list(row_blocks(10, 2**40, torch.device("cpu"))))
    10
    """
    most = max(1, block_entries(device, in_threads=True) // max(1, entries_per_row))
    count = -(-n_rows // most)
    for i in range(count):
        yield slice(n_rows * i // count, n_rows * (i + 1) // count)


def join(parts: Iterable[Tensor], out: Tensor) -> Tensor:
    """Write the results of blocks of rows side by side, along the last dimension, to ``out``.

    Small results kept until the end would prevent reuse of the memory in which their blocks were
    computed.
    """
    start = 0
    for part in parts:
        stop = start + part.shape[-1]
        out[..., start:stop] = part
        start = stop
    return out


def add_up(totals: Sequence[Tensor], parts: Iterable[Sequence[Tensor]]) -> None:
    """Add all ``parts``, in their order, to the ``totals``, in place."""
    for part in parts:
        for total, term in zip(totals, part, strict=True):
            total += term


def inducing_covariance(covariance: Covariance, theta: Tensor, Z: Tensor) -> Tensor:
    """``Kmm`` [K, M, M] with its jitter, differentiable in ``theta`` and ``Z``."""
    return add_to_diagonal(covariance.matrix(theta, Z), JITTER * covariance.diag(theta, Z).mean(-1))


def factorise(data: Data, theta: Tensor, Z: Tensor, Kmm: Tensor | None = None) -> Factors:
    """Visit all rows once; the result serves every prediction under ``theta`` [K, P]."""
    with torch.no_grad():
        Kmm = inducing_covariance(data.covariance, theta, Z) if Kmm is None else Kmm
        L = cholesky(Kmm)[0]
        return factors_of(L, *whitened_sums(data, theta, Z, L), theta[:, NOISE])


def whitened_sums(data: Data, theta: Tensor, Z: Tensor, L: Tensor) -> tuple[Tensor, Tensor]:
    """``V V'`` [K, M, M] and ``V y`` [K, M]: all that a sparse GP needs from its rows.

    Sums of parts of the rows add up to those of all.
    """
    square, product = torch.zeros_like(L), torch.zeros_like(L[..., 0])

    def sums(rows: slice) -> tuple[Tensor, Tensor]:
        V = solve(L, data.covariance.matrix(theta, Z, data.X[rows]))
        return V @ V.mT, V @ data.y[rows]

    add_up((square, product), data.by_rows(sums, len(theta), len(Z)))
    return square, product


def factors_of(L: Tensor, square: Tensor, product: Tensor, noise: Tensor) -> Factors:
    """The factors under ``noise`` [K], from ``L`` and the sums of :func:`whitened_sums`."""
    excess = square / noise[:, None, None]
    LB = cholesky(add_to_diagonal(excess, torch.ones_like(noise)))[0]
    c = solve(LB, (product / noise[:, None]).unsqueeze(-1)).squeeze(-1)
    return Factors(L, LB, excess, c, noise)


class KernelGradient:
    """The gradient for ``theta`` and ``Z`` through ``k(Z, X)``, summed over blocks of rows.

    ``needed`` says which of the two gradients to compute.
    """

    def __init__(
        self, needed: tuple[bool, bool], covariance: Covariance, theta: Tensor, Z: Tensor
    ) -> None:
        self._covariance = covariance
        self._needed = needed
        self._theta = theta.detach().requires_grad_(self._needed[0])
        self._Z = Z.detach().requires_grad_(self._needed[1])
        self.theta = torch.zeros_like(theta)
        self.Z = torch.zeros_like(Z) if self._needed[1] else None

    def kernel(self, X: Tensor, points: bool = False) -> tuple[Tensor, Pull]:
        """``k(Z, X)`` [K, M, n] of one block, and a function that takes its gradient back.

        It returns the gradients for ``theta``, ``Z`` and, with ``points``, ``X``; None if not
        needed. :meth:`add` sums them.
        """
        X = X.detach().requires_grad_(points)
        needed = (*self._needed, points)
        leaves = [
            leaf for leaf, wanted in zip((self._theta, self._Z, X), needed, strict=True) if wanted
        ]
        with torch.enable_grad():
            K = self._covariance.matrix(self._theta, self._Z, X)

        def pull(gradient: Tensor) -> list[Tensor | None]:
            # A kernel without parameters of its own does not depend on theta.
            found = torch.autograd.grad(K, leaves, gradient, allow_unused=True) if leaves else ()
            each = iter(found)
            return [next(each) if wanted else None for wanted in needed]

        return K.detach(), pull

    def add(self, parts: Sequence[Tensor | None]) -> None:
        """Add a block's part of the gradients for ``theta`` and ``Z``."""
        for total, part in zip((self.theta, self.Z), parts, strict=False):
            if total is not None and part is not None:
                total += part


def solve(L: Tensor, right: Tensor) -> Tensor:
    """``L^-1 right`` for a lower triangle ``L``."""
    if _by_product(L, right):
        return _inverse(L) @ right
    return torch.linalg.solve_triangular(L, right, upper=False)


def solve_transposed(L: Tensor, right: Tensor) -> Tensor:
    """``L^-T right`` for a lower triangle ``L``."""
    if _by_product(L, right):
        return _inverse(L).mT @ right
    return torch.linalg.solve_triangular(L.mT, right, upper=True)


def _by_product(L: Tensor, right: Tensor) -> bool:
    """Whether to multiply by the inverse: on a GPU that takes a fifth of the time of a solve.

    The condition of ``L`` is bounded by its jitter, which leaves about eleven digits.
    """
    return right.is_cuda and right.shape[-1] > 4 * L.shape[-1]


def _inverse(L: Tensor) -> Tensor:
    identity = torch.eye(L.shape[-1], dtype=L.dtype, device=L.device)
    return torch.linalg.solve_triangular(L, identity.expand_as(L), upper=False)


def congruent(L: Tensor, inner: Tensor) -> Tensor:
    """``L^-T inner L^-1`` for a symmetric ``inner``."""
    half = solve_transposed(L, inner)
    return solve_transposed(L, half.mT)
