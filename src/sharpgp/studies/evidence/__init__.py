"""One small study per claim or constant: ``sharpgp bench evidence NAME``."""

#: Names, and what each shows.
STUDIES = {
    "any_mean": "what the GP of a regressor's residuals is for",
    "baselines_check": "sharpness and calibration of the baselines, with a pretrained network",
    "bo_designs": "base GPs of the optimisations before the first iteration",
    "bo_overhead": "one iteration of optimisation beside BoTorch's own UCB",
    "bounds_hyperposterior": "uniform bounds from NUTS beside the Laplace approximation",
    "calibration_speed": "evaluations and cost of calibrating 25 levels",
    "candidates": "candidates for mean and spread, each used throughout",
    "choosing": "what each calibration costs and gains, by the number of rows",
    "command_line": "time and memory of sharpgp predict on a long CSV file",
    "copies": "wine with and without its copied rows",
    "cost": "what calibration costs beside a BoTorch fit",
    "defaults": "objective, family and shrinkage of the search for theta",
    "drift": "a series whose noise doubles in the middle",
    "exact_or_sparse": "exact or sparse, CPU or GPU, by the number of rows",
    "few_points": "the prior on lengthscales at few points per hyperparameter",
    "guarantee": "what exact promises, simulated",
    "import_time": "what importing sharpgp takes beyond torch and BoTorch",
    "known_truth": "intervals beside the true conditional quantiles",
    "large_data": "growth, memory and speed of sparse and exact GPs",
    "minibatch": "a sparse GP trained in batches beside gpytorch's SVGP",
    "pooling": "pools of models beside the best kernel, and the pull of their weights",
    "runner_overhead": "what the runner adds to tasks of 100 ms",
    "training": "training a named kernel here and with BoTorch",
    "warm_start": "why refits of cross-validation start from scratch",
}
