"""Counts as words."""


def count(n: int, of: int) -> str:
    """``None``, ``All`` or the number."""
    return "None" if n == 0 else "All" if n == of else f"{n:,}"


def sentence(text: str) -> str:
    """With a capital letter and a full stop."""
    return f"{text[0].upper()}{text[1:]}."
