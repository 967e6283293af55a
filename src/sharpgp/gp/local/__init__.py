"""Predictions from landmarks that all points share, and from the rows nearest to each."""
