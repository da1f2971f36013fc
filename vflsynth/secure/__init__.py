"""Sums over records of what several parties hold, of which nobody sees anything else.

Parties share a secret that the server lacks; messages go through the server alone. Nobody sees a
record of another: what is sent is hidden by masks of that secret, and what comes out has every
party's noise. `products` has the tables of all pairs of columns, of numbers that are proved to be
codes of columns' states in `membership`. Both say who sees what, and why.
"""
