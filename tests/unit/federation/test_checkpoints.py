"""A node's checkpoints, and the memory that a transport leaves behind."""

import gc
import weakref

import torch

from vflsynth.federation import checkpoints
from vflsynth.run.server_run import Saved


class Transfer:
    """A buffer in a cycle, as FLARE's transfers end."""

    def __init__(self):
        self.itself = self


def test_garbage_is_collected_now_and_then(tmp_path, monkeypatch):
    gc.disable()
    try:
        transfer = weakref.ref(Transfer())
        kept = checkpoints.NodeCheckpoints(tmp_path)
        kept.write("lab", Saved(1, {"weight": torch.zeros(2)}, {}))
        assert transfer() is not None  # a moment after the run began there is little to gain
        monkeypatch.setattr(checkpoints, "_PAUSE", 0.0)
        kept.write("lab", Saved(2, {"weight": torch.zeros(2)}, {}))
        assert transfer() is None
    finally:
        gc.enable()
    assert kept.epochs() == [1, 2]
