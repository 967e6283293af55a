"""
Intervals of one feature
========================

A Gaussian process on forty points, and what calibration does to its 99 % intervals. What to see:
of the intervals that cover 99 %, those of ``cv`` are the narrowest, in the gaps above all.
"""

import matplotlib.pyplot as plt

from sharpgp import SharpGPRegressor
from sharpgp.plots import plot_intervals_1d
from sharpgp.toy import make_toy

# %%
# The data crowd in three places and are rare between them: 40 points to train on, 200 to calibrate
# with and 1,000 to look at afterwards.

toy = make_toy(random_state=0)

# %%
# ``vanilla`` is the GP as trained. ``kuleshov18`` rescales it, ``exact`` may also learn the shape
# of its spread from the training points, and ``cv`` uses all points for both.

figure, axes = plt.subplots(2, 2, figsize=(9, 5.5), sharex=True, sharey=True)
figure.set_layout_engine("constrained")
models = {}
for ax, method in zip(axes.flat, ["vanilla", "kuleshov18", "exact", "cv"], strict=True):
    model = SharpGPRegressor(base="rbf", calibration=method, random_state=0)
    models[method] = model.fit(toy.X_train, toy.y_train, toy.X_cal, toy.y_cal)
    plot_intervals_1d(ax, model, toy, coverage=0.99, title=method)

# %%
# Coverage and mean width on the test points are above each panel. A width means nothing without
# the coverage beside it; the interval score weighs the two.

for method, model in models.items():
    report = model.calibration_report(toy.X_test, toy.y_test)
    print(
        f"{method:10}  95 % coverage {report['coverage_95']:.3f}, "
        f"width {report['width_95']:.2f}, interval score {report['interval_score_95']:.2f}"
    )
