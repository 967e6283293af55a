"""Messages of the library in the words of the command line: options instead of arguments."""

import re

_NAMED_ALIKE = (
    *("approximation", "base", "calibration", "cal_size", "device", "effort", "groups", "y_bounds"),
    *("encoding", "decimal", "skip", "sheet"),
)
_OPTIONS = {name: f"--{name.replace('_', '-')}" for name in _NAMED_ALIKE}
_OPTIONS["random_state"] = "--seed"
_ANY = "|".join(_OPTIONS)

#: Phrases that are not translated word by word, in this order.
_PHRASES = (
    (
        r"sort the rows by ('.*?'|\".*?\") and use calibration=CrossValidated\(folds='ordered'\)",
        r"use --time \1",
    ),
    (
        r"use calibration=CrossValidated\(folds='ordered'\)",
        "use --time with a column that numbers the rows",
    ),
    (r"Exact\(by=\"(.*?)\"\) keeps", r"fit --by '\1' keeps"),
    (r"calibrate on newer data \(update\), or follow it with Online", "fit again with newer rows"),
    (r"; for their words, put a vectoriser before the model", ""),
    (r"Fit with groups,", "Fit with --groups,"),
    (r'calibration="(\w+)" or "(\w+)"', r"--calibration \1 or \2"),
    (r'calibration="(\w+)"', r"--calibration \1"),
    (r"groups=np\.arange\(len\(y\)\)", "--groups with a column that numbers the rows"),
    (r" or give X_cal and y_cal", ""),
    (r"take it out with missing=\[('.*?'|\".*?\"|[-\d.]+)\]", r"call it --missing \1"),
    (
        r", with \.str\.replace\('([.,])', ''\), or (\S+), with (?:.*'\.'\)|.*float\))",
        lambda found: (
            f" (--decimal {'.' if found[1] == ',' else ','}), or {found[2]} (--decimal {found[1]})"
        ),
    ),
    (
        r", with pandas\.to_datetime\(\.\.\., format='(\S+)'\), or (\S+), with format='(\S+)'",
        r" (--dates '\1'), or \2 (--dates '\3')",
    ),
    (r", or make the column categorical", ", or leave the column out with --drop"),
    (r"; drop them if\b", "; leave them out with --drop if"),
    (r"in every feature(,| and) in y\b", r"in every feature\1 in the target"),
    (r"\bSparse\(m=(\d+)\)", r"'sparse:\1'"),
    (r"\b(Sparse|Neighbours)\(m=\.\.\.\)", lambda found: f"'{found[1].lower()}:M'"),
    (r"\by_bounds=None\b", "y_bounds='none'"),
    (r"\by_bounds=\(([^)]*)\)", lambda found: f"y_bounds='\"{_pair(found[1])}\"'"),
    (r"^(.*: )?X: ", lambda found: found[1] or ""),
    (r"^(.*: )?y: ", lambda found: f"{found[1] or ''}target: "),
)


def worded(text: str) -> str:
    """A message with options of ``sharpgp fit`` in place of Python's arguments.

    Examples
    --------
    >>> worded("hold out more groups with cal_size, or use calibration='cv' or 'exact'")
    'hold out more groups with --cal-size, or use --calibration cv or exact'
    >>> worded("y: 30 of 60 targets are 0; as with y_bounds=(0, None); if less, use y_bounds=None")
    'target: 30 of 60 targets are 0; as with --y-bounds "0,"; if less, use --y-bounds none'
    """
    for pattern, instead in _PHRASES:
        text = re.sub(pattern, instead, text)
    text = re.sub(rf"\b({_ANY})=('[^']*'(?: or '[^']*')*|[\d.]*\d)", _option, text)
    text = re.sub(rf"^({_ANY})(?=: )", lambda found: _OPTIONS[found[1]], text)
    return re.sub(r"(?<![\w-])(cal_size|y_bounds)\b", lambda found: _OPTIONS[found[1]], text)


def _option(found: re.Match[str]) -> str:
    return f"{_OPTIONS[found[1]]} {found[2].replace(chr(39), '')}"


def _pair(ends: str) -> str:
    return ",".join("" if end == "None" else end for end in ends.split(", "))
