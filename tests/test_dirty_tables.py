"""Tables as people have them: read as the clean table is, or refused with what then works."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from sharpgp import SharpGPRegressor
from sharpgp.cli import app
from sharpgp.data import TableEncoding
from sharpgp.exceptions import InvalidInputError
from sharpgp.tabular import load_model
from sharpgp.tabular.layout import Reading
from sharpgp.tabular.models import training_rows

N = 60
RNG = np.random.default_rng(0)
CLEAN = pd.DataFrame(
    {
        "area": RNG.uniform(20, 2000, N).round(2),
        "rooms": RNG.integers(1, 7, N),
        "city": RNG.choice(["Bern", "Köln", "Łódź", "Genève"], N),
        "sold": pd.Timestamp("2023-03-05") + pd.to_timedelta(RNG.integers(0, 700, N), "D"),
        "rent": RNG.uniform(500, 4000, N).round(2),
    }
)
WESTERN = CLEAN.assign(city=CLEAN["city"].replace("Łódź", "Zürich"))


def german(value):
    return f"{value:,.2f}".replace(",", "_").replace(".", ",").replace("_", ".")


def swiss(value):
    return f"{value:,.2f}".replace(",", "'")


def encoded(frame):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return TableEncoding.learn(frame).encode(frame).features


# ------------------------------------------------------------------ numbers and dates as text

NUMBERS = {
    "plain": "{:.2f}".format,
    "dollars": "${:,.2f}".format,
    "negative money": "-${:,.2f}".format,
    "euros": lambda v: f"{german(v)} €",
    "euros, no-break space": lambda v: f"{german(v)}\u00a0€",
    "French": lambda v: f"{v:,.2f}".replace(",", "\u202f").replace(".", ","),
    "Swiss": lambda v: f"CHF {swiss(v)}",
    "percent": "{:.2f}%".format,
    "square metres": "{:.2f} m2".format,
    "km/h": "{:.2f} km/h".format,
    "deviation": "{:.2f}±0.2".format,
    "exponent": "{:.6e}".format,
    "decimal comma": lambda v: f"{v:.2f}".replace(".", ","),
    "negative, in brackets": "({:.2f})".format,
    "negative, minus behind": lambda v: f"{german(v)}-",
    "pandas' gaps": lambda v: "n/a" if v > 1800 else f"{v:.2f}",
}


@pytest.mark.parametrize("form", NUMBERS)
def test_numbers_as_text_are_the_numbers(form):
    numbers = CLEAN["area"]
    if form.startswith("negative"):
        numbers = -numbers
    if form == "pandas' gaps":
        numbers = numbers.where(numbers <= 1800)
    dirty = CLEAN.assign(area=CLEAN["area"].map(NUMBERS[form]))
    np.testing.assert_array_equal(encoded(dirty), encoded(CLEAN.assign(area=numbers)))
    with pytest.warns(UserWarning, match=r"text is read as numbers or dates in column\(s\) 'area'"):
        encoding = TableEncoding.learn(dirty)
    # Later rows are read as these were, and plain numbers as they are.
    later, plain = (encoding.encode(frame[:3]) for frame in (dirty, CLEAN.assign(area=numbers)))
    np.testing.assert_array_equal(later.features, plain.features)


@pytest.mark.parametrize(
    "form", ["{:.0f} kg", "{:.0f}%", "{:.0f}", "{:.0f}K", "{:.0f}.-", "{:.0f},-- €"]
)
def test_whole_numbers_as_text_are_numbers(form):
    dirty = CLEAN.assign(rooms=CLEAN["rooms"].map(form.format))
    np.testing.assert_array_equal(encoded(dirty), encoded(CLEAN))


@pytest.mark.parametrize(
    "form",
    [
        *("%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ", "%d.%m.%Y", "%d.%m.%y", "%d/%m/%Y", "%m/%d/%Y"),
        *("%d %b %Y", "%b %d, %Y", "%m/%d/%Y %I:%M %p", "%d-%b-%y", "%d. %B %Y"),
    ],
)
def test_dates_as_text_are_the_dates(form):
    dirty = CLEAN.assign(sold=CLEAN["sold"].dt.strftime(form))
    np.testing.assert_array_equal(encoded(dirty), encoded(CLEAN))


def test_dates_of_two_kinds_and_whole_numbers_that_look_like_dates():
    """Excel keeps some cells as dates and others as text; 20240131 is a number until asked."""
    text = CLEAN["sold"].dt.strftime("%d.%m.%Y")
    mixed = text.where(CLEAN.index % 3 > 0, CLEAN["sold"].dt.strftime("%Y-%m-%d %H:%M:%S"))
    np.testing.assert_array_equal(encoded(CLEAN.assign(sold=mixed)), encoded(CLEAN))
    whole = CLEAN.assign(sold=CLEAN["sold"].dt.strftime("%Y%m%d").astype(int))
    with pytest.warns(UserWarning, match="'sold' look like dates: whole numbers such as"):
        TableEncoding.learn(whole)


SOME = [f"{v}.25" for v in range(N - 2)]
ASKED = {
    "thousands": (["12,345", *map(str, range(N - 1))], "found '12,345' in row 0; it may be 12345,"),
    "points": (
        ["1.234", *map(str, range(N - 1))],
        "found '1.234' in row 0; it may be 1234, with .str.replace('.', ''), or 1.234, with .as",
    ),
    "two marks": (["1,5", "2.5"] * 30, "one decimal mark, as in '2.5', found '1,5' in row 0"),
    "two units": (
        [f"{v} kg" if v % 2 else f"{v} g" for v in range(N)],
        "numbers of one unit, such as '0 g', found '1 kg' in row 1; convert them",
    ),
    "below a limit": (["1.5", "<0.05", *SOME], "numbers, found '<0.05' in row 1; correct it, take"),
    "a mark": (["1.5 m", "-", *(f"{v} m" for v in SOME)], "such as '1.5 m', found '-' in row 1"),
    "dates": (
        ["01/02/2024", "03/04/2024"] * 30,
        "it may be 2024-02-01, with pandas.to_datetime(..., format='%d/%m/%Y'), or 2024-01-02, ",
    ),
    "dates, some": (
        ["2024-01-31", "soon", *(f"2024-02-{1 + i % 28:02}" for i in range(N - 2))],
        "dates, such as '2024-01-31', found 'soon' in row 1",
    ),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_cannot_be_told_is_asked(name):
    column, says = ASKED[name]
    with pytest.raises(InvalidInputError, match=re.escape(says)) as caught:
        TableEncoding.learn(CLEAN.assign(area=column))
    assert "\n" not in str(caught.value)


def test_marks_of_gaps_are_gaps_in_x_and_y():
    dirty = CLEAN.drop(columns="rent").astype({"area": object})
    dirty.loc[::9, "area"], y = "?", CLEAN["rent"].copy()
    y[::8] = -999.0
    clean, known = dirty.assign(area=dirty["area"].replace("?", np.nan)), y != -999.0
    settings = {"base": "rbf", "calibration": "vanilla"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        marked = SharpGPRegressor(**settings, missing=["?", -999]).fit(dirty, y)
        plain = SharpGPRegressor(**settings).fit(clean[known], y[known])
        np.testing.assert_array_equal(marked.predict(dirty), plain.predict(clean))
        array = CLEAN[["area", "rooms"]].to_numpy(float)
        array[::7, 0] = -999.0
        marked = SharpGPRegressor(**settings, missing=-999).fit(array, CLEAN["rent"])
        gaps = np.where(array == -999.0, np.nan, array)
        plain = SharpGPRegressor(**settings).fit(gaps, CLEAN["rent"])
        np.testing.assert_array_equal(marked.predict(array), plain.predict(gaps))


def test_numbers_that_mark_gaps_are_named_with_the_cure():
    X = CLEAN[["area", "rooms"]].astype(float)
    X.loc[::10, "area"] = -9999.0
    model = SharpGPRegressor(base="rbf", calibration="vanilla")
    said = r"column 'area': 6 value\(s\) are -9999, far from all others; .* missing=\[-9999\]"
    with pytest.warns(UserWarning, match=said):
        model.fit(X, CLEAN["rent"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.set_params(missing=[-9999]).fit(X, CLEAN["rent"])
    assert model.encoding_.n_missing == 6


def test_a_target_as_text_is_fitted_as_numbers():
    X, settings = CLEAN[["area", "rooms"]], {"base": "rbf", "calibration": "vanilla"}
    plain = SharpGPRegressor(**settings).fit(X, CLEAN["rent"])
    with pytest.warns(UserWarning, match="y: text is read as numbers, such as"):
        model = SharpGPRegressor(**settings).fit(X, CLEAN["rent"].map(german))
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))
    with pytest.warns(UserWarning, match="y: text is read"):
        assert model.score(X, CLEAN["rent"].map(german)) == plain.score(X, CLEAN["rent"])
    with pytest.raises(InvalidInputError, match="y: expected numbers to predict, found text, such"):
        model.fit(X, CLEAN["city"])


# ------------------------------------------------------------------ files


def csv(frame=CLEAN, **settings):
    return frame.to_csv(**{"index": False, "date_format": "%Y-%m-%d"} | settings)


EUROPE = {"sep": ";", "decimal": ",", "date_format": "%d.%m.%Y"}
COUNTS = CLEAN.assign(area=(1000 * CLEAN["area"]).round().astype(int))
BY_GROUPS = COUNTS.assign(area=COUNTS["area"].map(lambda v: f"{v:,}".replace(",", ".")))
LET = CLEAN.assign(let=CLEAN["rooms"] > 3)[["let", *CLEAN.columns]]
GROUPED = WESTERN.assign(rent=WESTERN["rent"].map(german), area=WESTERN["area"].map(german))
TITLE = "Mieten 2024;;;;\n;;;;\n"
#: Bytes of files that are read as the clean table is, and what is said of how.
READ = {
    "clean": (csv().encode(), ""),
    "index": (csv(index=True).encode(), "without its first column"),
    "index of drawn rows": (
        csv(CLEAN.set_axis(RNG.permutation(900)[:N])[CLEAN.columns], index=True).encode(),
        "without its first column",
    ),
    "latin-1": (csv(WESTERN).encode("latin-1"), "as encoding='cp1252'"),
    "UTF-16": (csv().encode("utf-16"), ""),
    "UTF-16 without a mark": (csv().encode("utf-16-le"), ""),
    "UTF-8 with a mark": (csv().encode("utf-8-sig"), ""),
    "semicolons": (csv(sep=";").encode(), ""),
    "bars": (csv(sep="|").encode(), ""),
    "decimal commas": (csv(**EUROPE).encode(), "with decimal=','"),
    "decimal commas, tabs": (csv(**EUROPE | {"sep": "\t"}).encode(), "with decimal=','"),
    "Excel in Europe": (
        csv(WESTERN, **EUROPE).replace("\n", "\r\n").encode("cp1252"),
        "as encoding='cp1252', for it is not UTF-8; with decimal=','",
    ),
    "grouped thousands": (csv(GROUPED, **EUROPE).encode("cp1252"), "as encoding='cp1252'"),
    "quoted commas": (csv(CLEAN.assign(rent=CLEAN["rent"].map(german))).encode(), ""),
    "title lines": (
        (TITLE + csv(sep=";")).encode(),
        "with the header of line 3, as with skip=2",
    ),
    "title, decimal commas, latin-1": (
        (TITLE + csv(WESTERN, **EUROPE)).encode("latin-1"),
        "with decimal=','; with the header of line 3",
    ),
    "one title line": (("Rents, all of 2024\n\n" + csv()).encode(), "header of line 3"),
    "sep=": (("sep=;\n" + csv(sep=";")).encode(), "header of line 2"),
    "spaces in names": (csv().replace("area,rooms", " area , rooms").encode(), ""),
    "spaces in values": (csv().replace(",", ", ").encode(), ""),
    "footer": ((csv() + "\nSource: own survey\n").encode(), "without 1 line(s) at its end"),
    "footer of Excel": (
        (csv(sep=";") + ";;;;\nQuelle: Amt;;;;\n").encode(),
        "without 2 line(s) at its end",
    ),
    "trailing delimiters": (csv(sep=";").replace("\n", ";\n").encode(), ""),
    "US dates": (csv(date_format="%m/%d/%Y").encode(), ""),
    "ends of lines of old Macs": (csv().replace("\n", "\r").encode(), ""),
    "UTF-16, the other way round": (csv().encode("utf-16-be"), ""),
    "a row of sums": (
        (csv(**EUROPE) + f"Summe;;;;{german(CLEAN['rent'].sum())}\n").encode(),
        "without 1 line(s) at its end that hold no row, such as 'Summe",
    ),
    "errors of a German Excel": (
        csv(CLEAN.assign(rooms=CLEAN["rooms"].map(str).where(CLEAN["rooms"] > 1, "#NV"))).encode(),
        "",
    ),
}
#: What a file's clean table is, where it is another one.
OTHERS = {
    "truth in German": (csv(LET.replace({"let": {True: "WAHR", False: "FALSCH"}})), LET),
    "truth in French": (csv(LET.replace({"let": {True: "VRAI", False: "FAUX"}})), LET),
    "errors of a German Excel": (None, CLEAN.assign(rooms=CLEAN["rooms"].where(CLEAN.rooms > 1))),
    # Decimal commas elsewhere tell what a point is for, and decimal points what a comma is for.
    "points for thousands": (csv(BY_GROUPS, **EUROPE), COUNTS),
    "commas for thousands": (csv(COUNTS.assign(area=COUNTS["area"].map("{:,}".format))), COUNTS),
}
READ |= {
    name: (text.encode(), READ.get(name, ("", ""))[1]) for name, (text, _) in OTHERS.items() if text
}
READ["points for thousands"] = READ["points for thousands"][0], "with decimal=','"


@pytest.mark.parametrize("name", READ)
def test_files_are_read_as_the_clean_table(name, tmp_path):
    content, said = READ[name]
    (tmp_path / "data.csv").write_bytes(content)
    western = "Zürich" in content.decode("cp1252", "replace")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rows = training_rows(tmp_path / "data.csv", "rent")
    _, clean = OTHERS.get(name, ("", WESTERN if western else CLEAN))
    np.testing.assert_array_equal(rows.X.features, encoded(clean.drop(columns="rent")))
    np.testing.assert_array_equal(rows.y, CLEAN["rent"])
    messages = [str(one.message) for one in caught]
    assert said in " ".join(messages)
    assert all("\n" not in one for one in messages)
    assert any("data.csv: read" in one for one in messages) == bool(said)


def test_what_a_file_leaves_open_is_an_option(tmp_path):
    """Every refusal names the option with which the file is then read."""
    runner, out = CliRunner(), tmp_path / "model.sgp"
    quick = ["--target", "rent", "--base", "rbf", "--calibration", "vanilla", "--out", str(out)]
    thousands = CLEAN.assign(
        area=(10 * CLEAN["area"]).round().map("{:,.0f}".format), rent=CLEAN["rent"].round()
    ).astype({"rent": int})
    points = thousands.assign(area=thousands["area"].str.replace(",", "."))
    early = CLEAN.assign(sold=[f"0{1 + i % 9}/0{1 + i % 7}/2024" for i in range(N)])
    several = [WESTERN.assign(city="Bern", rent=WESTERN["rent"] + 7 * k) for k in range(40)]
    late = "".join(csv(one, header=False) for one in several).encode()
    marked = CLEAN.assign(area=CLEAN["area"].map(str).where(CLEAN.index > 3, "-"))
    cases = {
        "--decimal .": csv(thousands).encode(),
        "--decimal ,": csv(points, sep=";").encode(),
        "--skip 1": ("Rents, and more, of 2024\n" + csv()).encode(),
        "--dates '%m/%d/%Y'": csv(early, date_format=None).encode(),
        "--encoding cp1252": b"area,rooms,city,sold,rent\n"
        + late
        + csv(WESTERN, header=False).encode("cp1252"),
        "--missing '-'": csv(marked).encode(),
    }
    for option, content in cases.items():
        (tmp_path / "data.csv").write_bytes(content)
        result = runner.invoke(app, ["fit", str(tmp_path / "data.csv"), *quick])
        assert result.exit_code == 2, (option, result.output)
        assert option in result.stderr, result.stderr
        assert result.stderr.count("\n") == 1
        given = re.sub("'", "", option).split()
        result = runner.invoke(app, ["fit", str(tmp_path / "data.csv"), *quick, *given])
        assert result.exit_code == 0, (option, result.stderr)
    for wrong in (["--decimal", ";"], ["--encoding", "utf-99"], ["--skip", "-1"]):
        result = runner.invoke(app, ["fit", str(tmp_path / "data.csv"), *quick, *wrong])
        assert result.exit_code == 2
        assert f"error: {wrong[0]}: expected" in result.stderr


def test_sheets_are_read_as_the_clean_table(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    rows = [["Mieten 2024"], [None], [None, *CLEAN.columns]]
    for i, row in enumerate(CLEAN.itertuples(index=False)):
        sold = row.sold.strftime("%d.%m.%Y")
        rows.append([i, german(row.area), str(row.rooms), row.city, sold, f"{row.rent} CHF"])
    for row in [*rows, [None], ["Quelle: Amt"]]:
        book.active.append(row)
    book.create_sheet("notes")
    book.save(tmp_path / "data.xlsx")
    with pytest.warns(UserWarning, match="from its first sheet, .*other sheets: notes; .*skip=2"):
        found = training_rows(tmp_path / "data.xlsx", "rent")
    np.testing.assert_array_equal(found.X.features, encoded(CLEAN.drop(columns="rent")))
    np.testing.assert_array_equal(found.y, CLEAN["rent"])
    mixed = [[row.area if i % 2 else german(row.area)] for i, row in enumerate(CLEAN.itertuples())]
    book.active.delete_rows(1, 99)
    book.active.append(["read me"])
    for row in [["area"], *mixed]:
        book["notes"].append([*row, row[0]])
    book["notes"]["B1"] = "rent"
    book.save(tmp_path / "mixed.xlsx")
    with pytest.raises(InvalidInputError, match="only a header; other sheets: notes; use sheet="):
        training_rows(tmp_path / "mixed.xlsx", "rent")
    with pytest.warns(UserWarning, match="with decimal=','"):
        found = training_rows(tmp_path / "mixed.xlsx", "rent", reading=Reading(sheet="notes"))
    np.testing.assert_array_equal(found.y, CLEAN["area"])
    with pytest.raises(InvalidInputError, match="sheet: expected one of Sheet, notes, found 'x'"):
        training_rows(tmp_path / "data.xlsx", "rent", reading=Reading(sheet="x"))


def test_predictions_from_a_dirty_file_are_those_from_the_clean_one(tmp_path):
    """Fitted on what Excel writes in Germany, asked about it and about the clean table."""
    runner = CliRunner()
    dirty = (TITLE + csv(GROUPED, **EUROPE)).encode("cp1252")
    (tmp_path / "dirty.csv").write_bytes(dirty)
    (tmp_path / "clean.csv").write_bytes(csv(WESTERN).encode())
    for name in ("dirty", "clean"):
        path, out = str(tmp_path / f"{name}.csv"), str(tmp_path / f"{name}.sgp")
        fit = ["fit", path, "--target", "rent", "--base", "rbf", "--calibration", "exact"]
        result = runner.invoke(app, [*fit, "--out", out])
        assert result.exit_code == 0, result.output
        result = runner.invoke(app, ["predict", out, path, "--out", str(tmp_path / f"{name}.pq")])
        assert result.exit_code == 0, result.output
    of_clean = pd.read_parquet(tmp_path / "clean.pq")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "dirty.pq"), of_clean)
    model = load_model(tmp_path / "dirty.sgp").model
    np.testing.assert_array_equal(model.predict(WESTERN.drop(columns="rent")), of_clean["mean"])
    WESTERN.to_csv(tmp_path / "clean.csv", index=False)
    other = ["predict", str(tmp_path / "dirty.sgp"), str(tmp_path / "clean.csv"), "--out", "-"]
    said = "column 'area': expected numbers as in training, such as '1.281,18', found '1281.18' in"
    assert said in runner.invoke(app, other).stderr
