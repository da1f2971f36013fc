"""Laws of protections of cut gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from vflsynth._random import HiddenStreams
from vflsynth.exceptions import TrainingDivergedError
from vflsynth.splitdefense.protections.gradients import Context, Draws, Protection
from vflsynth.testing.laws import (
    Case,
    Check,
    checks_of,
    global_random_state_left_alone,
    refused,
    require,
    same,
)


class ProtectionCase(Case[Protection]):
    """A protection whose laws are checked."""

    def protect(
        self, gradients: Tensor, *, step: int = 0, seeds: tuple[int, ...] = (0, 1)
    ) -> Tensor:
        """Protect gradients of one replica per seed, of two classes in turn."""
        labels = (torch.arange(gradients.shape[1]) % 2).expand(len(gradients), -1)
        streams = HiddenStreams([bytes([seed]) for seed in seeds[: len(gradients)]])
        return self.value.protect(gradients, Context(labels, 2, Draws(streams, step)))


def toy_gradients() -> Tensor:
    """Gradients of two replicas, whose records' norms differ, (2, 200, 4)."""
    drawn = torch.randn(2, 200, 4, generator=torch.Generator().manual_seed(0))
    return drawn * torch.linspace(0.2, 2, 200).view(1, 200, 1)


def what_is_sent_has_the_gradients_shape(case: ProtectionCase) -> None:
    """And their dtype; and the gradients themselves stay as they are."""
    values = toy_gradients()
    sent = case.protect(values)
    same((tuple(sent.shape), sent.dtype), (tuple(values.shape), values.dtype), "what is sent")
    require(torch.equal(values, toy_gradients()), "the gradients were changed in place")


def scale_does_not_matter(case: ProtectionCase) -> None:
    """Protections scale with the gradients, however far training has come."""
    values = toy_gradients()
    found, expected = case.protect(1e-4 * values), 1e-4 * case.protect(values)
    require(
        torch.allclose(found, expected, rtol=1e-3, atol=1e-9),
        f"gradients of 1e-4 times the size get a protection that is off by "
        f"{float((found - expected).abs().max() / 1e-4):.3g}",
    )


def replicas_do_not_mix(case: ProtectionCase) -> None:
    """A classifier that is trained among others gets what it would get alone."""
    values = toy_gradients()
    found, alone = case.protect(values)[1:], case.protect(values[1:], seeds=(1,))
    require(
        torch.allclose(found, alone, rtol=1e-5, atol=1e-6),
        f"a replica differs by {float((found - alone).abs().max()):.3g} when it is alone",
    )


def draws_belong_to_seed_and_step(case: ProtectionCase) -> None:
    """The same step repeats; another one does so only if nothing is drawn at all."""
    values = toy_gradients()
    sent = case.protect(values)
    require(torch.equal(sent, case.protect(values)), "the same step is not repeated exactly")
    draws = not torch.equal(sent, case.protect(values, seeds=(2, 3)))
    again = torch.equal(sent, case.protect(values, step=1))
    require(again is not draws, "another seed changes what is sent, another step does not")


def it_keeps_nothing_and_draws_nothing_else(case: ProtectionCase) -> None:
    """What it is to remember goes into the context, and draws come from there."""
    before = dict(vars(case.value))
    with global_random_state_left_alone():
        case.protect(toy_gradients())
    same(vars(case.value), before, "what the protection has")


def zero_stays_zero(case: ProtectionCase) -> None:
    """There is nothing to hide, and nothing to scale noise to."""
    sent = case.protect(torch.zeros(1, 8, 3))
    require(not sent.any(), f"gradients of zero become {float(sent.abs().max()):.3g}")


def gradients_that_are_not_finite_are_refused(case: ProtectionCase) -> None:
    """No noise can be scaled to them."""
    with refused(TrainingDivergedError, "a gradient of NaN"):
        case.protect(torch.full((1, 8, 3), torch.nan))


def protection_checks(protection: Protection) -> list[Check]:
    """Return one check for each law of a protection of cut gradients.

    Examples
    --------
    >>> from vflsynth.splitdefense import Isotropic
    >>> for check in protection_checks(Isotropic(4.0)):
    ...     check()
    """
    return checks_of(ProtectionCase(protection))
