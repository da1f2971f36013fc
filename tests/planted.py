"""Bugs that tests plant in the noise of releases, to show that they would be found."""

import numpy as np

from vflsynth.privacy import releases


def in_noise(patch, changed):
    """Let ``changed(draw, shape)`` draw all noise; ``draw(shape, scale)`` is honest, but scaled."""
    honest = releases.discrete_gaussian

    def discrete_gaussian(shape, sigma, **rest):
        def draw(shape, scale=1.0):
            return np.rint(scale * honest(shape, sigma, **rest)).astype(np.int64)

        shape = tuple(shape)
        return np.array(np.broadcast_to(changed(draw, shape), shape))

    patch.setattr(releases, "discrete_gaussian", discrete_gaussian)


def no_noise(patch):
    """Publish everything as it is."""
    in_noise(patch, lambda draw, shape: draw(shape, 0.0))


def one_scalar(patch):
    """What the reference code's red-wine scripts do."""
    in_noise(patch, lambda draw, shape: draw((1,) * len(shape)))
