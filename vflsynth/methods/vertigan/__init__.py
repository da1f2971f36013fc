"""VertiGAN: a shared backbone of the generators, and no shared discriminator."""
