"""Callbacks that end a training."""

import signal


class StopAfter:
    """Ends it after an epoch."""

    def __init__(self, epoch):
        self.epoch = epoch

    def on_epoch_end(self, state):
        return state.epoch == self.epoch


class CtrlC:
    """Interrupts it after an epoch, as a person does."""

    def on_epoch_end(self, state):
        signal.raise_signal(signal.SIGINT)
