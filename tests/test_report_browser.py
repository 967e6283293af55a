"""The report in a real browser: it renders, stays quiet, and its controls work."""

import base64
import json
import re
import time

import numpy as np
import pytest

from browser import Browser, find_browser
from sharpgp import Sharp, SharpGPRegressor
from sharpgp.report import write_report

pytestmark = pytest.mark.skipif(
    find_browser() is None, reason="no Chromium on the path; install it to test the report"
)
PHONE = {"width": 390, "height": 844, "phone": True}


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Reports of models with curves by level, with one spread, and without curves."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (260, 3))
    y = np.sin(2 * X[:, 0]) + 0.3 * np.exp(X[:, 1]) * rng.normal(size=260)
    folder, out = tmp_path_factory.mktemp("reports"), {}
    for method in ("paper", "exact", "vanilla", "marx22"):
        calibration = Sharp(levels=7) if method == "paper" else method
        model = SharpGPRegressor(base="rbf", calibration=calibration, random_state=0)
        model.fit(X[:160], y[:160])
        names = ["first </script>", "second & third", "x" * 60]
        path = folder / f"{method}.html"
        out[method] = write_report(model, X[160:], y[160:], path, feature_names=names)
    return out


@pytest.fixture(scope="module")
def browser():
    with Browser(find_browser()) as browser:
        yield browser


def quiet(browser, path):
    assert browser.errors == []
    assert browser.requests == [path.resolve().as_uri()]


@pytest.mark.parametrize("method", ["paper", "exact", "vanilla", "marx22"])
@pytest.mark.parametrize("screen", [{}, PHONE], ids=["desktop", "phone"])
def test_it_renders_without_errors_or_requests(browser, reports, method, screen):
    browser.open(reports[method], **screen)
    drawn = browser.run(
        "[...document.querySelectorAll('.figure')].filter(f => f.querySelector('svg'))"
        ".map(f => f.id)"
    )
    expected = {"reliability", "pit", "points", "widths", "by-width", "by-feature", "relevance"}
    expected |= {"vanilla": set(), "marx22": {"beta"}}.get(method, {"beta", "theta"})
    # Whether exact changes theta at all is the data's choice.
    assert set(drawn) - {"theta"} == expected - {"theta"}
    assert method != "paper" or "theta" in drawn
    assert browser.run("document.documentElement.scrollWidth <= window.innerWidth")
    nothing = browser.run(
        "[...document.querySelectorAll('svg *')].filter(e => [...e.attributes]"
        ".some(a => /NaN|undefined|Infinity/.test(a.value + e.textContent))).length"
    )
    assert nothing == 0
    # No text sticks out of its figure.
    outside = browser.run(
        "[...document.querySelectorAll('svg text')].filter(t => {"
        " const b = t.getBoundingClientRect(), s = t.closest('svg').getBoundingClientRect();"
        " return b.left < s.left - 1 || b.right > s.right + 1 || b.bottom > s.bottom + 1; })"
        ".map(t => t.textContent)"
    )
    assert outside == []
    quiet(browser, reports[method])


def test_the_slider_changes_width_coverage_and_sentences(browser, reports):
    browser.open(reports["exact"])
    before = browser.run("document.getElementById('answer').textContent")
    words = browser.run("document.getElementById('widths-words').textContent")
    assert before.startswith("95 % intervals: width ")
    browser.run("document.getElementById('coverage').focus()")
    for _ in range(5):
        browser.press("ArrowLeft")
    after = browser.run("document.getElementById('answer').textContent")
    assert after.startswith("50 % intervals: width ")

    def width(text):
        return float(text.split("width ")[1].split(",")[0])

    def covers(text):
        return float(text.split("covers ")[1].split(" ")[0])

    assert width(after) < width(before)
    assert covers(after) < covers(before)
    assert browser.run("document.getElementById('widths-words').textContent") != words
    label = "document.querySelector('#by-width svg').getAttribute('aria-label')"
    assert browser.run(label).startswith("Coverage of 50 % intervals")
    assert (
        browser.run("document.getElementById('coverage').getAttribute('aria-valuetext')") == after
    )
    quiet(browser, reports["exact"])


