"""
Coverage within each class
==========================

80 % on average may be all of one class and a third of another, here because 30 rows are too few to
learn that noise differs between classes. ``Exact(by=...)`` calibrates each class. What to see: the
blue bars miss the line, too high or too low, and the orange ones come close to it.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from sharpgp import Exact, SharpGPRegressor
from sharpgp.metrics import coverage_by

rng = np.random.default_rng(0)
kinds = rng.choice(["calm", "usual", "wild"], 900, p=[0.2, 0.6, 0.2])
table = pd.DataFrame({"x": rng.uniform(-3, 3, 900), "kind": kinds})
size = table["kind"].map({"calm": 0.05, "usual": 0.2, "wild": 0.8})
y = np.sin(table["x"]) + size * rng.standard_t(4, 900)
train, cal, new = slice(30), slice(30, 400), slice(400, 900)

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
methods = {"all together": "exact", "each class": Exact(by="kind")}
for place, (name, method) in enumerate(methods.items()):
    model = SharpGPRegressor(base="rbf", calibration=method, random_state=0)
    model.fit(table[train], y[train], table[cal], y[cal])
    found = coverage_by(kinds[new].tolist(), y[new], *model.predict_interval(table[new], 0.8).T)
    print(name, {kind: f"{covered:.0%}" for kind, (_, covered) in found.items()})
    where = np.arange(len(found)) + 0.3 * place
    axes.bar(where, [covered for _, covered in found.values()], 0.3, label=name)
axes.axhline(0.8, color="black", linewidth=1)
axes.set_xticks(np.arange(len(found)) + 0.15, list(found))
axes.set_ylabel("coverage of 80 % intervals")
_ = axes.legend(title="calibrated for", loc="upper left", bbox_to_anchor=(1, 1))
