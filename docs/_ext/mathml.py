"""Formulas as MathML, which browsers draw by themselves: no script, no font, no network."""

import re

from docutils import nodes
from latex2mathml.converter import convert

#: Functions that are written without brackets, which need a space before what they are of.
_FUNCTION = re.compile(r"(<m[io]>(?:log|exp|sinh?|cosh?|tanh)</m[io]>)(?=<m(?:i|n|sub|frac|row)>)")


def formula(latex, **settings):
    """MathML of a formula, where the converter leaves backslashes in and spaces out."""
    drawn = convert(latex.strip(), **settings)
    drawn = drawn.replace(">\\{<", ">{<").replace(">\\}<", ">}<")
    return _FUNCTION.sub(r'\1<mspace width="0.17em"/>', drawn)


def visit_inline(self, node):
    """A formula in a line."""
    self.body.append(formula(node.astext()))
    raise nodes.SkipNode


def visit_block(self, node):
    """A formula of its own; a wide one scrolls by itself."""
    self.body.append(self.starttag(node, "div", CLASS="formula"))
    latex = node.astext()
    if r"\\" in latex and r"\begin" not in latex:
        latex = rf"\begin{{aligned}}{latex}\end{{aligned}}"
    self.body.append(formula(latex, display="block"))
    self.body.append("</div>")
    raise nodes.SkipNode


def setup(app):
    """Register both as how HTML draws math."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
