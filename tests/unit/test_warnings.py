"""Warnings point at the user's line, whichever way leads to them."""

from __future__ import annotations

import signal

import pytest

from vflsynth import VertiGANSynthesizer, VFLGANSynthesizer
from vflsynth.exceptions import NoPrivacyWarning
from vflsynth.mechanisms import FirstLayer


class CtrlC:
    def on_epoch_end(self, state):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("synthesizer", [VFLGANSynthesizer, VertiGANSynthesizer])
def test_an_interrupted_fit_warns_where_it_was_called(party_frames, synthesizer):
    model = synthesizer(epochs=3, verbose=0, random_state=0)
    with pytest.warns(RuntimeWarning, match="interrupted in epoch 2 of 3") as interrupted:
        model.fit(party_frames(), on="record_id", callbacks=[CtrlC()])
    assert [warning.filename for warning in interrupted] == [__file__]


def test_a_mechanism_that_does_not_protect_warns_where_it_was_asked_for(party_frames):
    privacy = FirstLayer(epsilon=10, delta=1e-3)
    model = VFLGANSynthesizer(privacy=privacy, epochs=1, batch_size=8, verbose=0, random_state=0)
    with pytest.warns(NoPrivacyWarning) as told:
        model.fit(party_frames(), on="record_id")
    assert [warning.filename for warning in told] == [__file__]
