"""Who computes: parties with their own data and networks, and the server."""

from vflsynth.parties.party import Party
from vflsynth.parties.settings import Settings
from vflsynth.parties.vflgan_party import VFLGANParty
from vflsynth.parties.vflgan_server import VFLGANServer

__all__ = ["Party", "Settings", "VFLGANParty", "VFLGANServer"]
