"""Protections of a party's cut gradients, applied by the active party before it sends them."""
