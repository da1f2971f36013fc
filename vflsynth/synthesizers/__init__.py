"""Synthesizers: estimators with ``fit(party_frames).sample(n)``. One file each."""

from vflsynth.synthesizers.base import BaseSynthesizer
from vflsynth.synthesizers.gan import GANSynthesizer
from vflsynth.synthesizers.vflgan import VFLGANSynthesizer

__all__ = ["BaseSynthesizer", "GANSynthesizer", "VFLGANSynthesizer"]
