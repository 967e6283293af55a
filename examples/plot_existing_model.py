"""
Calibrate an existing model
===========================

A BoTorch model, trained elsewhere, gets calibrated intervals; the model itself stays as it is.
What to see: the mean is the same, and only the width of the intervals changes.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from gpytorch.mlls import ExactMarginalLogLikelihood

import sharpgp
from sharpgp.toy import make_toy

# %%
# The model, with BoTorch's own priors and transforms.

toy = make_toy(random_state=0)
X, y = torch.from_numpy(toy.X_train), torch.from_numpy(toy.y_train)
model = SingleTaskGP(X, y[:, None], input_transform=Normalize(1))
fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))

# %%
# As a posterior it answers what every recalibrator asks. ``Kuleshov18`` rescales its quantiles on
# the 200 calibration points; any other recalibrator goes in its place.

posterior = sharpgp.as_posterior(model)
calibrated = sharpgp.Kuleshov18().fit(posterior, toy.X_cal, toy.y_cal)
as_it_was = sharpgp.Vanilla().fit(posterior, None, None)
for name, predictor in {"as trained": as_it_was, "calibrated": calibrated}.items():
    report = predictor.calibration_report(toy.X_test, toy.y_test)
    print(f"{name}: 95 % coverage {report['coverage_95']:.3f}, width {report['width_95']:.2f}")

# %%
grid = np.linspace(-5.3, 5.3, 300)[:, None]
figure, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
for name, predictor in {"calibrated": calibrated, "as trained": as_it_was}.items():
    low, high = predictor.predict_interval(grid, 0.95).T
    ax.fill_between(grid[:, 0], low, high, alpha=0.35, lw=0, label=f"95 %, {name}")
ax.plot(grid[:, 0], calibrated.predict_mean(grid), lw=1.2, color="black", label="mean of both")
ax.scatter(toy.X_train, toy.y_train, s=14, marker="x", color="black")
ax.legend(frameon=False, fontsize=8)
