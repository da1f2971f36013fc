"""Fitting a GAN with ``privacy=GaussianPrivacy(...)``: checks, and which mechanism does it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Self

from vflsynth._random import RandomState
from vflsynth._validation import check_parameters
from vflsynth.exceptions import ParameterError, PrivacyParameterError
from vflsynth.privacy import GaussianPrivacy
from vflsynth.synthesizers._mean_embedding import fit_mean_embedding
from vflsynth.synthesizers._private_gradients import Mechanisms, fit_private_gradients
from vflsynth.synthesizers.base import PartyFrames
from vflsynth.synthesizers.gan import GANSynthesizer

_HOMES = {
    "kernel_mean_embedding": "VFLGANSynthesizer or WGANGPSynthesizer",
    "dpsgd_gan": "WGANGPSynthesizer",
    "gs_wgan": "WGANGPSynthesizer",
    "latent_tree": "DPLTSynthesizer",
}
"""Mechanisms that some synthesizer lacks, and which have them."""


class PrivateGANSynthesizer(GANSynthesizer):
    """A GAN that may be fitted with differential privacy.

    Subclasses document the parameter `privacy` and what it changes.
    """

    _mechanisms: ClassVar[Mechanisms]
    """All that a fit can be asked for."""

    _joins: ClassVar[bool] = False
    """Whether one holder of all parties' columns releases everything."""

    privacy: GaussianPrivacy | None

    def _train(
        self,
        models: Sequence[Self],
        random_states: Sequence[RandomState],
        party_frames: PartyFrames,
        on: Hashable,
        **options: Any,
    ) -> list[Self]:
        if not isinstance(self.privacy, GaussianPrivacy | None):
            raise ParameterError(f"privacy must be None or a GaussianPrivacy, got {self.privacy!r}")
        if self.privacy is None:
            fitted = super()._train(models, random_states, party_frames, on, **options)
            for model in fitted:
                model.privacy_ledger_ = None  # an earlier private fit's says nothing about this one
            return fitted
        check_parameters(type(self).__name__, self.get_params(deep=False), self._rules)
        self.privacy.validate()
        mechanism = self.privacy.mechanism
        if mechanism not in self._mechanisms:
            known, homes = " or ".join(map(repr, self._mechanisms)), _HOMES[mechanism]
            raise PrivacyParameterError(
                "mechanism",
                mechanism,
                f"{known} for {type(self).__name__}: {mechanism!r} is for {homes}. Fix: pass one "
                "of those to GaussianPrivacy(mechanism=...), whose default is "
                f"'kernel_mean_embedding', or use {homes}",
            )
        del options["checkpoint_every"]
        _refuse_repeated_releases(mechanism, len(models), options)
        if self._mechanisms[mechanism] is None:
            chosen = {name: options[name] for name in ("callbacks", "transcript")}
            fit_mean_embedding(models[0], self.privacy, party_frames, on, **chosen)
        else:
            for name in ("checkpoint", "resume"):
                del options[name]
            fit_private_gradients(models, self.privacy, random_states, party_frames, on, **options)
        return list(models)

    def estimate_memory(
        self, party_frames: PartyFrames, on: Hashable = None, *, n_models: int = 1
    ) -> int:
        """Estimate the memory of a fit in bytes, without training; see `GANSynthesizer`.

        Raises
        ------
        ParameterError
            With `privacy`: the width of the encoding is part of a release.
        """
        if self.privacy is not None:
            raise ParameterError("estimate_memory cannot look at records with privacy set")
        return super().estimate_memory(party_frames, on, n_models=n_models)


def _refuse_repeated_releases(mechanism: str, n_models: int, options: Mapping[str, Any]) -> None:
    """Refuse what would release more than the ledger counts."""
    alone = mechanism in ("kernel_mean_embedding", "gs_wgan")
    kept = ["checkpoint", "resume"] + (["replica_rows", "keep_discriminators"] if alone else [])
    refused = [
        name for name in kept if options.get(name) is not None and options[name] is not False
    ]
    if alone and n_models > 1:
        refused.append("several models at once")
    if refused:
        raise ParameterError(
            f"the mechanism {mechanism!r} does not support {', '.join(refused)}: every fit and "
            "every resumed fit releases anew, and the ledger counts one release. Call fit once "
            "per model"
        )
