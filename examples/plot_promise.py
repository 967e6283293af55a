"""
What is promised, and what follows from it
==========================================

``promise()`` says what this fitted model covers at least, and on what premises. ``decide`` turns
intervals into actions: here hours to set aside for each patient of a real table, where an hour
short costs three times an idle one. ``select`` names patients to invite, at most a fifth of them in
vain on average, and ``population_mean`` says what the mean over all new patients is. What to see:
the plan lies above the mean, and few end below their worst case.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

from sharpgp import SharpGPRegressor

X, y = load_diabetes(return_X_y=True)
model = SharpGPRegressor(base="rbf", calibration="exact", cal_size=150, random_state=0)
model.fit(X[:300], y[:300])
print(model.promise(X[300:]))


def utility(hours, needed):
    """An hour short costs three, an idle one costs one."""
    return -3 * np.maximum(needed - hours, 0) - np.maximum(hours - needed, 0)


plan = model.decide(X[300:], range(0, 400, 5), utility)
gained = utility(plan.action, y[300:])
print(f"{np.mean(gained < plan.worst_case):.0%} end below their worst case")

invited = model.select(X[300:], above=150, fdr=0.2)
print(invited)
print(f"{np.mean(y[300:][invited.rows] <= 150):.0%} of the invited are below 150")

print(model.population_mean(X[300:]))
print(f"the mean that was observed: {y[300:].mean():.4g}")

order = np.argsort(model.predict(X[300:]))
lower, upper = model.predict_interval(X[300:], 0.9)[order].T
sure = model.predict_interval(X[300:], 0.9, confidence=0.95)[order].T
figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.fill_between(range(len(order)), *sure, alpha=0.2, label="90 %, with 95 % confidence")
ax.fill_between(range(len(order)), lower, upper, alpha=0.4, label="90 %, on average")
ax.plot(y[300:][order], "k.", markersize=3)
ax.plot(plan.action[order], lw=1, label="plan")
_ = ax.set(xlabel="patient", ylabel="progression, or hours")
_ = ax.legend()
