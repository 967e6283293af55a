import base64
import hashlib
import json
import re
from dataclasses import replace
from datetime import date
from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import pytest
from scipy.stats import norm

import sharpgp
from diagnosed import predictions
from sharpgp.diagnostics import COVERAGES, LevelCurves
from sharpgp.diagnostics.groupings import ROWS
from sharpgp.exceptions import SharpGPError
from sharpgp.models.pool import Member
from sharpgp.report import curve_words, page, render_report, words
from sharpgp.report.explanation import explain
from sharpgp.report.numbers import MAX_GROUPINGS_SHOWN, numbers_of

EVIL = "<script>alert(1)</script>\"'&<!--script-->"


@pytest.fixture
def calm(rng):
    return predictions(rng.normal(size=600))


def at(numbers, coverage=0.95):
    return numbers["intervals"][COVERAGES.index(coverage)]


def whole(found):
    """Numbers and the findings of the two figures about all points."""
    numbers = numbers_of(found)
    wrong = explain(found)
    return numbers, words.reliability(found, numbers, wrong), words.pit(found, numbers, wrong)


def test_a_calibrated_predictor_is_told_so(calm):
    numbers, reliability, pit = whole(calm)
    assert reliability.well
    assert pit.well
    assert words.widths(calm, at(numbers), []).well
    assert "<strong>Calibrated</strong>" in render_report(calm)


@pytest.mark.parametrize(
    ("shift", "spread", "fault", "shape"),
    [
        (0.0, 1.6, "overconfident", "ends are too high"),
        (0.0, 0.5, "too cautious", "middle is too high"),
        (0.6, 1.0, "too low as a whole", "lean to the right"),
        (-0.6, 1.0, "too high as a whole", "lean to the left"),
        (2.0, 1.0, "too low as a whole", "lean to the right"),
        (2.0, 2.0, "too low as a whole", "lean to the right"),
    ],
)
def test_each_fault_is_named(rng, shift, spread, fault, shape):
    found = predictions(shift + spread * rng.normal(size=800))
    _, reliability, pit = whole(found)
    assert fault in reliability.advice
    assert shape in pit.advice
    assert not reliability.well
    assert not pit.well
    assert "Not calibrated" in render_report(found)


def test_advice_depends_on_the_method(rng):
    y = 1.6 * rng.normal(size=800)
    advice = {
        method: explain(predictions(y, method=method))[0].advice
        for method in ("vanilla", "paper", "loo", "exact")
    }
    assert 'calibration="cv"' in advice["vanilla"]
    assert "calibration points" in advice["paper"]
    assert 'use calibration="cv"' in advice["loo"]
    assert "drift" in advice["exact"]


@pytest.mark.parametrize("method", ["cv", "exact", "kuleshov18"])
def test_narrow_intervals_that_miss_are_found(rng, method):
    sigma = np.repeat([0.4, 2.0], 500)
    found = predictions(rng.normal(size=1000), sigma=sigma, method=method)
    part = at(numbers_of(found), 0.9)
    finding = words.by_part(part, part["by_width"], "")
    assert not finding.well
    advice = " ".join(one.advice for one in explain(found))
    assert ("learns where the noise is large" in advice) == (method == "kuleshov18")
    if method != "kuleshov18":
        assert "were tried" in curve_words.theta_curve(found, numbers_of(found)).advice


def test_noise_that_grows_along_a_feature_is_found(rng):
    X = rng.uniform(0, 1, (1000, 2))
    found = predictions(rng.normal(size=1000) * (0.3 + 1.5 * X[:, 1]), X=X, d=2)
    part = at(numbers_of(found), 0.8)
    assert words.by_part(part, part["by_feature"][0], "x0").well
    assert not words.by_part(part, part["by_feature"][1], "x1").well
    first = json.loads(_numbers(render_report(found)))["first"]
    assert first["feature"] == 1, "the page opens at the feature that strays most"


