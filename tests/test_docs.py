"""The site: it builds without a warning, its examples run, its links lead somewhere."""

import importlib.util
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import torch

import transcripts
from helpers import wavy
from sharpgp import SharpGPRegressor
from sharpgp.policy import MAX_ADDITIVE_FEATURES, MOST_LEFT_OUT, POOLS

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("plot_*.py"))
GUIDES = sorted(
    path for path in (ROOT / "docs" / "guides").glob("*.md") if "```python" in path.read_text()
)


class Page(HTMLParser):
    """Links and anchors of an HTML file."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors |= {found[key] for key in ("id", "name") if key in found}
        self.links += [found[key] for key in ("href", "src") if found.get(key)]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    for package in ("sphinx", "myst_parser", "sphinx_gallery", "furo", "latex2mathml"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"no {package}; the extra docs installs it")
    folder = tmp_path_factory.mktemp("site")
    ignored = shutil.ignore_patterns("_build", "examples", "__pycache__")
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=ignored)
    shutil.copytree(ROOT / "examples", folder / "examples")
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, folder)
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "docs", "html"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "html"


@pytest.mark.slow
def test_every_link_of_the_site_leads_somewhere(site):
    pages = {path: Page(path) for path in site.rglob("*.html")}
    assert len(pages) > 20
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = pages[target].anchors | {""} if target in pages else {parts.fragment}
            if not target.is_file() or unquote(parts.fragment) not in anchors:
                broken.append(f"{path.name}: {link}")
    assert not broken


@pytest.mark.slow
def test_no_page_needs_the_network(site):
    """Neither scripts nor styles, fonts or pictures come from elsewhere."""
    wanted = re.compile(
        r"<(?:script|link|img|iframe)[^>]*(?:src|href)=.(?:https?:)?//[^\"']*", re.I
    )
    found = {
        f"{path.name}: {match}"
        for path in site.rglob("*.html")
        for match in wanted.findall(path.read_text(encoding="utf-8"))
        if 'rel="canonical"' not in match
    }
    assert not found


@pytest.mark.slow
def test_formulas_are_drawn_by_the_browser(site):
    method = (site / "method.html").read_text(encoding="utf-8")
    assert method.count("<math") > 100
    assert "\\frac" not in re.sub(r"<annotation.*?</annotation>", "", method)


@pytest.mark.slow
def test_fitted_attributes_keep_their_underscores(site):
    page = (site / "api" / "estimator.html").read_text(encoding="utf-8")
    for name in ("posterior_", "calibrated_", "base_", "training_"):
        assert f"<strong>{name}</strong>" in page, name


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_ran_and_is_on_the_site(site, example):
    text = (site / "examples" / f"{example.stem}.html").read_text()
    title = example.read_text().splitlines()[1]
    assert f"{title}<a" in text
    assert "sphx-glr-script-out" in text or "sphx-glr-single-img" in text
    assert "Traceback" not in text


@pytest.mark.slow
def test_every_public_name_is_on_the_site(site):
    import sharpgp

    listed = (site / "genindex.html").read_text()
    missing = [name for name in sharpgp.__all__ if not re.search(rf">{name}\b", listed)]
    assert not missing


def test_every_public_module_has_its_place_in_the_api():
    # Reached through the package itself or through an argument; the last is no API.
    elsewhere = {"estimator", "distribution", "cli"}
    modules = {
        path.stem for path in (ROOT / "src" / "sharpgp").iterdir() if path.stem[0] not in "_."
    }
    text = "".join(path.read_text() for path in (ROOT / "docs" / "api").glob("*.md"))
    missing = [m for m in modules - elsewhere - {"py"} if f"sharpgp.{m}" not in text]
    assert not missing


def drawn_modules():
    """Modules in the trees of the architecture page, by indentation."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    found = set()
    for tree in re.findall(r"```\n((?:benchmarks/)?src/.*?)```", page, re.S):
        root, *lines = tree.splitlines()
        above = [(-1, ROOT / root)]
        for line in lines:
            entry = re.match(r"( *)((?:[\w.]+(?:\.py|/)(?:, )?)+)(?:\s|$)", line)
            if entry is None:
                continue
            while above[-1][0] >= len(entry[1]):
                above.pop()
            for name in entry[2].split(", "):
                path = above[-1][1] / name
                found.add(path)
                if name.endswith("/"):
                    above.append((len(entry[1]), path))
    return found


def test_the_architecture_page_draws_the_tree_as_it_is():
    drawn = drawn_modules()
    assert not [str(path.relative_to(ROOT)) for path in drawn if not path.exists()]
    modules = {
        path
        for source in (ROOT / "src" / "sharpgp", ROOT / "benchmarks" / "src" / "sharpgp_benchmarks")
        for path in source.rglob("*.py")
        if path.name != "__init__.py"
        and not {"evidence", "peers"} & set(path.relative_to(source).parts)
    }
    assert not [str(path.relative_to(ROOT)) for path in modules - drawn]


def test_floors_in_the_tree_are_those_that_lint_checks():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (floors,) = (
        one for one in project["tool"]["importlinter"]["contracts"] if one["id"] == "floors"
    )
    layers = [re.findall(r"\w+", layer) for layer in floors["layers"]]
    checked = {name: max(0, 9 - k) for k, names in enumerate(layers) for name in names}
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawn = re.findall(r"(?m)^  (\w+)(?:\.py|/) +(\d) ", page)
    assert {name: int(floor) for name, floor in drawn} == checked


