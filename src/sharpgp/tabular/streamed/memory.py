"""How much is held at a time, by the memory that there is."""

from dataclasses import dataclass

from sharpgp.exceptions import InvalidInputError

#: Bytes that the program itself takes: torch, Arrow and what training needs of a sample.
BASE = int(0.75 * 2**30)
#: Rows of a batch, at most: more gain no speed.
MOST_IN_BATCH = 2**14
# Fewer rows take longer to read than to compute with.
_LEAST_IN_BATCH = 256
# Batches that are made room for; and copies of a row's numbers while it is worked on: as read, as
# values, as features, standardised, and twice in between.
_AT_A_TIME, _COPIES = 4, 6
# Bytes of the blocks that one thread works on, beside its batch.
_WORKSPACE = 2**25


@dataclass(frozen=True)
class Memory:
    """A limit in bytes.

    Rows of a batch follow from it and from the columns alone, so that sums do not depend on the
    number of workers.

    Examples
    --------
    >>> Memory.of(2).batch_rows(columns=9), Memory.of(1).batch_rows(columns=2000)
    (16384, 349)
    >>> Memory.of(0.5)
    Traceback (most recent call last):
    sharpgp.exceptions.InvalidInputError: memory: expected more than 0.75 GiB, found 0.5
    """

    limit: int

    @classmethod
    def of(cls, gib: float) -> "Memory":
        """From a number of GiB."""
        if not (isinstance(gib, int | float) and BASE < gib * 2**30 < float("inf")):
            raise InvalidInputError(
                f"memory: expected more than {BASE / 2**30:g} GiB, found {gib!r}"
            )
        return cls(int(gib * 2**30))

    def batch_rows(self, columns: int) -> int:
        """Rows of a batch of so many columns."""
        per_row = _AT_A_TIME * _COPIES * 8 * columns
        rows = int((self.limit - BASE) / 2 / per_row)
        if rows < _LEAST_IN_BATCH:
            least = BASE + 2 * per_row * _LEAST_IN_BATCH
            raise InvalidInputError(
                f"memory: expected at least {least / 2**30:.2f} GiB for {columns} columns, found "
                f"{self.limit / 2**30:g}"
            )
        return min(MOST_IN_BATCH, rows)

    def workers(self, wanted: int, columns: int, inducing: int) -> int:
        """How many threads of one process there is room for, up to those wanted."""
        batch = _COPIES * 8 * columns * self.batch_rows(columns)
        sums = 4 * 8 * inducing**2
        return max(1, min(wanted, int((self.limit - BASE) / (batch + sums + _WORKSPACE))))
