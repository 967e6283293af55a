"""
Several outputs at once
=======================

Two outputs with correlated noise: intervals for each, and a box that holds both.
"""

import matplotlib.pyplot as plt
import numpy as np

from sharpgp import SharpGPRegressor

rng = np.random.default_rng(0)
X = rng.uniform(-3, 3, (400, 2))
noise = rng.multivariate_normal([0, 0], [[1.0, 0.9], [0.9, 1.0]], 400)
Y = np.c_[np.sin(X[:, 0]), X[:, 1]] + noise * [0.2, 0.5]
model = SharpGPRegressor(base="rbf", calibration="exact", random_state=0).fit(X[:200], Y[:200])

# %%
# What was observed, in units of half of the box: a point in the square is held by it.

for name, ends in {
    "80 % each": model.predict_interval(X[200:], 0.8),
    "80 % at once": model.predict_region(X[200:], 0.8),
}.items():
    inside = ((ends[:, 0] <= Y[200:]) & (Y[200:] <= ends[:, 1])).all(1)
    print(f"{name}: both are held in {inside.mean():.0%} of the rows")
centre, half = ends.mean(1), np.diff(ends, axis=1)[:, 0] / 2
figure, axes = plt.subplots(figsize=(4, 4), layout="constrained")
axes.scatter(*((Y[200:] - centre) / half).T, s=8)
axes.add_patch(plt.Rectangle((-1, -1), 2, 2, fill=False))
