"""Columns drawn alone, or tied together by a Gaussian copula."""
