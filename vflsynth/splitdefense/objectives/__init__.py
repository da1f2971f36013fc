"""Objectives: what the active party minimises, and which clean cut gradients follow from it."""
