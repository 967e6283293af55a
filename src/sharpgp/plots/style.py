"""Colours, and axes without ornament."""

from matplotlib.axes import Axes

#: Ink and fills: one hue for the model, neutral greys for the data.
INK, BLUE, SHADE, GREY, PALE = "#1f2933", "#1f5fa8", "#c9dcf1", "#6b7785", "#e9edf1"
#: Colour of anything outside the band of chance.
ORANGE = "#b3400e"
#: Line colours for several methods in one diagram, one per method.
CYCLE = (
    *("#1f5fa8", "#d1601f", "#2a8a5c", "#8a4fa8", "#b58900", "#4a5560"),
    *("#c2386b", "#2b9db0", "#7a4a21", "#9bb53c", "#e58fb5", "#5b6fd6"),
    "#0b6e4f",
)
DASHED = (0, (4, 3))


def plain(ax: Axes, xlabel: str = "", ylabel: str = "", title: str = "") -> Axes:
    """Two spines, small grey ticks, and labels in ink."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(GREY)
    ax.tick_params(colors=GREY, labelsize=8, width=0.6)
    if xlabel:
        ax.set_xlabel(xlabel, fontsize=9, color=INK)
    if ylabel:
        ax.set_ylabel(ylabel, fontsize=9, color=INK)
    if title:
        ax.set_title(title, loc="left", fontsize=10, fontweight="bold", color=INK)
    return ax
