"""
A series that drifts
====================

The noise of a series doubles in the middle. What to see: the coverage of a model that stays as it
was fitted falls and stays low; with ``Online``, intervals widen and coverage comes back.
"""

import matplotlib.pyplot as plt
import numpy as np

from sharpgp import Online, SharpGPRegressor

rng = np.random.default_rng(0)
n, start = 800, 200
X = rng.uniform(-2, 2, (n, 2))
noise = np.where(np.arange(n) < 500, 0.1, 0.2)
y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + noise * rng.normal(size=n)

model = SharpGPRegressor(base="rbf", calibration="exact", random_state=0)
model.fit(X[:start], y[:start])
X, y = X[start:], y[start:]

# %%
# ``track`` predicts and observes row after row; each interval is made before its label is seen.

online = Online(model, coverage=0.9, window=100)
ends = {"as fitted": model.predict_interval(X, 0.9), "online": online.track(X, y)}

# %%
# Coverage over the last 100 steps, and the width of the intervals.

figure, axes = plt.subplots(2, 1, sharex=True, figsize=(7, 5), layout="constrained")
for label, (lower, upper) in ((label, both.T) for label, both in ends.items()):
    inside = (lower <= y) & (upper >= y)
    before, after = inside[:300].mean(), inside[300:].mean()
    print(f"{label}: {before:.1%} before the change, {after:.1%} after it")
    recent = np.convolve(inside, np.ones(100) / 100, "valid")
    axes[0].plot(np.arange(99, len(y)), recent, label=label)
    axes[1].plot(upper - lower, label=label)
axes[0].axhline(0.9, color="0.6", linewidth=0.8)
axes[0].set(ylabel="coverage, last 100 steps")
axes[0].legend()
axes[1].set(ylabel="width", xlabel="step", ylim=(0, None))
