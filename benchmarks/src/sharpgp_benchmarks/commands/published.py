"""``sharpgp bench published`` and ``sharpgp bench published-table``."""

from pathlib import Path
from typing import Annotated

import typer

from sharpgp_benchmarks.commands.options import DataHome, Device, Out, names_of
from sharpgp_benchmarks.commands.running import Engine, carry_out, on_an_engine

Published = Annotated[
    Path | None,
    typer.Option(
        help="Folder with tables of figures (JSON). Default: the environment variable "
        "SHARPGP_PUBLISHED, or those of this package."
    ),
]


@on_an_engine
def published(
    tables: Annotated[
        str | None,
        typer.Argument(help="tabular_models, uci, functions, with commas. Default: all."),
    ] = None,
    out: Out = Path("published"),
    names: Annotated[
        str | None, typer.Option("--datasets", help="Names with commas. Default: all.")
    ] = None,
    rows: Annotated[
        str | None, typer.Option(help="Numbers of rows with commas. Default: all there are.")
    ] = None,
    most: Annotated[int | None, typer.Option(help="Rows at most.")] = None,
    splits: Annotated[int | None, typer.Option(help="Splits at most. Default: all.")] = None,
    published: Published = None,
    device: Device = "cpu",
    data_home: DataHome = None,
    save_data: Annotated[
        Path | None,
        typer.Option(help="Only write the sets into this folder, for a machine without network."),
    ] = None,
    *,
    engine: Engine,
) -> None:
    """Run the default on rows with published figures, and print both; checks a control first."""
    from sharpgp._validation import check_choice
    from sharpgp.exceptions import InvalidInputError, SharpGPError
    from sharpgp_benchmarks import published_rows

    home = None if data_home is None else str(data_home)
    if save_data is not None:
        for file in published_rows.save_rows(save_data, home):
            typer.echo(file)
        return
    cases = published_rows.read_cases(published)
    for given, what, known in (
        (names_of(names), "datasets", {case.name for case in cases}),
        (names_of(tables), "tables", {case.table for case in cases}),
        (names_of(rows), "rows", {str(case.n) for case in cases}),
    ):
        for name in given or []:
            check_choice(name, what, sorted(known))
    cases = [
        case
        for case in cases
        if (names is None or case.name in (names_of(names) or []))
        and (tables is None or case.table in (names_of(tables) or []))
        and (rows is None or str(case.n) in (names_of(rows) or []))
        and (most is None or case.n <= most)
    ]
    if not cases:
        raise InvalidInputError("published: expected some sets, found none with these options")
    sound = []
    for case in cases:
        try:
            off = published_rows.check_control(case, home)
        except SharpGPError as error:
            typer.echo(f"left out: {error}", err=True)
            continue
        if case.control:
            typer.echo(
                f"control of {case.table}, {case.name}, n = {case.n}: off by {off:.0e}", err=True
            )
        sound.append(case)
    if not sound:
        raise InvalidInputError("published: expected the rows of a set, found none; see above")
    carry_out(
        published_rows.plan(sound, splits),
        out,
        engine,
        show=lambda folder: published_rows.render(published_rows.collect(folder, cases)),
        data_home=data_home,
        device=device,
    )


def published_table(
    results: Annotated[Path, typer.Argument(help="Folder that a run has written, or its CSV.")],
    form: Annotated[str, typer.Option("--format", help="text, or csv for all rows.")] = "text",
    figure: Annotated[Path | None, typer.Option(help="Draw the chart into this file.")] = None,
    published: Published = None,
) -> None:
    """Print ours beside the published figures."""
    from sharpgp._validation import check_choice
    from sharpgp_benchmarks import published_rows

    check_choice(form, "format", ("text", "csv"))
    cases = published_rows.read_cases(published)
    found = published_rows.read_results(results, cases)
    if figure is not None:
        import matplotlib as mpl

        from sharpgp_benchmarks.published_figure import published_figure

        titles = {case.table: case.title for case in cases}
        with mpl.rc_context({"svg.hashsalt": "sharpgp"}):
            published_figure(found, titles).savefig(figure, metadata={"Date": None})
        return
    if form == "csv":
        typer.echo(found.to_csv(index=False, float_format="%.6g"), nl=False)
        return
    typer.echo(published_rows.render(found))
