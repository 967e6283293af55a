"""What calibration methods return: predictors of quantiles and intervals."""