def test_bounds_are_offered_where_positive_targets_have_intervals_below_zero(calm):
    assert words.below_zero(calm) is None  # some targets are negative
    shift = float(1e-3 - calm.y.min())
    positive = replace(
        calm, y=calm.y + shift, lower=calm.lower + shift - 1.5, upper=calm.upper + shift
    )
    found = words.below_zero(positive)
    below = (positive.lower[:, COVERAGES.index(max(COVERAGES))] < 0).sum()
    assert found.shows == (
        f"{below} of 600 intervals at {100 * max(COVERAGES):g} % end below 0, where no target is."
    )
    assert "y_bounds=(0, None)" in found.advice
    assert found.shows in render_report(positive)
    far = replace(positive, lower=positive.lower.clip(0.0))
    assert words.below_zero(far) is None


def test_too_few_calibration_points_are_said(calm):
    part = at(numbers_of(calm), 0.99) | {"backed": False}
    finding = words.widths(calm, part, [])
    assert "modelled tail" in finding.advice.replace("\n", " ")
    assert not finding.well


def test_groups_of_a_few_points_are_not_judged(rng):
    X = np.repeat([0.0, 1.0], [595, 5])[:, None]
    y = np.append(rng.normal(size=595), np.full(5, 9.0))
    found = predictions(y, X=X, d=1)
    part = at(numbers_of(found), 0.8)
    assert part["by_feature"][0][-1]["covered"] == 0
    assert words.by_part(part, part["by_feature"][0], "x0").well


def _curves(theta, scores=True):
    delta = np.linspace(0.02, 0.98, 25)
    names = ("1/lengthscale of x0", "signal variance", "noise variance")
    return LevelCurves(delta, 1.5 * norm.ppf(delta), theta, names, scores)


def test_sentences_about_the_curves(rng):
    y = rng.normal(size=300)
    plain = predictions(y, curves=_curves(np.ones((25, 3))))
    numbers = numbers_of(plain)
    assert "1.50 times as long" in curve_words.beta_curve(plain, numbers).advice
    assert "trained ones, at every level" in curve_words.theta_curve(plain, numbers).shows
    shared = predictions(y, curves=_curves(np.tile([2.5, 1.0, 1.0], (25, 1))))
    assert "2.5 times" in curve_words.theta_curve(shared, numbers_of(shared)).shows
    assert "One spread" in curve_words.theta_curve(shared, numbers_of(shared)).advice
    theta = np.ones((25, 3))
    theta[:, 0] = np.linspace(0.5, 4, 25)
    path = predictions(y, curves=_curves(theta), n_cal=15, method="paper")
    numbers = numbers_of(path)
    assert numbers["curves"]["gauss"] is None
    assert numbers["curves"]["names"] == ["1/lengthscale of x0"]
    assert "read the two together" in curve_words.beta_curve(path, numbers).advice
    assert "With 15 calibration points" in curve_words.theta_curve(path, numbers).advice
    constant = predictions(y, curves=_curves(np.ones((25, 3)), scores=False), method="marx22")
    assert "plain residuals" in curve_words.beta_curve(constant, numbers_of(constant)).shows


class Elements(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.comments = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_comment(self, data):
        self.comments.append(data)


def _numbers(text):
    return re.search(r'id="numbers">(.*?)</script>', text, re.DOTALL)[1]


def test_names_and_titles_cannot_break_out(rng):
    found = predictions(rng.normal(size=60), names=[EVIL, "b", "c"], method=EVIL)
    text = render_report(found, title=EVIL)
    parsed = Elements(text)
    assert [tag for tag, _ in parsed.tags].count("script") == 2
    assert not parsed.comments, "every place of the template is filled, and only once"
    assert json.loads(_numbers(text))["features"][0] == EVIL


def test_the_page_needs_nothing_from_elsewhere(calm):
    text = render_report(calm)
    for tag, attributes in Elements(text).tags:
        assert not {"src", "href", "action", "style", "onclick"} & set(attributes), (
            tag,
            attributes,
        )
    assert "url(" not in text
    assert "@import" not in text
    assert set(re.findall(r"https?://[^\"' )]+", text)) == {"http://www.w3.org/2000/svg"}


def test_only_the_page_s_own_script_and_style_are_allowed(calm):
    text = render_report(calm)
    policy = next(a["content"] for t, a in Elements(text).tags if a.get("http-equiv"))
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        content = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)[-1]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_every_control_and_picture_has_a_label(calm):
    tags = Elements(render_report(calm)).tags
    labelled = {attributes.get("for") for tag, attributes in tags if tag == "label"}
    controls = {a["id"] for tag, a in tags if tag in ("input", "select")}
    assert controls == {"coverage", "feature", "entry"}
    assert controls <= labelled


