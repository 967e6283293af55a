"""
A table as it is
================

Categories, dates and gaps go in as they are; a new category is predicted, too, with a warning.
What to see: intervals are wider for a shop that is new, and where the price is missing.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from sharpgp import SharpGPRegressor

rng = np.random.default_rng(0)
n = 200
shops = pd.DataFrame({"price": rng.uniform(1, 5, n)})
shops["shop"] = rng.choice(["old", "new", "far"], n)
level = shops["shop"].map({"old": 2.0, "new": 3.0, "far": 0.0})
sales = level + np.sin(shops["price"]) + rng.normal(0, 0.2, n)
shops.loc[::9, "price"] = np.nan

# %%
# One lengthscale per column, and one for its commonest category, however many it has.

model = SharpGPRegressor(base="rbf", calibration="exact", random_state=0).fit(shops, sales)
print(model.encoding_)

# %%
# 90 % intervals at one price: known shops, one that is new, and a price that is missing.

asked = pd.DataFrame({"price": [2, 2, 2, 2, np.nan]})
asked["shop"] = ["old", "new", "far", "tiny", "old"]
lower, upper = model.predict_interval(asked, 0.9).T
labels = ["old", "new", "far", "a new shop", "old, price missing"]
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
axes.errorbar(labels, (lower + upper) / 2, (upper - lower) / 2, fmt="o", capsize=4)
_ = axes.set_ylabel("sales, 90 % intervals")
