"""Trees of latent attributes, fitted to noisy tables of counts."""
