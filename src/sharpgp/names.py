"""Names that settings take, without the models behind them: for editors and the command line."""

from typing import Literal, get_args

from sharpgp._extras import LABORATORY_METHODS

#: Kernels; several with a plus between are their sum.
KernelName = Literal["rbf", "matern12", "matern32", "matern52", "additive", "laplace"]
#: What ``base=`` takes by name.
BaseName = Literal[
    "auto", KernelName, "extra_trees", "random_forest", "boosted_trees", "prior"
]  # fmt: skip
#: What ``calibration=`` takes by name.
CalibrationName = Literal[
    "auto", "cv", "loo", "cv+", "exact", "paper", "kuleshov18", "vovk20", "marx22",
    "kuleshov22", "fully_bayesian", "capone22", "vanilla",
]  # fmt: skip
ApproximationName = Literal["auto", "exact", "sparse", "neighbours"]
Effort = Literal["low", "auto", "high"]

KERNELS: tuple[str, ...] = get_args(KernelName)
#: Names of bases; ``"auto"`` is a pool of some.
BASES: tuple[str, ...] = get_args(BaseName)[1:]
#: Methods of this package.
CALIBRATIONS: tuple[str, ...] = tuple(
    name for name in get_args(CalibrationName) if name not in LABORATORY_METHODS.values()
)
EFFORTS: tuple[str, ...] = get_args(Effort)


def is_kernel_name(name: object) -> bool:
    """Whether it is the name of a kernel, or those of several with a plus between: their sum.

    Examples
    --------
    >>> is_kernel_name("rbf"), is_kernel_name("rbf+matern12"), is_kernel_name("rbf+extra_trees")
    (True, True, False)
    """
    return isinstance(name, str) and all(one in KERNELS for one in name.split("+"))
