"""Small tables: aligned text for terminals, the same as HTML for notebooks."""

from collections.abc import Sequence
from html import escape

#: Cells of a table, the head first.
Rows = Sequence[Sequence[str]]
_CELL = "padding:.15em .8em .15em 0;border:0;text-align:"


def as_text(rows: Rows, text: int = 1) -> str:
    """Columns as wide as their widest cell; those after the first ``text`` end on the right.

    Examples
    --------
    >>> print(as_text([("model", "weight"), ("rbf", "0.25"), ("extra_trees", "0.75")]))
    model        weight
    rbf            0.25
    extra_trees    0.75
    """
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [str.ljust if k < text else str.rjust for k in range(len(wide))]
    return "\n".join(
        "  ".join(side(cell, w) for side, cell, w in zip(sides, row, wide, strict=True)).rstrip()
        for row in rows
    )


def as_html(rows: Rows, text: int = 1, caption: str = "", *, head: bool = True) -> str:
    """The same table, with styles of its own: notebooks have none for text and numbers.

    Examples
    --------
    >>> found = as_html([("model", "weight"), ("rbf", "0.25")])
    >>> found.count("<tr>"), found.count("text-align:right")
    (2, 2)
    """
    body = ""
    for k, row in enumerate(rows):
        name = "th" if head and k == 0 else "td"
        cells = (
            f"<{name} style='{_CELL}{'left' if j < text else 'right'}'>{escape(cell)}</{name}>"
            for j, cell in enumerate(row)
        )
        body += f"<tr>{''.join(cells)}</tr>"
    title = f"<caption style='text-align:left'>{escape(caption)}</caption>" if caption else ""
    return f"<table style='border-collapse:collapse;margin:.5em 0'>{title}{body}</table>"
