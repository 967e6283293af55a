"""
Is this model calibrated?
=========================

The figures of the calibration report on one sheet, for a model in a scikit-learn pipeline. What to
see: dots and bars stay in their grey bands, so that chance alone explains what is off.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PowerTransformer

from sharpgp import SharpGPRegressor
from sharpgp.diagnostics import diagnose
from sharpgp.plots import calibration_figure

# %%
# ``diagnose`` also takes pipelines and searches that end in a ``SharpGPRegressor``: a pipeline
# passes on ``predict`` alone, and ``diagnose`` looks inside for the rest.

X, y = load_diabetes(return_X_y=True, as_frame=True)
X, X_test, y, y_test = train_test_split(X, y, test_size=0.4, random_state=0)
regressor = SharpGPRegressor(base="matern32", calibration="exact", random_state=0)
model = make_pipeline(PowerTransformer(), regressor)
found = diagnose(model.fit(X, y), X_test, y_test, feature_names=list(X.columns))

# %%
# Grey bands are what chance alone does to a calibrated predictor. The same numbers, with a
# verdict and a sentence under each figure, are in the HTML page of ``sharpgp.report.write_report``.

figure = calibration_figure(found, coverage=0.9, figure=plt.figure(figsize=(7, 10)))

# %%
print(found.report)
