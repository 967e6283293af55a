"""
Counts, and other targets with bounds
=====================================

Counts are never negative, and many are zero. ``y_bounds=(0, None)`` keeps all predictions there
(where many targets are zero, as here, it is also assumed, with a warning): intervals cover as much
as before, with less width. ``rounded()`` gives whole numbers their probabilities. What to see: no
interval goes below zero, and zero is likely where most counts are zero.
"""

import matplotlib.pyplot as plt
import numpy as np

from sharpgp import SharpGPRegressor

rng = np.random.default_rng(0)
X = rng.uniform(0, 6, (150, 1))
y = rng.poisson(3 * np.maximum(np.sin(X[:, 0]), 0.02))
x = np.linspace(0, 6, 200)[:, None]

model = SharpGPRegressor(base="rbf", calibration="exact", random_state=0, y_bounds=(0, None))
lower, upper = model.fit(X, y).predict_interval(x, coverage=0.9).T
none = model.predict_dist(x).rounded().cdf(np.zeros(200))  # whole numbers only

figure, (top, bottom) = plt.subplots(2, sharex=True, figsize=(6, 4), layout="constrained")
top.plot(X, y, "k.", markersize=3)
top.fill_between(x[:, 0], lower, upper, alpha=0.3, label="90 % intervals")
top.set_ylabel("count")
top.legend()
bottom.plot(x, none)
_ = bottom.set(xlabel="x", ylabel="probability of zero", ylim=(0, 1))