def test_the_feature_selector_changes_figure_and_sentence(browser, reports):
    browser.open(reports["exact"])
    names = browser.run("[...document.getElementById('feature').options].map(o => o.textContent)")
    assert names == ["first </script>", "second & third", "x" * 60, "row", "distance from training"]
    for j, name in enumerate(names[:4]):
        browser.run(
            f"feature.value = '{j}'; feature.dispatchEvent(new Event('change', {{bubbles: true}}))"
        )
        assert name in browser.run("document.querySelector('#by-feature svg').ariaLabel")
        words = browser.run("document.getElementById('by-feature-words').textContent")
        assert ("order of the rows" if name == "row" else name) in words
    quiet(browser, reports["exact"])


def test_an_entry_of_theta_can_be_highlighted(browser, reports):
    browser.open(reports["paper"])
    assert browser.run("document.querySelectorAll('#theta .curve:not(.faint)').length") == 1
    drawn = "document.querySelector('#theta .curve:not(.faint)').getAttribute('d')"
    paths = set()
    for j in range(browser.run("entry.options.length")):
        browser.run(f"entry.value = '{j}'; entry.dispatchEvent(new Event('change'))")
        paths.add(browser.run(drawn))
    assert len(paths) == browser.run("entry.options.length") > 1
    quiet(browser, reports["paper"])


def test_values_are_read_out_under_the_pointer_and_by_keys(browser, reports):
    browser.open(reports["exact"])
    readout = "document.querySelector('#reliability .readout').textContent"
    hint = browser.run(readout)
    box = browser.run(
        "JSON.stringify(document.querySelector('#reliability svg').getBoundingClientRect())"
    )
    box = json.loads(box)
    browser.point(box["x"] + 54 + (box["width"] - 76) / 2, box["y"] + box["height"] / 2)
    assert browser.run(readout).startswith("level 50 %, observed ")
    browser.point(2, 2)
    assert browser.run(readout) == hint
    browser.run("document.querySelector('#reliability svg').focus()")
    browser.press("ArrowRight")
    browser.press("ArrowRight")
    assert browser.run(readout).startswith("level 10 %, observed ")
    rows = browser.run("document.querySelectorAll('#reliability table tr').length")
    assert rows == 20, "all values stand in a table too"


@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark_follow_the_system_and_the_button(browser, reports, dark):
    browser.open(reports["exact"], dark=dark)
    ground = "getComputedStyle(document.body).backgroundColor"
    shades = {False: "rgb(246, 247, 249)", True: "rgb(16, 21, 27)"}
    assert browser.run(ground) == shades[dark]
    assert browser.run("theme.textContent") == ("Light" if dark else "Dark")
    browser.run("theme.click()")
    assert browser.run(ground) == shades[not dark]
    browser.run("theme.click()")
    assert browser.run(ground) == shades[dark]
    quiet(browser, reports["exact"])


def test_figures_follow_the_width_of_the_window(browser, reports):
    browser.open(reports["exact"])
    wide = browser.run("document.querySelector('#pit svg').viewBox.baseVal.width")
    browser.send(
        "Emulation.setDeviceMetricsOverride",
        width=390,
        height=844,
        deviceScaleFactor=1,
        mobile=True,
    )
    end = time.monotonic() + 10  # the event comes with the next frame
    while browser.run("document.querySelector('#pit svg').viewBox.baseVal.width") == wide:
        assert time.monotonic() < end
        time.sleep(0.02)
    assert browser.run("document.querySelector('#pit svg').viewBox.baseVal.width") < 390
    assert browser.run("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.parametrize("method", ["paper", "exact"])
def test_it_prints_on_at_most_three_pages(browser, reports, method):
    browser.open(reports[method])
    size = {"paperWidth": 8.27, "paperHeight": 11.69}
    data = browser.send("Page.printToPDF", printBackground=True, **size)["data"]
    pages = re.findall(rb"/Type\s*/Page\b", base64.b64decode(data))
    assert 1 <= len(pages) <= 3