def _luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def test_colours_have_enough_contrast_in_light_and_dark():
    style = files("sharpgp.report").joinpath("style.css").read_text()
    themes = [
        dict(re.findall(r"--(\w+): (#\w{6})", block)) for block in re.findall(r"{[^{}]*}", style)
    ]
    themes = [theme for theme in themes if "page" in theme]
    assert len(themes) == 4
    assert themes[3] == themes[0] | {"page": "#ffffff"}, "paper is light, and white"
    assert themes[1] == themes[2], "dark by choice and dark by preference are the same"
    for theme in themes:
        for text in ("ink", "soft", "line", "off", "well", "look"):
            for ground in ("page", "card") if text in ("ink", "soft") else ("card",):
                a, b = sorted([_luminance(theme[text]), _luminance(theme[ground])])
                assert (b + 0.05) / (a + 0.05) >= 4.5, (text, ground, theme)


def test_very_many_features_leave_those_that_stray(rng):
    X = rng.normal(size=(400, MAX_GROUPINGS_SHOWN + 20))
    y = rng.normal(size=400) * np.where(X[:, 3] > 0.8, 4.0, 0.7)
    found = predictions(y, X=X, d=X.shape[1])
    kept = numbers_of(found)["features"]
    assert len(kept) == MAX_GROUPINGS_SHOWN
    kept = [name for name in kept if name != ROWS]
    assert "x3" in kept
    assert kept == sorted(kept, key=lambda name: int(name[1:]))


def test_widths_that_are_all_alike_can_be_shown(calm):
    part = at(numbers_of(calm))
    assert "equally wide" in words.widths(calm, part, []).shows
    assert sum(part["widths"]["count"]) == len(calm.y)


def test_a_file_that_cannot_be_written_is_one_line(tmp_path, monkeypatch, calm):
    monkeypatch.setattr(page, "diagnose", lambda *_, **__: calm)
    with pytest.raises(SharpGPError, match=r"cannot write .*folder\.html: No such"):
        page.write_report(None, None, None, tmp_path / "no" / "folder.html")


def test_the_page_says_what_was_measured_when_and_on_which_data(rng):
    y = rng.normal(size=80)
    found = predictions(y, target="dose", unit="mg")
    text = render_report(found, day=date(2030, 1, 2))
    assert "Target dose (mg);" in text
    assert f"2030-01-02, sharpgp {sharpgp.__version__}, test data {found.fingerprint}" in text
    assert predictions(y, target="other").fingerprint == found.fingerprint
    assert predictions(y + 1e-9).fingerprint != found.fingerprint


def test_the_page_lists_models_and_relevance_and_the_worst_points(rng):
    y = rng.normal(size=80)
    y[17] = 9.0
    members = (Member("rbf", 0.25, 1.5), Member("extra_trees", 0.75, float("nan")))
    found = predictions(y, members=members, relevance=np.array([0.1, 0.9, 0.0]))
    numbers = numbers_of(found)
    assert numbers["worst"][0]["row"] == 18
    assert numbers["worst"][0]["away"] == pytest.approx(9 / norm.ppf(0.975))
    assert [one["name"] for one in numbers["learned"]["relevance"]] == ["x1", "x0", "x2"]
    text = render_report(found)
    assert '<th scope="row">rbf</th><td>25 %</td><td>1.5</td>' in text
    assert '<th scope="row">extra_trees</th><td>75 %</td><td></td>' in text


@pytest.mark.parametrize(
    ("method", "n_cal", "says"),
    [
        ("exact", 400, "500 training, 400 calibration and 60 test points"),
        ("cv", 500, "500 points that trained and calibrated it and 60 test points"),
        ("vanilla", None, "500 training, no calibration points and 60 test points"),
    ],
)
def test_the_heading_counts_points_that_do_both_once(rng, method, n_cal, says):
    assert says in render_report(predictions(rng.normal(size=60), method=method, n_cal=n_cal))
