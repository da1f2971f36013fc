"""What all adversarial networks here share: generator, critics, losses, roles, estimator."""
