"""Models learned from rows of data: scores and values of ``y`` at ``x``."""
