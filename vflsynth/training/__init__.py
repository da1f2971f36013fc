"""When things happen: Algorithm 1, the one training loop, and what surrounds it."""

from vflsynth.training.algorithm import Algorithm
from vflsynth.training.callbacks import Callback, EarlyStopping, EpochState
from vflsynth.training.checkpoint import Checkpointer, check_same_run, load_checkpoint
from vflsynth.training.dpsgd import DPSGD
from vflsynth.training.gan import GANAlgorithm
from vflsynth.training.history import History, history_from_json, history_to_json
from vflsynth.training.loop import Plan, run
from vflsynth.training.matching import match_records
from vflsynth.training.mean_embedding import MeanEmbedding
from vflsynth.training.private_vertigan import PrivateVertiGAN
from vflsynth.training.session import Session, check_replica_rows
from vflsynth.training.vertigan import VertiGAN
from vflsynth.training.vflgan import VFLGAN

__all__ = [
    "DPSGD",
    "VFLGAN",
    "Algorithm",
    "Callback",
    "Checkpointer",
    "EarlyStopping",
    "EpochState",
    "GANAlgorithm",
    "History",
    "MeanEmbedding",
    "Plan",
    "PrivateVertiGAN",
    "Session",
    "VertiGAN",
    "check_replica_rows",
    "check_same_run",
    "history_from_json",
    "history_to_json",
    "load_checkpoint",
    "match_records",
    "run",
]
