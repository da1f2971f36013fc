"""What was measured, by scripts that anybody can run again; nothing of it is installed."""
