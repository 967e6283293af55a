"""The two pictures of the first page: a GP as it was trained, and the default."""

import numpy as np

from sharpgp import SharpGPRegressor
from sharpgp.metrics import interval_coverage, interval_width
from sharpgp_benchmarks.evidence.run import out_folder


def data(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A wave whose noise grows along x."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 10, n)
    return x[:, None], np.sin(x) + 0.15 * x + (0.05 + 0.08 * x) * rng.normal(size=n)


def main(n: int = 150, seed: int = 1) -> None:
    """Print what both pictures say, and draw them into the folder ``--out``, if one is named."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from sharpgp.plots.style import BLUE, INK, ORANGE, SHADE, plain

    (X, y), (X_new, y_new) = data(n, seed), data(2000, seed + 1)
    grid = np.linspace(0, 10, 300)[:, None]
    models = {
        "trained": SharpGPRegressor(base="rbf", calibration="vanilla", random_state=0),
        "default": SharpGPRegressor(random_state=0),
    }
    for name, model in models.items():
        model.fit(X, y)
        figure = Figure(figsize=(4.6, 3.0), layout="constrained")
        ax = figure.subplots()
        lower, upper = model.predict_interval(grid, 0.9).T
        ax.fill_between(grid[:, 0], lower, upper, color=SHADE, lw=0)
        ax.plot(grid[:, 0], model.predict(grid), color=BLUE, lw=1.6)
        ends = model.predict_interval(X, 0.9).T
        missed = (y < ends[0]) | (y > ends[1])
        ax.scatter(X[:, 0], y, s=10, c=[ORANGE if m else INK for m in missed], lw=0)
        left, right = X_new[:, 0] < 5, X_new[:, 0] >= 5
        ends = model.predict_interval(X_new, 0.9).T
        shares = [100 * interval_coverage(y_new[part], *ends[:, part]) for part in (left, right)]
        ax.text(2.5, 4.4, f"covers {shares[0]:.0f} %", ha="center", fontsize=11, color=INK)
        ax.text(7.5, 4.4, f"covers {shares[1]:.0f} %", ha="center", fontsize=11, color=INK)
        ax.axvline(5, color=INK, lw=0.6, ls=(0, (2, 4)))
        ax.set(xlim=(0, 10), ylim=(-2, 5))
        plain(ax)
        if (out := out_folder()) is not None:
            with mpl.rc_context({"svg.hashsalt": "sharpgp"}):
                figure.savefig(out / f"landing_{name}.svg", metadata={"Date": None})
        print(
            f"{name}: 90 % intervals cover {shares[0]:.1f} % of new points on the left and "
            f"{shares[1]:.1f} % on the right, mean width {interval_width(*ends):.2f}"
        )
