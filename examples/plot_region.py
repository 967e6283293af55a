"""
Several outputs at once
=======================

Two outputs with correlated noise: intervals for each, and a box that holds both. What to see:
80 % intervals for each hold both outputs in fewer than 80 % of the rows, the box in about 80 %.
"""

import matplotlib.pyplot as plt
import numpy as np

from sharpgp import SharpGPRegressor

rng = np.random.default_rng(0)
X = rng.uniform(-3, 3, (900, 2))
noise = rng.multivariate_normal([0, 0], [[1.0, 0.9], [0.9, 1.0]], 900)
Y = np.c_[np.sin(X[:, 0]), X[:, 1]] + noise * [0.2, 0.5]
model = SharpGPRegressor(base="rbf", calibration="exact", cal_size=0.5, random_state=0)
model.fit(X[:400], Y[:400])

# %%
# Observations in units of half the box: those in the square are in the box.

for name, ends in {
    "80 % each": model.predict_interval(X[400:], 0.8),
    "80 % at once": model.predict_region(X[400:], 0.8),
}.items():
    inside = ((ends[:, 0] <= Y[400:]) & (Y[400:] <= ends[:, 1])).all(1)
    print(f"{name}: both are inside in {inside.mean():.0%} of the rows")
centre, half = ends.mean(1), np.diff(ends, axis=1)[:, 0] / 2
figure, axes = plt.subplots(figsize=(4, 4), layout="constrained")
axes.scatter(*((Y[400:] - centre) / half).T, s=8)
axes.add_patch(plt.Rectangle((-1, -1), 2, 2, fill=False))
_ = axes.set(xlabel="first output", ylabel="second output")
