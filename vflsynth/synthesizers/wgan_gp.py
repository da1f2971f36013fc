"""WGANGPSynthesizer: what could be had if the tables could be joined."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from sklearn.base import clone
from torch import Tensor

from vflsynth.parties import GANParty, VertiGANParty
from vflsynth.protocol import AlignmentNotice, LocalChannel
from vflsynth.protocol.channel import Verb
from vflsynth.protocol.messages import SERVER
from vflsynth.synthesizers.vertigan import VertiGANSynthesizer

JOINED = "joined"
"""Name of the one party that holds everything, as it appears in `history_`."""


class WGANGPSynthesizer(VertiGANSynthesizer):
    """Centralised WGAN-GP, the upper bound: it joins the party frames.

    Joining is the very thing that one may not do; this class exists to show what not doing it
    costs. All matched rows of all parties are put side by side in one table, on which one generator
    and one discriminator are trained.

    The parameters and attributes are those of `VertiGANSynthesizer`.

    Notes
    -----
    Source: Gulrajani et al. 2017; VFLGAN Eq. 3 and §5.1.2.

    WGAN-GP is VertiGAN with a single party: Eq. 4 is Eq. 3, and the sum of Eq. 5 has one term.
    ``tests/equations/test_wgan_gp.py`` compares it with plain WGAN-GP.

    Afterwards every party gets its columns' part of the output layer and a copy of the hidden
    layers, so `parties_`, ``sample(by_party=True)`` and saving are as for all other synthesizers.
    `transcript_` shows the matching only: the protocol has no message that may carry the rows.

    Examples
    --------
    >>> from vflsynth import WGANGPSynthesizer
    >>> from vflsynth.datasets import make_party_frames
    >>> frames = make_party_frames(200, 2, random_state=0)
    >>> synth = WGANGPSynthesizer(epochs=2, random_state=0, verbose=0).fit(frames, on="record_id")
    >>> synth.sample(3).shape[0]
    3
    """

    def _trainees(
        self, parties: Sequence[GANParty], channel: LocalChannel
    ) -> tuple[Sequence[GANParty], LocalChannel]:
        """Join the matched rows of all parties."""
        parties = sorted(parties, key=lambda party: party.name)  # as all other GANs
        tables = [party.matched().reset_index(drop=True) for party in parties]
        table = pd.concat(tables, axis=1)
        kinds = {k: v for party in parties for k, v in party.transformer.kinds_.items()}
        transformer = clone(parties[0].transformer).set_params(kinds=kinds)
        joined = VertiGANParty(JOINED, table, None, transformer)
        joined.take(Verb.ALIGN, AlignmentNotice(SERVER, JOINED, 0, table.index))
        joined.prepare()
        return [joined], LocalChannel([joined])

    def _weights(self, party: GANParty, trainees: Sequence[GANParty]) -> dict[str, Tensor]:
        """Take from the one generator what makes the party's columns."""
        (joined,) = trainees
        labels = list(joined.transformer.transformers_)
        widths = [joined.transformer.transformers_[label].width_ for label in labels]
        start = sum(widths[: labels.index(next(iter(party.transformer.transformers_)))])
        weights = dict(joined.selected)
        for name in ("output.weight", "output.bias"):
            weights[name] = weights[name][..., start : start + party.transformer.width_]
        return weights
