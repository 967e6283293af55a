"""One small study per claim or constant: ``sharpgp bench evidence NAME``."""

#: Names, and what each shows.
STUDIES = {
    "bo_choice": "the choice among the GPs of an optimisation, by what the smoother kernel costs",
    "bo_surprises": "points that optimisations ask for, and what was predicted of them",
    "choosing": "what each calibration costs and gains, by the number of rows",
    "command_line": "time and memory of sharpgp predict on a long CSV file",
    "drift": "a series whose noise doubles in the middle",
    "few_points": "the prior on lengthscales at few points per hyperparameter",
    "fit_times": "how long a fit takes, by rows, base and calibration",
    "foreign": "models of other kinds, calibrated: coverage and CRPS",
    "gpu": "rate and memory of sparse and exact GPs on a GPU, and agreement with the CPU",
    "hostile": "coverage on ties, zeros, copies, groups, heavy tails, few points",
    "known_truth": "intervals beside the true conditional quantiles",
    "landing": "the two pictures of the first page of the site",
    "large_data": "growth, memory and speed of sparse and exact GPs on a CPU",
    "many_rows": "the default beyond 10,000 rows, beside single GPs and a quantile forest",
    "mixed_tables": "tables with categories and gaps, as they are and encoded by hand",
    "out_of_core": "fits in batches: growth, memory, interruptions, clusters, rates of passes",
    "pooling": "pools of models beside the best kernel, and the pull of their weights",
    "real_tables": "tables from the packages of R, beside one GP, RK and peers",
    "regions": "boxes that hold several outputs at once, beside Bonferroni's",
    "runner_overhead": "what the runner adds to tasks of 100 ms",
    "scoringbench": "the entry for ScoringBench on its protocol",
    "splits": "extra trees that split by heavy-tailed targets, or by their arcsinh",
    "training": "training a named kernel here and with BoTorch",
    "warm_start": "why refits of cross-validation start from scratch",
}