@pytest.mark.parametrize("name", ["architecture", "numerics", "method"])
def test_paths_in_tables_exist(name):
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+(?:\.py|\.js|/))`", page)
    places = [ROOT / "src" / "sharpgp", ROOT / "benchmarks" / "src" / "sharpgp_benchmarks", ROOT]
    assert len(named) > 10
    assert not [name for name in named if not any((place / name).exists() for place in places)]


def test_the_table_of_pools_is_that_of_the_policy():
    page = (ROOT / "docs" / "guides" / "any_base.md").read_text(encoding="utf-8")
    pools = page.partition("| `effort=` | Pool |")[2]
    rows = re.findall(r"^\| `\"(\w+)\"` \| (.*) \|$", pools, re.M)
    assert {effort: tuple(re.findall(r"`([\w+]+)`", names)) for effort, names in rows} == POOLS
    assert (
        f"up to {MAX_ADDITIVE_FEATURES} columns, `boosted_trees` beyond\n{MOST_LEFT_OUT:,} rows"
        in page
    )


def test_modules_and_members_that_pages_and_docstrings_name_exist():
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("[RC]*.md")]
    text = "\n".join(path.read_text() for path in [*pages, *(ROOT / "src").rglob("*.py")])
    names = set(re.findall(r"\bsharpgp(?:\.[a-z_][a-z_0-9]*)+(?:\.[A-Z]\w*(?:\.\w+)?)?", text))
    names -= {
        "sharpgp.bases",
        "sharpgp.commands",
        "sharpgp.methods",
        "sharpgp.no_such_group",
    }  # of entry points
    assert len(names) > 200
    missing = []
    for name in names:
        try:
            pkgutil.resolve_name(name)
        except (ImportError, AttributeError):
            missing.append(name)
    assert not missing


def test_ten_changes_name_files_and_what_is_in_them():
    page = (ROOT / "docs" / "changing.md").read_text(encoding="utf-8")
    rows = [line.strip("|").split(" | ") for line in page.splitlines() if line.startswith("| a")]
    assert len(rows) == 12
    for _, opened, task, then in rows:
        files = re.findall(r"`([\w/]+\.py)`", opened)
        assert 1 <= len(files) <= 2
        more = re.findall(r"`((?:tests/)?[\w/]+\.py)`", then)
        paths = [
            ROOT / ("" if one.startswith("tests/") else "src/sharpgp") / one for one in files + more
        ]
        text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
        names = re.findall(r"`(\w+)`", task + then)
        assert not [name for name in names if not re.search(rf"\b{name}\b", text)]


@pytest.mark.slow
def test_the_tutorial_shows_what_its_blocks_print(tmp_path):
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    again = transcripts.replay(page, tmp_path)
    assert not transcripts.differences(page, again)


def test_a_page_that_shows_something_else_is_noticed(tmp_path):
    page = "```python\nprint('width', 1.00)\n```\n\n```text\nwidth {}\n```\n"
    again = transcripts.replay(page.format("1.0"), tmp_path)
    assert again == page.format("1.0")
    assert not transcripts.differences(page.format("1.01"), again)
    assert transcripts.differences(page.format("1.2"), again)
    assert transcripts.differences(page.format("1.0 wide"), again)
    assert (
        transcripts.replay("```console\n$ echo 2\n1\n```\n", tmp_path)
        == "```console\n$ echo 2\n2\n```\n"
    )


@pytest.fixture(scope="module")
def readers_names():
    """What a guide's blocks take for granted: data, a fitted model, something to optimise."""
    X, y = wavy(40)
    names = {
        "X": X,
        "y": y,
        "X_target": X[:9],
        "result": [0.3],
        "SharpGPRegressor": SharpGPRegressor,
    }
    for seed, suffix in enumerate(("_new", "_newer", "_test", "_cal"), start=1):
        names["X" + suffix], names["y" + suffix] = wavy(20, seed=seed)
    names["stream"] = list(zip(X[:3, None], y[:3, None], strict=True))
    names["bounds"] = torch.tensor([[-2.0, -2.0], [2.0, 2.0]], dtype=torch.float64)
    names["objective"] = lambda x: x.sum(-1)
    names["experiment"] = lambda temperature, hours, **others: temperature / hours
    names["model"] = SharpGPRegressor(calibration="kuleshov18").fit(X, y)
    names["strength"] = names["cost"] = names["model"]
    return names


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
def test_the_blocks_of_a_guide_run_in_order(guide, readers_names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = dict(readers_names)
    for block in re.findall(r"```python\n(.*?)```", guide.read_text(encoding="utf-8"), re.S):
        # The same with fewer steps, cheaper calibration and no processes.
        for long, short in (
            ("in range(50)", "in range(2)"),
            ("in range(40)", "in range(6)"),
            ('"cv"', '"exact"'),
            ("n_jobs=-1", "n_jobs=1"),
        ):
            block = block.replace(long, short)
        if "import optuna" in block and importlib.util.find_spec("optuna") is None:
            continue
        exec(compile(block, guide.name, "exec"), scope)
