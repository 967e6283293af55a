"""``sharpgp bench coco``."""

from pathlib import Path
from typing import Annotated

import typer


def coco(
    out: Annotated[Path, typer.Option(help="Folder of COCO's data; what is there is not run.")],
    methods: Annotated[
        str, typer.Option(help="Names with commas.")
    ] = "logei,botorch_logei,turbo,cma,random",
    functions: Annotated[str, typer.Option(help="Such as 1-5,20.")] = "1-24",
    dimensions: Annotated[str, typer.Option(help="Of 2, 3, 5, 10, 20.")] = "2,3,5,10,20",
    instances: Annotated[int, typer.Option(help="Instances of each function.")] = 15,
    budget: Annotated[int, typer.Option(help="Evaluations for each input.")] = 100,
    processes: Annotated[int, typer.Option(help="Functions that are run side by side.")] = 1,
) -> None:
    """Run optimisers on COCO's bbob suite, and show the share of targets that they reach."""
    from sharpgp_benchmarks.optimisation import coco as study

    study.run(
        out,
        methods.split(","),
        study.numbers(functions),
        study.numbers(dimensions),
        instances=instances,
        budget=budget,
        processes=processes,
    )
    found = study.shares(out, budget)
    found.round(4).to_csv(out / "coco.csv", index=False)
    typer.echo(study.table(found))
