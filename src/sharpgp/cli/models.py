"""``sharpgp check``, ``fit``, ``predict``, ``select`` and ``report``."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from sharpgp._progress import start_phase
from sharpgp.cli._app import app
from sharpgp.cli.display import shown
from sharpgp.exceptions import InvalidInputError, SavedModelError

QUIET = Annotated[bool, typer.Option("--quiet", help="No progress display.")]
DEVICE = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
ENGINE = Annotated[str, typer.Option(help="local, or ray or dask for a cluster.")]
ADDRESS = Annotated[str | None, typer.Option(help="Address of a cluster.")]
WORKERS = Annotated[
    int | None,
    typer.Option(help="Processes of the cluster; in fits also threads that read on this machine."),
]
DROP = Annotated[
    list[str] | None,
    typer.Option(help="Column not to use, such as an identifier; may be repeated."),
]
GROUPS = Annotated[
    str | None,
    typer.Option(
        help="Column that says which rows belong together, such as a patient's; not a feature."
    ),
]
ENCODING = Annotated[
    str | None, typer.Option(help="Encoding of a CSV file, such as latin-1; guessed otherwise.")
]
DECIMAL = Annotated[str | None, typer.Option(help="Decimal mark of numbers: . or ,")]
SKIP = Annotated[int | None, typer.Option(help="Lines above the header.")]
SHEET = Annotated[str | None, typer.Option(help="Sheet of an Excel file; the first by default.")]
DATES = Annotated[
    str | None, typer.Option(help="Format of dates that read in two ways, such as %d/%m/%Y.")
]
MISSING = Annotated[
    list[str] | None,
    typer.Option(
        help='Text that marks a missing value, such as "?" or -999, besides empty and NA; may '
        "be repeated. The model remembers it."
    ),
]


@app.command()
def check(
    data: Annotated[Path, typer.Argument(help="Table with a header, as for fit.")],
    target: Annotated[str, typer.Option(help="Column to predict.")],
    out: Annotated[Path | None, typer.Option(help="HTML file to write, besides the text.")] = None,
    drop: DROP = None,
    groups: GROUPS = None,
    missing: MISSING = None,
    encoding: ENCODING = None,
    decimal: DECIMAL = None,
    skip: SKIP = None,
    sheet: SHEET = None,
    dates: DATES = None,
) -> None:
    """Check a table before a fit: what each column becomes, and what looks wrong.

    It names columns that would be left out, likely mistakes, copies of rows, possible groups or
    time order, and columns that give the target away.
    """
    from sharpgp.cli.options import check_writable
    from sharpgp.cli.wording import worded
    from sharpgp.data import table_check
    from sharpgp.tabular.layout import Reading
    from sharpgp.tabular.models import features_among, read_whole

    if out is not None:
        check_writable(out)
    reading = Reading(encoding, decimal, skip, sheet, dates)
    with shown():
        table, decimal = read_whole(data, missing or (), reading)
        features_among(table.column_names, target, drop or (), groups)
        known: dict[str, Any] = {"missing": missing or (), "decimal": decimal, "dates": dates}
        table = table.drop_columns(drop or [])
        found = table_check.check(table, target, groups=groups, **known, first_row=1)
    told = [replace(one, says=worded(one.says), cure=worded(one.cure)) for one in found.findings]
    found = replace(found, findings=tuple(told))
    typer.echo(str(found))
    if out is not None:
        found.write(out, title=f"Table check: {data.name}")
        typer.echo(f"\nWrote {out}")


@app.command()
def fit(
    data: Annotated[
        list[str],
        typer.Argument(
            help="Table with a header: .csv, .csv.gz, .parquet or .xlsx; or several, a folder, a "
            "pattern such as 'data/*.parquet', or an address such as s3://bucket/data/."
        ),
    ],
    target: Annotated[str, typer.Option(help="Column to predict.")],
    out: Annotated[Path, typer.Option(help="File to write the model to.")],
    calibration: Annotated[
        str, typer.Option(help="auto, cv, loo, exact, paper or the name of a baseline.")
    ] = "auto",
    base: Annotated[
        str,
        typer.Option(
            help="auto, for a pool of models; rbf, matern12, matern32, matern52, additive or "
            "laplace, or a sum such as rbf+matern12; or a comma-separated pool of your own, which "
            "may also name extra_trees, random_forest, boosted_trees and prior."
        ),
    ] = "auto",
    approximation: Annotated[
        str,
        typer.Option(
            help="auto, exact, sparse or neighbours; sparse:500 and neighbours:100 for that many "
            "inducing inputs or neighbours."
        ),
    ] = "auto",
    effort: Annotated[
        str, typer.Option(help="low, auto or high: how many models --base auto pools.")
    ] = "auto",
    y_bounds: Annotated[
        str,
        typer.Option(
            help='Least and largest value of the target: "0," for counts, "0,1" for shares; auto '
            "for values where targets pile up, none for no bounds."
        ),
    ] = "auto",
    drop: DROP = None,
    groups: GROUPS = None,
    by: Annotated[
        str | None,
        typer.Option(help="Column whose values are classes: intervals then cover in each of them."),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            help="Column of dates or numbers that puts rows in order: what calibrates is then "
            "predicted from earlier rows."
        ),
    ] = None,
    missing: MISSING = None,
    encoding: ENCODING = None,
    decimal: DECIMAL = None,
    skip: SKIP = None,
    sheet: SHEET = None,
    dates: DATES = None,
    cal_size: Annotated[
        float, typer.Option(help="Fraction of the rows held out, where the calibration needs any.")
    ] = 0.25,
    seed: Annotated[int, typer.Option(help="Seed of the split and of randomised methods.")] = 0,
    rows: Annotated[
        int,
        typer.Option(
            help="Most rows to fit; from a larger table, this many are drawn at random. It limits "
            "time and memory of the fit."
        ),
    ] = 100_000,
    memory: Annotated[
        str | None,
        typer.Option(
            help="Memory for reading and for the drawn rows, such as 4GB, not for the fit to them. "
            "Default: 2 GiB, or what 10000 rows take."
        ),
    ] = None,
    engine: ENGINE = "local",
    address: ADDRESS = None,
    workers: WORKERS = None,
    device: DEVICE = "auto",
    quiet: QUIET = False,
) -> None:
    """Fit and calibrate a model on a table.

    All columns but the target become features: numbers, categories, booleans and dates, with
    gaps. Leave out identifiers with --drop.

    A table with more than --rows rows is sampled in one pass, and the model is fitted to the
    sample. Progress is kept in a folder next to the model: after an interruption, the same command
    continues.
    """
    from sharpgp.cli.options import (
        approximation_of,
        base_of,
        bounds_of,
        calibration_of,
        check_place,
        check_settings,
        check_writable,
    )
    from sharpgp.tabular.layout import Reading
    from sharpgp.tabular.models import training_rows

    settings: dict[str, Any] = {
        "base": base_of(base),
        "calibration": calibration_of(calibration, by, time, groups),
        "cal_size": cal_size,
        "effort": effort,
        "y_bounds": bounds_of(y_bounds),
        "device": device,
        "random_state": seed,
    }
    check_settings(
        calibration=calibration,
        effort=effort,
        approximation=approximation,
        cal_size=cal_size,
        seed=seed,
    )
    check_place(device, engine)
    check_writable(out)
    columns: dict[str, Any] = {"drop": drop or [], "groups": groups, "time": time}
    columns["missing"] = missing or []
    columns["reading"] = Reading(encoding, decimal, skip, sheet, dates)
    folder = out.with_name(f"{out.name}.work")
    how: dict[str, Any] = {"memory": memory, "rows": rows, "work": folder, "seed": seed}
    where: dict[str, Any] = {"engine": engine, "address": address, "workers": workers}
    with shown(quiet):
        try:
            found = training_rows(data, target, **columns, **how, **where)
            start_phase("loading")
            from sharpgp import SharpGPRegressor
            from sharpgp.tabular import fit_rows

            fitted = SharpGPRegressor(**settings, approximation=approximation_of(approximation))
            fit_rows(found, fitted).save(out)
        except KeyboardInterrupt:
            if folder.exists():
                typer.echo(f"{folder} keeps what was read: the same command continues", err=True)
            raise
        _remove(folder)
    table = fitted.encoding_
    gaps = f", {table.n_missing} values missing" if table.n_missing else ""
    n = fitted.calibrated_.n_train
    sample = f" of {found.seen} rows in all" if len(found.y) < found.seen else ""
    typer.echo(
        f"Fitted {target} on {len(table.columns)} columns ({len(table.features)} features"
        f"{gaps}), "
        f"{n} training rows{sample}, calibration {fitted.calibration_}; "
        f"wrote {out}"
    )


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="Model that `sharpgp fit` or `save` wrote.")],
    data: Annotated[
        str,
        typer.Argument(
            help="Table with a header: .csv, .csv.gz, .parquet or .xlsx, or its address."
        ),
    ],
    out: Annotated[Path, typer.Option(help="File to write: .csv or .parquet; - for the terminal.")],
    coverage: Annotated[
        list[float] | None,
        typer.Option(help="Coverage of an interval; may be repeated. Default: 0.95."),
    ] = None,
    quantiles: Annotated[
        str | None, typer.Option(help="Comma-separated levels, such as 0.05,0.5,0.95.")
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(
            help="Tolerance intervals: with this confidence the model covers at least that much."
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="Column to copy to the output, such as an identifier; may be repeated."),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            help="Column of the groups, by default that of the fit: known ones are answered from "
            "what is known of them; none takes every row for one of a new group."
        ),
    ] = None,
    encoding: ENCODING = None,
    decimal: DECIMAL = None,
    skip: SKIP = None,
    sheet: SHEET = None,
    dates: DATES = None,
    device: DEVICE = "auto",
    engine: ENGINE = "local",
    address: ADDRESS = None,
    workers: WORKERS = None,
    quiet: QUIET = False,
) -> None:
    """Predict every row of a table: mean, intervals and quantiles.

    Rows are read, predicted and written in batches, so that a table of any length needs little
    memory. The output has one row per row of the table, in its order; it appears when it is
    complete.
    """
    from sharpgp.cli.options import check_place, check_writable, numbers_of
    from sharpgp.tabular.files import check_output
    from sharpgp.tabular.layout import Reading
    from sharpgp.tabular.prediction import Request, predict_file

    check_place(device, engine, address, workers)
    check_output(out)
    check_writable(out)
    request = Request(coverage or [0.95], numbers_of(quantiles), keep or [], groups, confidence)
    reading = Reading(encoding, decimal, skip, sheet, dates)
    _check_columns(data, request.used, reading)
    where: dict[str, Any] = {"engine": engine, "address": address, "workers": workers}
    with shown(quiet):
        saved = _loaded(model, device)
        rows = predict_file(saved, data, out, request, reading=reading, **where)
    if str(out) != "-":
        typer.echo(f"Predicted {rows} rows: {', '.join(request.names)}; wrote {out}")


@app.command()
def select(
    model: Annotated[Path, typer.Argument(help="Model that `sharpgp fit` or `save` wrote.")],
    data: Annotated[str, typer.Argument(help="Table to choose from, as for predict.")],
    out: Annotated[Path, typer.Option(help="File to write: .csv or .parquet; - for the terminal.")],
    above: Annotated[float | None, typer.Option(help="Rows whose target is larger.")] = None,
    below: Annotated[float | None, typer.Option(help="Rows whose target is smaller.")] = None,
    fdr: Annotated[
        float, typer.Option(help="Share of the chosen rows that may be wrong, on average.")
    ] = 0.1,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="Column to copy to the output, such as an identifier; may be repeated."),
    ] = None,
    encoding: ENCODING = None,
    decimal: DECIMAL = None,
    skip: SKIP = None,
    sheet: SHEET = None,
    dates: DATES = None,
    device: DEVICE = "auto",
    quiet: QUIET = False,
) -> None:
    """Choose the rows of a table whose target passes a limit, with a bounded share of wrong ones.

    The output has the chosen rows, the surest first.
    """
    from sharpgp.cli.options import check_place, check_writable
    from sharpgp.tabular.files import check_output
    from sharpgp.tabular.layout import Reading
    from sharpgp.tabular.prediction import select_file

    check_place(device)
    check_output(out)
    check_writable(out)
    reading = Reading(encoding, decimal, skip, sheet, dates)
    limits: dict[str, Any] = {"above": above, "below": below, "fdr": fdr}
    with shown(quiet):
        saved = _loaded(model, device)
        start_phase("predicting")
        found = select_file(saved, data, out, keep=keep or [], reading=reading, **limits)
    if str(out) != "-":
        typer.echo(f"{found}\nWrote {out}")


@app.command()
def report(
    model: Annotated[Path, typer.Argument(help="Model that `sharpgp fit` or `save` wrote.")],
    out: Annotated[Path, typer.Option(help="HTML file to write.")],
    data: Annotated[
        Path | None,
        typer.Argument(
            help="Test data not used to train or calibrate, as for fit. Without any, the rows that "
            "calibrated the model are predicted by fits that have not seen them."
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Column of observed values. Default: that of the fit.")
    ] = None,
    unit: Annotated[str, typer.Option(help="Unit of the target, for the labels.")] = "",
    groups: Annotated[
        str | None,
        typer.Option(
            help="Column that says which rows belong together; by default that of the fit, if "
            "there is one, or none."
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(help="Column that puts rows in order; by default that of the fit."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(help="Column of classes: prints what intervals cover in each of them."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    encoding: ENCODING = None,
    decimal: DECIMAL = None,
    skip: SKIP = None,
    sheet: SHEET = None,
    dates: DATES = None,
    device: DEVICE = "auto",
    quiet: QUIET = False,
) -> None:
    """Write an HTML page that says whether a model is calibrated on test data.

    It begins with a verdict that names the worst finding. Figures and metrics follow, each with a
    sentence about what it shows and what to do. One file, no network.
    """
    from sharpgp._files import replacing
    from sharpgp._numbers import number, percent
    from sharpgp.cli.display import by_class
    from sharpgp.cli.options import check_place, check_writable
    from sharpgp.cli.wording import worded
    from sharpgp.tabular.layout import Reading

    check_place(device)
    check_writable(out)
    if data is None and (by or time):
        raise InvalidInputError("by and time: expected them with test data, found none")
    reading = Reading(encoding, decimal, skip, sheet, dates)
    if data is not None:
        named = [target, time, by, None if groups == "none" else groups]
        _check_columns(data, [name for name in named if name], reading)
    with shown(quiet):
        saved = _loaded(model, device)
        from sharpgp.diagnostics import diagnose
        from sharpgp.report import render_report, verdict_of

        start_phase("predicting")
        if data is None:
            found = diagnose(saved.model, target=target or saved.target, unit=unit)
        else:
            columns: dict[str, Any] = {"target": target, "groups": groups, "time": time, "by": by}
            rows = saved.read(data, **columns, reading=reading)
            found = diagnose(
                saved.model, rows.X, rows.y, target=rows.target, unit=unit, groups=rows.groups
            )
    name = model.name if data is None else data.name
    classes = None if data is None else rows.classes
    with replacing(out) as path:
        path.write_text(
            render_report(found, title=title or f"Calibration report: {name}"),
            encoding="utf-8",
        )
    said = verdict_of(found)
    typer.echo(f"{said.heading} {said.says}")
    if said.advice:
        typer.echo(worded(said.advice))
    width = float((found.upper - found.lower)[:, found.first].mean())
    error = "" if found.out_of_fold else f", calibration error {found.ece_ratio:.2f} times chance"
    typer.echo(
        f"{len(found.y):,} rows: {percent(found.coverages[found.first])} intervals cover "
        f"{percent(found.covered[:, found.first].mean())} at mean width {number(width, 3)}, CRPS "
        f"{number(found.report['crps'], 3)}{error}; wrote {out}"
    )
    if classes is not None:
        typer.echo(by_class(by or "", [classes[row - 1] for row in found.row], found))


def _remove(folder: Path) -> None:
    """Remove the saved progress of a finished fit, and its folder if that is then empty."""
    if not folder.exists():
        return
    for path in folder.glob("*pass-*"):
        path.unlink()
    if not any(folder.iterdir()):
        folder.rmdir()


def _check_columns(data: Any, names: list[str], reading: Any) -> None:
    """Raise if a table lacks a column, before the libraries load."""
    from sharpgp.tabular.sources import Source

    Source.from_data(data, reading=reading).require(names)


def _loaded(path: Path, device: str) -> Any:
    """The model in a file; a missing file is an error before the libraries load."""
    if not path.exists():
        raise SavedModelError(f"cannot load {path}: there is no such file")
    start_phase("loading")
    from sharpgp.tabular import load_model

    return load_model(path, device=device)
