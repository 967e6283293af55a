"""What is said of a table before any fit: each planted fault is found, and a good table passes."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import sharpgp
from sharpgp.cli import app
from sharpgp.exceptions import InvalidInputError

N = 120


def test_rows_in_blocks_and_years_in_order():
    """Firms one below the other are groups, a year that runs on is time."""
    rng = np.random.default_rng(0)
    size = np.repeat(rng.normal(size=12), 10)
    panel = pd.DataFrame({"firm": np.repeat([f"firm {i}" for i in range(12)], 10)})
    panel["x"] = rng.normal(size=120)
    kinds = {one.kind: one.says for one in sharpgp.check(panel, size + 0.1 * panel["x"]).findings}
    assert kinds["groups"] == "Rows seem to form 12 groups by 'firm', one below the other."
    assert "order" not in kinds
    years = pd.DataFrame({"year": 1960 + np.arange(120) // 4, "x": rng.normal(size=120)})
    walk = rng.normal(size=120).cumsum()
    says = [one.says for one in sharpgp.check(years, walk).findings if one.kind == "order"]
    assert len(says) == 1
    assert "along 'year'" in says[0]


def table(seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "area": rng.uniform(20, 90, N),
            "city": rng.choice(["Bern", "Köln", "Oslo"], N),
            "built": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, N), "D"),
        }
    )
    y = 12 * frame["area"].to_numpy() + rng.normal(0, 80, N)
    return frame, y


def kinds(found):
    return [one.kind for one in found.findings]


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_said_of_a_good_table(seed):
    found = sharpgp.check(*table(seed))
    assert (found.findings, found.fits) == ((), True)
    assert found.heading == "Nothing looks wrong."
    assert [one.becomes for one in found.columns] == ["number", "category", "date, week, year"]


def planted():
    frame, y = table()
    rng = np.random.default_rng(1)
    who = np.repeat(np.arange(30), 4)
    walk = np.cumsum(rng.normal(size=N))
    return {
        "leak": (frame.assign(yearly=12 * y), y, "'yearly' alone explains 100.00 % of y."),
        "values": (
            frame.assign(area=frame["area"].where(frame.index > 8, -999)),
            y,
            "'area': 9 values are -999, far from all others.",
        ),
        "target": (frame, np.where(np.arange(N) == 7, np.nan, y), "y is missing in 1 of 120 rows."),
        "copies": (pd.concat([frame] * 2), np.r_[y, y], "120 of 240 rows repeat another one"),
        "order": (
            frame.assign(day=pd.date_range("2024-01-01", periods=N)),
            walk,
            "y is like that of the row before, along 'day'",
        ),
        "gaps": (frame.assign(area=frame["area"].where(frame.index > 80)), y, "'area': more than"),
        "few": (
            pd.DataFrame(rng.normal(size=(N, 20))).add_prefix("f"),
            y,
            "120 rows are few for 20 lengthscales",
        ),
        "groups": (
            frame.assign(who=[f"p{k}" for k in who], age=rng.integers(20, 70, 30)[who]),
            y,
            "Rows seem to form 30 groups by 'who', which tells 'age'.",
        ),
        "columns": (
            frame.assign(price=[f"${v:,.2f}" for v in y]),
            rng.normal(size=N),
            "Text is read as numbers or dates in column(s) 'price'",
        ),
    }


@pytest.mark.parametrize("kind", planted())
def test_what_is_planted_is_found(kind):
    frame, y, says = planted()[kind]
    found = sharpgp.check(frame, y)
    assert any(one.kind == kind and one.says.startswith(says) for one in found.findings), found
    assert found.fits
    assert says in str(found)


def test_a_wrong_target_hides_no_leak():
    frame, y = table()
    typo = np.where(np.arange(N) == 7, 1000 * y, y)
    found = sharpgp.check(frame.assign(yearly=12 * y), typo)
    assert kinds(found) == ["leak", "values"]
    assert f"y: {typo[7]:g} in row 7, far from all others" in found.findings[1].says


def test_what_would_stop_a_fit_comes_first_and_the_rest_is_still_told():
    frame, y = table()
    bad = frame.assign(
        weight=[f"{v} kg" if v % 2 else f"{v} g" for v in range(N)], one=1.0, yearly=12 * y
    )
    found = sharpgp.check(bad, y)
    assert not found.fits
    assert found.findings[0].stops
    assert "numbers of one unit" in found.findings[0].says
    assert {"leak", "columns"} <= set(kinds(found))
    by_name = {one.name: one.becomes for one in found.columns}
    assert (by_name["weight"], by_name["one"]) == ("refused", "left out")
    with pytest.raises(InvalidInputError, match="expected the column"):
        sharpgp.check(bad, "rentt")


def test_the_page_and_the_command(tmp_path):
    frame, y = table()
    frame.assign(yearly=12 * y, rent=y, odd="<b>").to_csv(tmp_path / "rents.csv", index=False)
    page = tmp_path / "check.html"
    asked = ["check", str(tmp_path / "rents.csv"), "--target", "rent", "--out", str(page)]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    assert "'yearly' alone explains 100.00 % of rent." in result.stdout
    html = page.read_text()
    assert html.startswith("<!doctype html>")
    assert "alone explains 100.00 % of rent" in html
    assert "<b>" not in html
    assert "http" not in html
    marked = frame.assign(rent=y, area=frame["area"].where(frame.index > 3, -999))
    marked.to_csv(tmp_path / "rents.csv", index=False)
    result = CliRunner().invoke(app, asked[:4])
    assert "call it --missing -999" in result.stdout
    result = CliRunner().invoke(app, [*asked[:4], "--missing", "-999"])
    assert "-999" not in result.stdout
    assert "far from" not in result.stdout


def test_arrays_and_names_of_targets():
    X = np.random.default_rng(0).normal(size=(60, 2))
    found = sharpgp.check(np.c_[X, 3 * X[:, :1]], X[:, 0])
    assert [one.name for one in found.columns] == ["x0", "x1", "x2"]
    assert kinds(found) == ["leak", "leak"]
    frame, y = table()
    assert sharpgp.check(frame.assign(rent=y), "rent").target == "rent"


def test_numbers_that_name_subjects_are_groups():
    """Twelve subjects on ten days each, as lme4's sleepstudy: ids say nothing, order neither."""
    rng = np.random.default_rng(0)
    ids = np.repeat([308, 309, 310, 330, 331, 332, 333, 334, 335, 337, 349, 350], 10)
    days = np.tile(np.arange(10), 12)
    y = 250 + np.repeat(rng.normal(0, 40, 12), 10) + 10 * days + rng.normal(0, 20, 120)
    frame = pd.DataFrame({"Subject": ids, "Days": days})
    (found,) = sharpgp.check(frame, y).findings
    assert found.says == "Rows seem to form 12 groups by 'Subject', one below the other."
    assert sharpgp.check(frame, y, groups="Subject").findings == ()
    # An age that rises down the rows is a number.
    ages = frame.assign(Subject=np.repeat(20 + 5 * np.arange(12), 10))
    assert sharpgp.check(ages, ages["Subject"] + rng.normal(0, 5, 120)).findings == ()


