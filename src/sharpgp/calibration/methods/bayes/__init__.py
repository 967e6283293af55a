"""Methods that sample or bound the hyperparameters of the GP."""
