"""Model files of every schema so far: read, or refused in one line that says what reads them.

A change that makes files of today's schema unreadable raises ``SCHEMA`` and stores files of the new
one here, by ``python tests/test_stored_files.py``.
"""

from pathlib import Path

import numpy as np
import pytest

from helpers import wavy
from sharpgp import SharpGPRegressor, persistence
from sharpgp.exceptions import SavedModelError

STORED = Path(__file__).parent / "stored"
FILES = sorted(STORED.glob("schema_*/*.sgp"))

#: Files of schema 2 had noise, weights and groups among the features.
REFUSED = {(2, name) for name in ("noise", "weights", "groups")}


def schema_of(file: Path) -> int:
    return int(file.parent.name.removeprefix("schema_"))


def test_todays_schema_is_stored():
    assert persistence.SCHEMA in {schema_of(file) for file in FILES}


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_a_file_is_read_or_refused_in_one_line(file):
    if (schema_of(file), file.stem) in REFUSED:
        with pytest.raises(SavedModelError, match=r"schema \d.*(fit|version)") as refused:
            SharpGPRegressor.load(file)
        assert "\n" not in str(refused.value)
        return
    X, y = wavy(50, noise=0.1, seed=1)
    ends = SharpGPRegressor.load(file).predict_interval(X, 0.9)
    assert np.isfinite(ends).all()
    assert ((ends[:, 0] <= y) & (y <= ends[:, 1])).mean() > 0.6


if __name__ == "__main__":
    folder = STORED / f"schema_{persistence.SCHEMA}"
    folder.mkdir(parents=True, exist_ok=True)
    X, y = wavy(24)
    more = {
        "pool": {"base": "auto"},
        "noise": {"noise": np.full(24, 0.01)},
        "weights": {"sample_weight": np.linspace(1.0, 2.0, 24)},
        "groups": {"groups": np.arange(24) // 2},
    }
    for name, given in more.items():
        model = SharpGPRegressor(base=given.pop("base", "rbf"), random_state=0)
        model.fit(X, y, **given).save(folder / f"{name}.sgp")
