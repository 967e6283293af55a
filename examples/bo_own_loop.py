"""
A calibrated bound in your own BoTorch loop
===========================================

Minimise a noisy function with ``CalibratedUpperConfidenceBound`` in place of BoTorch's
``UpperConfidenceBound``; nothing else of the loop changes. Runs in seconds.
"""

# sphinx_gallery_thumbnail_path = "figures/bo_regret.png"

import torch
from botorch.optim import optimize_acqf
from botorch.test_functions import Branin

from sharpgp import SharpGPRegressor
from sharpgp.bo import CalibratedUpperConfidenceBound

# %%
# The function, with noise of standard deviation 1, and a first design of 40 random points.

torch.manual_seed(0)
branin = Branin(noise_std=1.0).double()
bounds = branin.bounds
X = bounds[0] + torch.rand(40, 2, dtype=torch.float64) * (bounds[1] - bounds[0])
y = branin(X)

# %%
# Train and calibrate once. ``cv`` needs no holdout: all 40 points train and calibrate, which backs
# bounds of levels up to 40/41. One smooth GP, as a search follows gradients.

model = SharpGPRegressor(base="matern52", calibration="cv", random_state=0).fit(X, y)
calibrated = model.calibrated_

# %%
# The loop: search the calibrated 5 % quantile for its minimum, evaluate, condition. Conditioning
# keeps hyperparameters and calibration; every eighth point, both start over on all data.

for step in range(1, 17):
    acquisition = CalibratedUpperConfidenceBound(calibrated, delta=0.95, maximize=False)
    x, _ = optimize_acqf(acquisition, bounds, q=1, num_restarts=4, raw_samples=64)
    value = branin(x)
    X, y = torch.cat([X, x]), torch.cat([y, value])
    if step % 8:
        calibrated = calibrated.condition_on_observations(x, value)
    else:
        model.fit(X, y)
        calibrated = model.calibrated_
    true = float(branin.evaluate_true(x))
    print(f"{step:2d}  x = ({float(x[0, 0]):6.2f}, {float(x[0, 1]):5.2f})  f(x) = {true:.3f}")

# %%
# Without noise, the minimum is 0.398.

best = float(branin.evaluate_true(X[40:]).min())
print(f"best point asked for: {best:.3f}, minimum: {branin.optimal_value:.3f}")

# %%
# A batch of three: pending points enter as observations of their own mean, which shrinks the
# bound around them.

batch, _ = optimize_acqf(
    CalibratedUpperConfidenceBound(calibrated, delta=0.95, maximize=False),
    bounds,
    q=3,
    sequential=True,
    num_restarts=4,
    raw_samples=64,
)
print("a batch:", [[round(v, 2) for v in row] for row in batch.tolist()])
