"""Which rows calibrate and which are looked at closely: by a hash, so that all who ask agree."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_ONE, _TWO, _STEP = (
    np.uint64(number) for number in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x9E3779B97F4A7C15)
)
_BITS = 53


@dataclass(frozen=True)
class Draw:
    """Shares of the rows that are held out to calibrate, and that are kept as a sample.

    A row is drawn by the number that a hash makes of its place among all rows and the seed, or,
    with groups, of its group's name: all rows of a group are then on one side.  The sample is
    drawn from the rows that do not calibrate.

    Examples
    --------
    >>> held, sampled = Draw(0, held=0.25, sampled=0.5).of(0, 1000)
    >>> int(held.sum()), int(sampled.sum()), bool((held & sampled).any())
    (226, 524, False)
    >>> held, _ = Draw(0, held=0.25, sampled=0.5).of(0, 4, ["a", "b", "a", "b"])
    >>> held.tolist()
    [False, True, False, True]
    """

    seed: int
    held: float
    sampled: float

    def of(
        self, first: int, n: int, groups: Sequence[str] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Masks (n,) of the rows from number ``first`` on: those held out, those sampled."""
        number = uniform(first, n, 2 * self.seed)
        held = number < self.held if groups is None else self._groups(groups) < self.held
        share = self.sampled / max(1.0 - self.held, 1e-300)
        return held, ~held & (uniform(first, n, 2 * self.seed + 1) < share)

    def _groups(self, groups: Sequence[str]) -> np.ndarray:
        numbers = {name: self._number(name) for name in set(groups)}
        return np.array([numbers[name] for name in groups])

    def _number(self, name: str) -> float:
        key = self.seed.to_bytes(16, "little", signed=True)
        digest = hashlib.blake2b(name.encode(), digest_size=8, key=key).digest()
        return (int.from_bytes(digest, "little") >> (64 - _BITS)) / 2.0**_BITS


def uniform(first: int, n: int, seed: int) -> np.ndarray:
    """Numbers (n,) in [0, 1), those of rows ``first``, ``first + 1``, ...; SplitMix64.

    Examples
    --------
    >>> bool((uniform(0, 10, 7)[4:] == uniform(4, 6, 7)).all())
    True
    """
    with np.errstate(over="ignore"):
        z = np.arange(first, first + n, dtype=np.uint64)
        for shift in (np.uint64(seed % 2**64), np.uint64(0)):
            z = (z + shift + np.uint64(1)) * _STEP
            z = (z ^ (z >> np.uint64(30))) * _ONE
            z = (z ^ (z >> np.uint64(27))) * _TWO
            z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(64 - _BITS)).astype(np.float64) / 2.0**_BITS
