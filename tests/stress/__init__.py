"""The stress suite: generated data, bad input, damaged files and faults; run by `make stress`."""
