"""
Coverage within each class
==========================

80 % on average may be 98 % in one class and 50 % in another; ``Exact(by=...)`` calibrates
each class. What to see: the blue bars miss the line, too high or too low, and the orange ones come
close to it.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from sharpgp import Exact, SharpGPRegressor
from sharpgp.metrics import coverage_by

rng = np.random.default_rng(0)
kinds = rng.choice(["calm", "usual", "wild"], 900)
table = pd.DataFrame({"x": rng.uniform(-3, 3, 900), "kind": kinds})
size = table["kind"].map({"calm": 0.05, "usual": 0.2, "wild": 0.8})
y = np.sin(table["x"]) + size * rng.standard_t(4, 900)

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
methods = {"all together": "exact", "each class": Exact(by="kind")}
for place, (name, method) in enumerate(methods.items()):
    model = SharpGPRegressor(base="rbf", calibration=method, cal_size=0.5, random_state=0)
    model.fit(table[:400], y[:400])
    found = coverage_by(kinds[400:].tolist(), y[400:], *model.predict_interval(table[400:], 0.8).T)
    print(name, {kind: f"{covered:.0%}" for kind, (_, covered) in found.items()})
    where = np.arange(len(found)) + 0.3 * place
    axes.bar(where, [covered for _, covered in found.values()], 0.3, label=name)
axes.axhline(0.8, color="black", linewidth=1)
axes.set_xticks(np.arange(len(found)) + 0.15, list(found))
axes.set_ylabel("coverage of 80 % intervals")
_ = axes.legend(title="calibrated for", loc="lower right")
