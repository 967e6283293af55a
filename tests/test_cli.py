import subprocess
import sys

import pytest
from typer.testing import CliRunner

import sharpgp
from sharpgp import __version__, datasets
from sharpgp.cli import app

runner = CliRunner()


@pytest.fixture(autouse=True)
def _no_folder(monkeypatch):
    monkeypatch.delenv(datasets.ENVIRONMENT_VARIABLE, raising=False)


def test_version():
    result = runner.invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout == f"sharpgp {__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--help"], ["datasets", "--help"]])
def test_help(arguments):
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0
    assert "Usage: sharpgp" in result.stdout


def test_datasets_are_listed_with_size_and_source():
    result = runner.invoke(app, ["datasets"])
    assert result.exit_code == 0
    rows = {
        line.split()[0]: line.split()[1:] for line in result.stdout.splitlines() if line.strip()
    }
    assert set(datasets.names()) < set(rows)
    assert rows["toy"] == ["1240", "1", "generated"]
    assert rows["diabetes"] == ["442", "10", "scikit-learn"]


def test_one_dataset_is_described(tmp_path):
    (tmp_path / "yacht.csv").write_text("length,target\n1,2\n2,4\n")
    result = runner.invoke(app, ["datasets", "yacht", "--data-home", str(tmp_path)])
    assert result.exit_code == 0
    assert result.stdout.startswith("yacht: 2 rows, 1 features (length), target 3 ± 1, from ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["datasets", "titanic"],
        ["datasets", "facebook2"],
        ["datasets", "--data-home", "/no/such/folder"],
        ["demo", "--out", __file__],
    ],
)
def test_bad_input_is_one_line_on_stderr_and_status_2(arguments):
    result = runner.invoke(app, arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("arguments", [["fly"], ["demo", "--fast"], ["datasets", "toy", "two"]])
def test_usage_errors_have_status_2(arguments):
    result = runner.invoke(app, arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_ctrl_c_is_short_and_has_status_130(monkeypatch, tmp_path):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("sharpgp.demo.run", interrupted)
    result = runner.invoke(app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == 130
    assert result.stderr == "interrupted\n"


def test_names_are_imported_when_asked_for():
    code = (
        "import sys, sharpgp; assert 'torch' not in sys.modules; "
        "assert all(getattr(sharpgp, name) is not None for name in sharpgp.__all__); "
        "assert set(sharpgp.__all__) <= set(dir(sharpgp)); "
        "assert set(sharpgp._HOMES) == set(sharpgp.__all__); print('ok')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "ok\n", done.stderr
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        sharpgp.nothing  # noqa: B018


def test_ctrl_c_while_libraries_are_loaded_is_one_line():
    """A signal as soon as the entry point runs, long before the command itself does."""
    code = (
        "import os, signal, sys, threading; from sharpgp.__main__ import main; "
        "sys.argv = ['sharpgp', 'demo']; "
        "threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start(); main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 130
    assert done.stderr.strip() == "interrupted"


@pytest.mark.parametrize("moment", ["atexit", "finalisation"])
def test_ctrl_c_while_python_closes_down_does_not_change_how_the_command_ended(moment):
    """The work is done and its files are written by then."""
    when = {
        "atexit": "import atexit; atexit.register(hit)",
        # Objects of a module that is still there at the very end, when Python has given
        # signals back to the system.
        "finalisation": "sys.last_one = type('Last', (), {'__del__': lambda self: hit()})()",
    }
    code = (
        "import os, signal, sys; from sharpgp.__main__ import main\n"
        "def hit(kill=os.kill, process=os.getpid()): kill(process, 2)\n"
        f"{when[moment]}\n"
        "sys.argv = ['sharpgp', '--version']; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"sharpgp {sharpgp.__version__}\n"


def interrupted_while_loading(folder, *lines):
    """What is printed when ctrl-C comes before ``lines`` of a library that is being loaded."""
    (folder / "large.py").write_text(
        "\n".join(["import os, signal, time", "os.kill(os.getpid(), signal.SIGINT)", *lines])
    )
    code = (
        "import sys, time; from sharpgp.__main__ import wait_for_imports; wait_for_imports()\n"
        f"sys.path.append({str(folder)!r})\n"
        "try:\n"
        "    import large\n"
        "    time.sleep(1)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    return done.stdout.split()


def test_ctrl_c_waits_for_the_library_that_is_being_loaded(tmp_path):
    """In C++ code of a library an exception would end the process: it comes right after that."""
    said = interrupted_while_loading(tmp_path, "time.sleep(0.2)", "print('loaded', flush=True)")
    assert said == ["loaded", "interrupted"]


def test_ctrl_c_that_has_waited_is_for_those_who_listen_then(tmp_path):
    said = interrupted_while_loading(
        tmp_path,
        "signal.signal(signal.SIGINT, lambda *_: print('noted', flush=True))",
        "time.sleep(0.5)",
        "print('loaded', flush=True)",
    )
    assert said == ["noted", "loaded"]
