"""The picture of a report on the first pages, drawn again by ``python tests/pictures.py``."""

import base64
import tempfile
from pathlib import Path

from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from browser import Browser, find_browser
from sharpgp import SharpGPRegressor
from sharpgp.report import write_report

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "figures" / "report.png"
WIDTH, HEIGHT = 1100, 700


def draw(out: Path = PICTURE) -> None:
    """The first screen of the tutorial's report."""
    data = load_diabetes(scaled=False)
    X, X_test, y, y_test = train_test_split(data.data, data.target, test_size=0.4, random_state=0)
    model = SharpGPRegressor(random_state=0).fit(X, y)
    with tempfile.TemporaryDirectory() as folder, Browser(find_browser()) as browser:
        page = Path(folder) / "report.html"
        names = {"feature_names": data.feature_names, "target": "progress"}
        write_report(model, X_test, y_test, page, **names)
        browser.open(page, width=WIDTH, height=HEIGHT)
        browser.run("document.documentElement.style.overflow = 'hidden'")
        out.write_bytes(base64.b64decode(browser.send("Page.captureScreenshot")["data"]))


if __name__ == "__main__":
    draw()
