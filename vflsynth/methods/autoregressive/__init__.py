"""A likelihood model: every column given earlier ones, and a bounded context of earlier parties."""
