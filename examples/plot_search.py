"""
Choosing by score
=================

A grid search over kernels and calibrations, with this library's scorers. What to see: the best
interval score, lowest in the figure, is that of a calibration that learns where the noise is
large.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import GridSearchCV

from sharpgp import SharpGPRegressor
from sharpgp.scorers import named

# %%
# Noise that grows along one feature, which a stationary kernel cannot know.

rng = np.random.default_rng(0)
X = rng.uniform(0, 1, (240, 2))
y = np.sin(6 * X[:, 0]) + 0.6 * X[:, 1] ** 2 * rng.normal(size=240)

# %%
# Scorers follow scikit-learn's rule that larger is better, so losses come with a minus sign.
# Coverage is there to be looked at, not to be maximised: the search refits by the CRPS.

search = GridSearchCV(
    SharpGPRegressor(random_state=0),
    {"base": ["rbf", "matern32"], "calibration": ["vanilla", "kuleshov18", "exact"]},
    scoring=named("crps", "interval_score", "coverage"),
    refit="crps",
    cv=3,
)
search.fit(X, y)

# %%
shown = ["param_base", "param_calibration"]
shown += ["mean_test_crps", "mean_test_interval_score", "mean_test_coverage"]
table = pd.DataFrame(search.cv_results_)[shown]
table.columns = ["base", "calibration", "crps", "score", "coverage"]
print(table.sort_values("crps", ascending=False).round(3).to_string(index=False))

# %%
figure, ax = plt.subplots(figsize=(5.5, 3.2), layout="constrained")
for height, (kernel, part) in zip((6, -12), table.groupby("base"), strict=True):
    ax.scatter(part["coverage"], -part["score"], label=kernel)
    for row in part.itertuples():
        place, shift = (row.coverage, -row.score), (4, height)
        ax.annotate(row.calibration, place, shift, textcoords="offset points", fontsize=8)
ax.margins(x=0.2, y=0.15)
ax.axvline(0.95, color="grey", lw=0.8, ls="--")
ax.set(xlabel="coverage of 95 % intervals", ylabel="interval score, smaller is better")
ax.legend(frameon=False)
