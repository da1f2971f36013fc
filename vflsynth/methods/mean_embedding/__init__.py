"""Generators trained at the server on one noisy mean of the records' random features."""
