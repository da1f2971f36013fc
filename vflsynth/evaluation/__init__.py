"""Judge any synthetic table."""
