"""What a server, or a party, can make of the matching when it deviates from the protocol."""

import numpy as np
import pandas as pd
import pytest
import torch

from vflsynth.federation.party_node import PartyNode
from vflsynth.federation.psi import KeyBlinder
from vflsynth.federation.wire import Frame, Request, decode, encode
from vflsynth.protocol import SERVER
from vflsynth.protocol.messages import (
    BlindedKeys,
    CommonPositions,
    EncodedSize,
    EncodedSizes,
    Hello,
    KeysToReblind,
    ReblindedKeys,
    Shape,
    Terms,
)

VICTIM = "party_1"
GUESSES = pd.RangeIndex(99_000, 101_000)


class LyingServer:
    """A link to a server that has no other party, and makes the other's part up.

    It has the party blind guesses of keys, and declares all of the party's records matched.
    """

    def __init__(self, job):
        self.job, self.received, self.recovered = job, [], None
        self.guesser = KeyBlinder(GUESSES, np.arange(len(GUESSES)))

    def exchange(self, data, timeout):
        frame = decode(data, 1 << 28)
        self.received += frame.messages
        if frame.reason is not None:
            return b""
        (message,) = frame.messages
        request, answer = self.reply(message)
        return encode(Frame(frame.run, frame.number, tuple(answer), request))

    def reply(self, message):
        match message:
            case Hello():
                facts, other = message.facts, "party_2"
                nonces = {VICTIM: facts["nonce"], other: "00"}
                terms = {
                    "columns": {VICTIM: facts["n_columns"], other: 4},
                    "unlisted": {VICTIM: facts["unlisted"], other: 0},
                    "nonces": nonces,
                    "epoch": 0,
                    "key_offset": "10000",
                }
                return Request(BlindedKeys, 0), [Terms(SERVER, VICTIM, 0, terms)]
            case BlindedKeys():
                self.blinded = message.points
                guesses = self.guesser.blind()
                return Request(ReblindedKeys, 1), [KeysToReblind(SERVER, VICTIM, 1, guesses)]
            case ReblindedKeys():
                both = {bytes(p): key for p, key in zip(message.points.numpy(), GUESSES)}
                theirs = self.guesser.reblind(self.blinded).numpy()
                self.recovered = [both.get(bytes(p)) for p in theirs]
                everything = torch.arange(len(self.blinded))
                return Request(EncodedSize, 0), [CommonPositions(SERVER, VICTIM, 0, everything)]
            case EncodedSize():
                widths = {VICTIM: message.encoded_dim, "party_2": 5}
                return Request(Shape, 0), [EncodedSizes(SERVER, VICTIM, 0, widths)]
        raise KeyboardInterrupt  # it trains: enough


def test_a_server_that_guesses_keys_and_declares_everything_matched(make_trial):
    trial = make_trial()
    server = LyingServer(trial.job)
    with pytest.raises(KeyboardInterrupt):
        PartyNode(trial.job, trial.sites[VICTIM]).run(server)
    keys = trial.frames[VICTIM]["record_id"]
    assert sorted(server.recovered) == sorted(keys)
