"""Ways to learn a synthesizer, one folder each: its messages, parties, server, step and estimator.

In every folder, `estimator.py` has the class with ``fit(party_frames).sample(n)``, `method.py` the
steps in their order, `party.py` what an organisation computes of its own table, `server.py` what
the server computes, and `messages.py` what they tell each other. What a short method has of these
is in its `method.py`.
"""

from vflsynth.methods.autoregressive.estimator import AutoregressiveSynthesizer
from vflsynth.methods.gan.estimator import GANSynthesizer
from vflsynth.methods.latent_tree.estimator import DPLTSynthesizer
from vflsynth.methods.latent_tree.mechanism import LatentTree
from vflsynth.methods.marginals.estimator import GaussianCopulaSynthesizer, IndependentSynthesizer
from vflsynth.methods.pairwise.estimator import MixtureSynthesizer
from vflsynth.methods.pairwise.mechanism import PairwiseTables
from vflsynth.methods.synthesizer import BaseSynthesizer
from vflsynth.methods.trained import TrainedSynthesizer
from vflsynth.methods.vertigan.estimator import VertiGANSynthesizer
from vflsynth.methods.vflgan.estimator import VFLGANSynthesizer
from vflsynth.methods.wgan_gp.dpsgd_gan import DPSGDGAN
from vflsynth.methods.wgan_gp.estimator import WGANGPSynthesizer
from vflsynth.methods.wgan_gp.gs_wgan import GSWGAN

__all__ = [
    "DPSGDGAN",
    "GSWGAN",
    "AutoregressiveSynthesizer",
    "BaseSynthesizer",
    "DPLTSynthesizer",
    "GANSynthesizer",
    "GaussianCopulaSynthesizer",
    "IndependentSynthesizer",
    "LatentTree",
    "MixtureSynthesizer",
    "PairwiseTables",
    "TrainedSynthesizer",
    "VFLGANSynthesizer",
    "VertiGANSynthesizer",
    "WGANGPSynthesizer",
]