def test_tables_sorted_by_what_the_columns_hold_are_in_no_order_of_time():
    rng = np.random.default_rng(0)
    place = np.repeat(["Bern", "Oslo", "Rome", "Wien"], 60)
    area = rng.uniform(20, 90, 240)
    y = np.repeat([9.0, 3.0, 7.0, 1.0], 60) + area / 50 + rng.normal(size=240)
    frame = pd.DataFrame({"place": place, "area": area})
    assert sharpgp.check(frame, y).findings == ()
    # Cars that appear model by model: alike along their dates, for what the columns say.
    dated = frame.assign(released=pd.date_range("2020-01-01", periods=240))
    assert sharpgp.check(dated, y).findings == ()


def test_at_most_five_findings_are_shown_and_the_costly_come_first():
    frame, y = table()
    for k in range(7):
        frame[f"f{k}"] = np.where(
            np.arange(N) == k, -999.0, np.random.default_rng(k).normal(size=N)
        )
    found = sharpgp.check(frame.assign(yearly=12 * y), y)
    assert len(found.findings) == 9
    assert found.findings[0].kind == "leak"
    assert str(found).count("\n- ") == 5
    assert "4 of less weight" in str(found)
    assert "<details><summary>4 of less weight" in found.html()


def test_a_sign_of_censoring_beside_a_time_is_named_as_not_modelled():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(60, 9, 80), "status": rng.integers(0, 2, 80)})
    days = pd.Series(rng.exponential(200, 80), name="days")
    says = "'status' seems to say which values of days are censored"
    assert says in str(sharpgp.check(frame, days))
    assert says not in str(sharpgp.check(frame, days.rename("price")))
    assert says not in str(sharpgp.check(frame.assign(status=frame["age"].round()), days))
    with pytest.warns(UserWarning, match=f"{says}.*not modelled"):
        sharpgp.SharpGPRegressor(base="rbf", calibration="vanilla").fit(frame, days)
