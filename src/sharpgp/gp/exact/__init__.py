"""Exact GPs: their posterior, and the likelihood that training maximises."""
