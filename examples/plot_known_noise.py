"""
Noise that is known
===================

Two instruments, one seven times as precise as the other: intervals for the readings of each. What
to see: both bands have the same centre, which the precise readings (blue) fix.
"""

import matplotlib.pyplot as plt
import numpy as np

from sharpgp import SharpGPRegressor

rng = np.random.default_rng(0)
x = rng.uniform(-3, 3, (120, 1))
variance = np.where(rng.random(120) < 0.5, 0.005, 0.25)
y = np.sin(x[:, 0]) + np.sqrt(variance) * rng.normal(size=120)
model = SharpGPRegressor(base="rbf", calibration="exact", random_state=0)
model.fit(x, y, noise=variance)

grid = np.linspace(-3, 3, 200)[:, None]
figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
for name, noise in {"poor instrument": 0.25, "good instrument": 0.005}.items():
    lower, upper = model.predict_interval(grid, 0.9, noise=noise).T
    axes.fill_between(grid[:, 0], lower, upper, alpha=0.4, label=f"90 %, {name}")
axes.scatter(x[:, 0], y, s=8, c=np.log(variance), cmap="coolwarm")
axes.set(xlabel="x", ylabel="y")
_ = axes.legend()
