"""VFLGAN: local discriminators, whose features a shared one at the server judges together."""
