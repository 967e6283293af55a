"""Examples in the order in which someone new would want them."""

ORDER = (
    "plot_toy", "plot_calibration_sheet", "plot_frames", "plot_existing_model", "plot_search",
    "plot_by_class", "plot_counts", "plot_known_noise", "plot_region", "plot_drift", "plot_change",
    "plot_optimiser",
    "plot_laboratory",
)  # fmt: skip


class ByUse:
    """Key to sort files by; those that are not in the list come last."""

    def __init__(self, src_dir):
        pass

    def __call__(self, filename):
        name = filename.removesuffix(".py")
        return (ORDER.index(name) if name in ORDER else len(ORDER), name)
