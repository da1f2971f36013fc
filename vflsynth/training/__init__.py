"""When things happen: Algorithm 1, the one training loop, and what surrounds it."""

from vflsynth.training.callbacks import Callback, EarlyStopping, EpochState
from vflsynth.training.checkpoint import Checkpointer, load_checkpoint
from vflsynth.training.history import History
from vflsynth.training.loop import Plan, run
from vflsynth.training.vflgan import VFLGAN

__all__ = [
    "VFLGAN",
    "Callback",
    "Checkpointer",
    "EarlyStopping",
    "EpochState",
    "History",
    "Plan",
    "load_checkpoint",
    "run",
]
