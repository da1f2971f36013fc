"""Bugs that tests plant in the noise of releases, to show that they would be found."""

import numpy as np

from vflsynth._random import KeySchedule, Purpose
from vflsynth.mechanisms import noisy_descent
from vflsynth.privacy import dpsgd, releases


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


def a_tenth_of_the_noise(patch):
    """Draw noise of a tenth of the standard deviation."""
    in_noise(patch, lambda draw, shape: draw(shape, 0.1))


def one_scalar(patch):
    """What the reference code's red-wine scripts do."""
    in_noise(patch, lambda draw, shape: draw((1,) * len(shape)))


def last_layer_without_noise(patch):
    """Publish the sums of the last layer as they are."""
    honest = noisy_descent.NoisyDescent.means

    def means(self, terms, counted=None):
        *others, (_, bias) = honest(self, terms, counted)
        sums = noisy_descent.rounded_gradient_sum(
            terms, self.plan.max_grad_norm, self.grid, counted
        )
        exact = [t * (self.grid.step / self.batch_size) for t in sums[-1] if t is not None]
        return [*others, (exact[0], None if bias is None else exact[1])]

    patch.setattr(noisy_descent.NoisyDescent, "means", means)


def no_clipping(patch):
    """Let a record's gradient be a thousand times as long as it may be."""
    honest = noisy_descent.rounded_gradient_sum
    patch.setattr(
        noisy_descent,
        "rounded_gradient_sum",
        lambda terms, bound, grid, *counted: honest(terms, 1e3 * bound, grid, *counted),
    )


def clipping_of_the_whole_batch(patch):
    """Scale all records of a batch alike, by their mean norm."""
    honest = dpsgd.clip_factors

    def clip_factors(norms, bound):
        return honest(norms.mean(1, keepdim=True).expand_as(norms), bound)

    for module in (dpsgd, noisy_descent):
        patch.setattr(module, "clip_factors", clip_factors)
    patch.setattr(dpsgd, "_within", lambda layers, _: layers[0][0][0].isfinite().all(-1))


def same_masks(patch):
    """Have all runs draw the same masks: what they send in all is then equal to the last bit."""
    key = KeySchedule.key

    def of_masks(self, purpose, index=""):
        return bytes(32) if purpose is Purpose.MASKS else key(self, purpose, index)

    patch.setattr(KeySchedule, "key", of_masks)
