"""
Have the data changed?
======================

Coverage holds for rows like those that calibrated the model. A rank test compares new ones with
them; in a stream, a bet against coverage gains only where it fails. What to see: on the left, old
and new scores are alike; on the right, the capital grows once the noise does, from step 100 on.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from sharpgp import Online, SharpGPRegressor, plots
from sharpgp.exchangeability import compare

rng = np.random.default_rng(0)
X = rng.uniform(-3, 3, (400, 2))
noise = np.where(np.arange(400) < 300, 0.1, 0.25)  # larger from row 300 on
y = np.sin(X[:, 0]) + noise * rng.normal(size=400)

model = SharpGPRegressor(base="rbf", calibration="exact", random_state=0).fit(X[:200], y[:200])
online, found = Online(model), compare(model, X[200:300], y[200:300])
print(found)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for rows in np.split(np.arange(200, 400), 40):
        online.observe(X[rows], y[rows])
print(caught[0].message)

figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3.2), layout="constrained")
plots.exchangeability(left, found)
_ = plots.martingale(right, online)
