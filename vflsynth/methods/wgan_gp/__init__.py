"""WGAN-GP of a joined table, and mechanisms for whoever holds one."""
