"""Who computes: parties with their own data and networks, and the server."""

from vflsynth.parties.dpsgd import DPSGDSettings
from vflsynth.parties.dpsgd_party import DPSGDParty
from vflsynth.parties.dpsgd_server import DPSGDServer
from vflsynth.parties.first_layer_party import (
    FirstLayerNoise,
    FirstLayerParty,
    VertiGANFirstLayerParty,
)
from vflsynth.parties.gan_party import GANParty
from vflsynth.parties.gan_server import GANServer
from vflsynth.parties.gs_wgan_party import GSWGANParty, GSWGANSettings
from vflsynth.parties.latent_tree_party import LatentTreeParty, LatentTreeSettings
from vflsynth.parties.latent_tree_server import publish_tree
from vflsynth.parties.marginal_party import MarginalParty
from vflsynth.parties.mean_embedding_party import MeanEmbeddingParty, MeanEmbeddingSettings
from vflsynth.parties.mean_embedding_server import MeanEmbeddingServer
from vflsynth.parties.party import Party, TrainableParty
from vflsynth.parties.settings import Settings
from vflsynth.parties.vertigan_dpsgd_party import DPSGDGANParty, VertiGANDPSGDParty
from vflsynth.parties.vertigan_party import VertiGANParty
from vflsynth.parties.vertigan_server import VertiGANServer
from vflsynth.parties.vflgan_party import VFLGANParty
from vflsynth.parties.vflgan_server import VFLGANServer
from vflsynth.privacy.encoding import PublicEncoding

__all__ = [
    "DPSGDGANParty",
    "DPSGDParty",
    "DPSGDServer",
    "DPSGDSettings",
    "FirstLayerNoise",
    "FirstLayerParty",
    "GANParty",
    "GANServer",
    "GSWGANParty",
    "GSWGANSettings",
    "LatentTreeParty",
    "LatentTreeSettings",
    "MarginalParty",
    "MeanEmbeddingParty",
    "MeanEmbeddingServer",
    "MeanEmbeddingSettings",
    "Party",
    "PublicEncoding",
    "Settings",
    "TrainableParty",
    "VFLGANParty",
    "VFLGANServer",
    "VertiGANDPSGDParty",
    "VertiGANFirstLayerParty",
    "VertiGANParty",
    "VertiGANServer",
    "publish_tree",
]
