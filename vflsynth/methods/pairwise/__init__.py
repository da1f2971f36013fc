"""Mixtures of products, fitted to noisy tables of all pairs of columns."""
