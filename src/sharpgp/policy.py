"""What follows from rows, columns, device, memory and effort: one object, a field of models."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch
from torch import Tensor

from sharpgp._stored import stored
from sharpgp._table import as_html
from sharpgp._validation import as_count, check_choice
from sharpgp.exceptions import InvalidInputError

#: What ``base="auto"`` pools, by effort; ``sharpgp bench evidence pooling`` shows why.
POOLS = {
    "low": ("matern32",),
    "auto": ("rbf", "laplace+matern32", "additive", "extra_trees", "boosted_trees", "prior"),
    "high": (
        "rbf", "matern52", "laplace+matern32", "additive", "extra_trees", "boosted_trees", "prior",
    ),
}  # fmt: skip
#: Features up to which an additive GP is pooled, which has two hyperparameters for each, and up to
#: which axes of gradients may take their place: the likelihood of a learning pays for no more.
MAX_ADDITIVE_FEATURES = 20
#: Rows per feature up to which only few directions have a lengthscale of their own, where no
#: additive GP is pooled; see :mod:`sharpgp.gp.directions`.
ROWS_PER_LENGTHSCALE = 2
#: Rows beyond which leaves of forests keep averages, and boosted trees learn a spread of their own
#: and are pooled: with a constant one they add nothing to GPs of few rows.
MOST_LEFT_OUT = 10_000
#: Rows of a context of the prior-fitted network, and features, at most: as in its training; and
#: rows up to which it is pooled.
PRIOR_ROWS, PRIOR_COLUMNS, PRIOR_POOLED = 4096, 45, 2000
#: Rows that one learning of hyperparameters sees at most.
LEARNED_ROWS = 500
#: How often a model is learned; where that is from a part of the rows that it may see; and a GP
#: beyond exact conditioning (``sharpgp bench evidence learned_rows``).
LEARNINGS, SOME_LEARNINGS, FEW_LEARNINGS = 5, 3, 2
#: Rows of a pilot, which tells what is not learned from all rows where there are twice as many;
#: and the held-out CRPS there, in units of the best, up to which trees may still catch up: between
#: 2,100 and 8,500 rows those below 1.7 gained weights up to 0.2, one at 3.1 none.
PILOT_ROWS, PILOT_MARGIN = 2000, 2.0
#: Most rows that calibrate: more make no visible difference.
SCORED_ROWS = 5000
#: Rows up to which a GP on a CPU is conditioned exactly.  Beyond, predictions are conditioned on
#: this many landmarks, so that further rows only add to what is known, and neighbours.
EXACT_ROWS, LANDMARKS, NEIGHBOURS = 4000, 2000, 64
#: With more rows than landmarks, points may share the rows nearest to the centre of their cell,
#: ``HALO`` of them, and fewer landmarks, chosen one after another; as long as a cell has at most
#: half as many rows, with the factors of all cells in ``BLOCK_ENTRIES`` numbers (512 MiB for one
#: GP).
HALO, BLOCK_LANDMARKS, BLOCK_ROWS, BLOCK_ENTRIES = 768, 300, 160, 2**26
#: Rows by which these are compared with an exact GP, or beyond that with neighbours of each point's
#: own.
JUDGED_ROWS = 320
#: By how much the CRPS of a quicker prediction may be larger (``sharpgp bench evidence answers``).
QUICK_LOSS = 1.005
#: Landmarks times rows at most: 256 MiB for one GP.
LANDMARK_ENTRIES = 2**25
#: Matrices of all rows that have to fit into the free memory of a GPU for exact conditioning.
MATRICES_ON_GPU = 8
#: Rows up to which a GP is exact where a method evaluates it under many hyperparameters.
SEARCHED_ROWS = {"cpu": 3000, "cuda": 10_000}
#: Inducing inputs of a sparse GP, and neighbours of one without landmarks, unless given.
INDUCING, ONLY_NEIGHBOURS = 300, 128


@stored("Sparse")
@dataclass(frozen=True)
class Sparse:
    """``approximation=`` for a sparse GP with ``m`` inducing inputs.

    Examples
    --------
    >>> Sparse(m=100)
    Sparse(m=100)
    """

    m: int = INDUCING


@stored("Neighbours")
@dataclass(frozen=True)
class Neighbours:
    """``approximation=`` for a GP that predicts every point from its ``m`` nearest neighbours.

    Examples
    --------
    >>> Neighbours(m=100)
    Neighbours(m=100)
    """

    m: int = ONLY_NEIGHBOURS


#: What ``approximation=`` takes.
Approximation = str | Sparse | Neighbours


@stored("Policy")
@dataclass(frozen=True)
class Policy:
    """How models are learned, conditioned and scored, see ``docs/method.md``.

    Attributes
    ----------
    rows, columns : int
        Of the features that models are fitted to.
    device : str
    pool : tuple of str
        What ``base="auto"`` pools.
    learnings, learned_rows : int
        How often a GP is learned, and from how many rows at most.
    scored_rows : int
        Rows that calibrate at most.
    exact_rows : int or None
        Rows up to which a GP is conditioned exactly; None: always.
    landmarks, neighbours : int
        What each prediction of a GP is conditioned on beyond.
    inducing : int or None
        Inducing inputs of sparse GPs, where these were asked for.
    directions : int or None
        Directions that get a lengthscale of their own; None: all features and no other ones.

    Examples
    --------
    >>> print(Policy.choose(400, 8))
    rows                            400
    columns                           8
    device                          cpu
    pool          rbf, laplace+matern32, additive, extra_trees, prior
    learnings                         5
    learned_rows                    500
    scored_rows                   5,000
    exact_rows                    4,000
    landmarks                     2,000
    neighbours                       64
    directions                        8
    """

    rows: int = 0
    columns: int = 0
    device: str = "cpu"
    pool: tuple[str, ...] = ()
    learnings: int = LEARNINGS
    learned_rows: int = LEARNED_ROWS
    scored_rows: int = SCORED_ROWS
    exact_rows: int | None = None
    landmarks: int = LANDMARKS
    neighbours: int = NEIGHBOURS
    inducing: int | None = None
    directions: int | None = None

    @classmethod
    def choose(
        cls,
        rows: int,
        columns: int,
        device: str = "cpu",
        *,
        effort: str = "auto",
        approximation: Approximation = "auto",
        tied_columns: int | None = None,
        without: Sequence[str] = (),
    ) -> "Policy":
        """The policy for a number of rows and columns on a device.

        ``tied_columns`` is the number of columns whose lengthscales differ, ``without`` names bases
        that are not pooled.
        """
        check_choice(effort, "effort", POOLS)
        d = columns if tied_columns is None else tied_columns
        learned = min(rows, LEARNED_ROWS)
        many = d > MAX_ADDITIVE_FEATURES
        few = many and 0 < learned <= ROWS_PER_LENGTHSCALE * d
        few_rows, many_rows = rows <= MOST_LEFT_OUT, rows > PRIOR_POOLED
        cases = {"additive": many, "boosted_trees": few_rows, "prior": many_rows}
        left_out = {*without, *(name for name, is_so in cases.items() if is_so)}
        pool = tuple(name for name in POOLS[effort] if name not in left_out)
        if few:  # a Laplace kernel has a lengthscale for every feature
            pool = tuple(name.removeprefix("laplace+") for name in pool)
        exact = exact_rows(device)
        most = LANDMARKS if device == "cpu" else exact
        landmarks = min(most, LANDMARK_ENTRIES // max(rows, 1))
        directions = max(1, math.isqrt(learned) // 2) if few else None
        if 1 < columns <= MAX_ADDITIVE_FEATURES:  # of each column, or of as many axes of gradients
            directions = d
        found = cls(rows, columns, device, pool, exact_rows=exact, landmarks=landmarks)
        found = replace(found, directions=directions)
        found = replace(found, learnings=found._learnings(rows))
        chosen = as_approximation(approximation, rows)
        if chosen == "exact":
            return replace(found, exact_rows=None, learnings=LEARNINGS)
        if isinstance(chosen, Sparse):
            return replace(found, inducing=chosen.m)
        if isinstance(chosen, Neighbours):
            return replace(found, exact_rows=0, landmarks=0, neighbours=chosen.m)
        return found

    def is_exact(self, n: int) -> bool:
        """Whether a GP is conditioned on ``n`` rows exactly."""
        return self.exact_rows is None or n <= self.exact_rows

    def cell_rows(self, n: int, device_type: str = "cpu") -> int:
        """Rows of a cell whose points share factors; 0 where points share none.

        None are shared up to as many rows as landmarks, with too few rows, where cells would be
        too large, and on a GPU.

        Examples
        --------
        >>> [Policy.choose(n, 8).cell_rows(n) for n in (2000, 10_000, 20_000, 100_000)]
        [0, 160, 245, 0]
        """
        fixed = self.exact_rows is None or self.inducing is not None or not self.landmarks
        if fixed or device_type != "cpu" or n <= self.landmarks:
            return 0
        found = max(BLOCK_ROWS, -(-n * HALO * (HALO + BLOCK_LANDMARKS) // BLOCK_ENTRIES))
        return found if 2 * found <= HALO < n // 2 else 0

    def _learnings(self, rows: int) -> int:
        """Fewer where each sees but a part of its share of the rows; fewest beyond exact GPs."""
        if rows - rows // LEARNINGS <= LEARNED_ROWS:
            return LEARNINGS
        return SOME_LEARNINGS if self.is_exact(rows) else FEW_LEARNINGS

    def _values(self) -> dict[str, str]:
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        shown = {name: value for name, value in found.items() if value is not None}
        return {name: _text(value) for name, value in shown.items()}

    def __str__(self) -> str:
        return "\n".join(f"{name:14}{text:>21}" for name, text in self._values().items())

    def _repr_html_(self) -> str:
        return as_html(list(self._values().items()), text=2, head=False)


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def exact_rows(device: str) -> int:
    """Rows up to which a GP is conditioned exactly: on a GPU as its free memory allows.

    Examples
    --------
    >>> exact_rows("cpu")
    4000
    """
    if device != "cuda" or not torch.cuda.is_available():
        return EXACT_ROWS
    free, _ = torch.cuda.mem_get_info()
    return max(EXACT_ROWS, math.isqrt(free // (torch.float64.itemsize * MATRICES_ON_GPU)))


def as_approximation(
    approximation: Approximation, n_train: int
) -> Literal["auto", "exact"] | Sparse | Neighbours:
    """The user's choice, checked.

    Examples
    --------
    >>> as_approximation("sparse", 1000), as_approximation(Sparse(600), 500)
    (Sparse(m=300), Sparse(m=500))
    >>> as_approximation("neighbours", 1000)
    Neighbours(m=128)
    """
    if isinstance(approximation, str) and approximation in ("auto", "exact"):
        return "auto" if approximation == "auto" else "exact"
    if isinstance(approximation, str) and approximation in ("sparse", "neighbours"):
        approximation = Sparse() if approximation == "sparse" else Neighbours()
    if isinstance(approximation, Sparse):
        return Sparse(min(as_count(approximation.m, "Sparse: m", least=1), n_train))
    if isinstance(approximation, Neighbours):
        return Neighbours(as_count(approximation.m, "Neighbours: m", least=1))
    raise InvalidInputError(
        "approximation: expected 'auto', 'exact', 'sparse', 'neighbours', Sparse(m=...) or "
        f"Neighbours(m=...), found {approximation!r}"
    )


def drawn_rows(n: int, most: int) -> Tensor:
    """Numbers of ``most`` of ``n`` points, drawn at random; the first ones of a larger draw.

    All of them, in their order, where there are no more.

    Examples
    --------
    >>> drawn_rows(3, 5).tolist(), len(drawn_rows(1000, 5))
    ([0, 1, 2], 5)
    >>> torch.equal(drawn_rows(1000, 5), drawn_rows(1000, 50)[:5])
    True
    """
    if n <= most:
        return torch.arange(n)
    return torch.randperm(n, generator=torch.Generator().manual_seed(0))[:most]
