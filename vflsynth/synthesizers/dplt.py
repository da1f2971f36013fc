"""DPLTSynthesizer: a latent tree over discretised columns, from noisy tables of counts."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import ClassVar, Self

import numpy as np
import pandas as pd
import torch

from vflsynth._random import RandomState, RandomStreams, secret_from
from vflsynth._validation import Number, Rule, check_parameters
from vflsynth.columns import TableTransformer
from vflsynth.exceptions import ParameterError
from vflsynth.frames import check_party_frames, public_key_minters
from vflsynth.latent_tree import group_sizes
from vflsynth.model import PartyModel
from vflsynth.parties import LatentTreeParty, LatentTreeSettings, PublicEncoding, publish_tree
from vflsynth.privacy import GaussianPrivacy
from vflsynth.privacy.contingency import LatentTreePlan, plan_latent_tree
from vflsynth.privacy.discovery import count_columns
from vflsynth.privacy.histograms import NoisyHistogram
from vflsynth.privacy.schema import Bounds
from vflsynth.protocol import LatentCodes, LocalChannel, Transcript
from vflsynth.protocol.channel import Verb
from vflsynth.registry import register
from vflsynth.samplers import LatentTreeSampler
from vflsynth.synthesizers.base import BaseSynthesizer, PartyFrames
from vflsynth.training import match_records


@register
class DPLTSynthesizer(BaseSynthesizer):
    """Differentially private latent tree, after DPLT (Tang et al. 2021): the discrete baseline.

    Every party discretises its columns, puts those that tell most about each other into groups and
    makes one latent attribute of each group. A server ties all parties' latent attributes together
    in a tree. Columns are drawn independently given the latent attribute of their group.

    Parameters
    ----------
    privacy : GaussianPrivacy
        Required, though the signature has None, with which `fit` raises: with
        ``mechanism="latent_tree"``. Its ``preprocessing_share`` of the budget goes to histograms
        with ``n_bins`` bins, and the rest evenly to the two rounds of tables, within each of which
        all tables have the same noise.
    group_size : int, default=3
        Most columns of a group, at most 4.
    n_states : int, default=8
        Most states of a discretised column; bins are merged to roughly equal mass, and rare
        categories share one.
    n_latent_states : int, default=8
        States of a latent attribute.
    random_state : int, numpy Generator, RandomState or None, default=None
        Seeds the samples and the starts of expectation maximisation; never the noise.

    Attributes
    ----------
    parties_ : dict of str to PartyModel
        Each party's half of the model.
    alignment_ : AlignmentReport
        Matched, dropped and duplicated records per party.
    history_ : DataFrame
        Empty: nothing is trained.
    settings_ : dict
        Groups of columns of each party, and the tree's parents.
    device_ : str
        ``"cpu"``.
    interrupted_ : bool
        False.
    transcript_ : DataFrame or None
        Messages and bytes per boundary, if ``fit(transcript=True)``.
    privacy_ledger_ : PrivacyLedger
        What was released, what it cost and what it does not cover; print it.

    Notes
    -----
    Source: Tang, Cheng, Su, Chen and Shao, "Differentially Private Publication of Vertically
    Partitioned Data" (TDSC 2021), of which no code is public; written from its idea, with other
    parts. Noise is Gaussian instead of Laplace, under one budget for all parties. Groups come from
    noisy tables of all pairs of a party's columns; a group's latent classes are fitted by
    expectation maximisation to those tables, and a record's latent attribute is its most probable
    class. The tree is the maximum spanning tree by noisy mutual information.

    Privacy: ε of `privacy` bounds what the synthetic table reveals about one record, with all
    tables of all parties counted; the ledger lists them. The server is not covered: it sees every
    record's latent attributes (`vflsynth.protocol.messages`). Noise comes from the operating system
    whatever `random_state` is, so that two fits differ and each spends the whole budget anew.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from vflsynth import DPLTSynthesizer
    >>> from vflsynth.privacy import GaussianPrivacy, PublicSchema
    >>> x = np.arange(500) % 10
    >>> frames = {"a": pd.DataFrame({"x": x}), "b": pd.DataFrame({"big": x > 4})}
    >>> schema = PublicSchema(bounds={"x": (0, 10)}, categories={"big": (False, True)})
    >>> privacy = GaussianPrivacy(
    ...     epsilon=10, delta=1e-3, mechanism="latent_tree", public_schema=schema
    ... )
    >>> synth = DPLTSynthesizer(privacy=privacy, random_state=0).fit(frames)
    >>> table = synth.sample(500)
    >>> bool(table["x"].corr(table["big"]) > 0.5)
    True
    """

    _rules: ClassVar[Mapping[str, Rule]] = {
        "group_size": Number(1, 4, whole=True),
        "n_states": Number(2, whole=True),
        "n_latent_states": Number(2, whole=True),
    }

    def __init__(
        self,
        *,
        privacy: GaussianPrivacy | None = None,
        group_size: int = 3,
        n_states: int = 8,
        n_latent_states: int = 8,
        random_state: RandomState = None,
    ) -> None:
        self.privacy = privacy
        self.group_size = group_size
        self.n_states = n_states
        self.n_latent_states = n_latent_states
        self.random_state = random_state

    def fit(
        self, party_frames: PartyFrames, on: Hashable = None, *, transcript: bool = False
    ) -> Self:
        """Match the parties' records, publish noisy tables, and make the tree of them.

        Parameters
        ----------
        party_frames : mapping of str to DataFrame
            One table per party; never modified, never joined.
        on : hashable, optional
            Key column of every table. Default: the index.
        transcript : bool, default=False
            Count every message that crosses a boundary, in `transcript_`.

        Returns
        -------
        self

        Raises
        ------
        ParameterError
            If `privacy` is missing or of another mechanism, or a parameter is out of range.
        PartyDataError
            One of its children for every way in which tables can be unusable.
        """
        return self._fit(party_frames, on, transcript=transcript)

    def _fit(
        self,
        party_frames: PartyFrames,
        on: Hashable = None,
        *,
        transcript: bool = False,
        noise: torch.Generator | None = None,
    ) -> Self:
        """Fit; `noise` is for tests only and replaces the operating system's."""
        privacy = self._checked_privacy()
        frames = check_party_frames(party_frames, on, allow_empty_columns=True)
        secret = secret_from(self.random_state)
        parties, plan = make_parties(self, privacy, frames, on, secret, noise)
        record = Transcript() if transcript else None
        channel = LocalChannel(parties, record)
        alignment, _ = match_records(channel, frames, on)
        minters = public_key_minters({party.name: party.keys for party in parties})
        for party in parties:
            party.prepare()
        codes = channel.gather(Verb.LATENT_CODES, 0, LatentCodes)
        channel.scatter(Verb.LATENT_TREE, publish_tree(codes, plan.tree_std, noise))
        self.parties_ = {
            party.name: PartyModel(
                party.name,
                party.transformer,
                _sampler(party),
                on=on,
                minter=minters[party.name],
            )
            for party in parties
        }
        self.alignment_ = alignment
        self.history_ = pd.DataFrame()
        self.settings_ = {
            "groups": {party.name: list(party.group_of) for party in parties},
            "parents": list(self.parties_[parties[0].name].sampler.to_dict()["parents"]),
        }
        self.device_ = "cpu"
        self.interrupted_ = False
        self.transcript_ = None if record is None else record.to_frame()
        self.privacy_ledger_ = plan.ledger
        self._begin_samples(secret)
        return self

    def _checked_privacy(self) -> GaussianPrivacy:
        check_parameters(type(self).__name__, self.get_params(deep=False), self._rules)
        privacy = self.privacy
        if not isinstance(privacy, GaussianPrivacy) or privacy.mechanism != "latent_tree":
            raise ParameterError(
                "DPLTSynthesizer needs privacy=GaussianPrivacy(mechanism='latent_tree', ...), got "
                f"{privacy!r}"
            )
        privacy.validate()
        return privacy


def make_parties(
    model: DPLTSynthesizer,
    privacy: GaussianPrivacy,
    frames: Mapping[str, pd.DataFrame],
    on: Hashable,
    secret: bytes,
    noise: torch.Generator | None,
) -> tuple[list[LatentTreeParty], LatentTreePlan]:
    """Calibrate the noise by names of columns alone, and make the parties that will add it."""
    columns = count_columns(frames, on, privacy.public_schema)
    sizes = {name: group_sizes(own.total, model.group_size) for name, own in columns.items()}
    plan = plan_latent_tree(privacy, columns, sizes)
    tree = LatentTreeSettings(
        PublicEncoding.of(privacy, plan.histogram_noise_multiplier, columns),
        pair_std=plan.pair_std,
        tree_std=plan.tree_std,
        n_states=model.n_states,
        n_latent_states=model.n_latent_states,
    )
    streams = RandomStreams([secret])
    parties = [
        LatentTreeParty(
            name,
            frame,
            on,
            TableTransformer(),
            tree,
            sizes[name],
            streams.numpy_generators(f"party {name}")[0],
            noise,
        )
        for name, frame in frames.items()
    ]
    return parties, plan


def _sampler(party: LatentTreeParty) -> LatentTreeSampler:
    """Put together what a party was sent and what it keeps."""
    tree = party.structure
    assert tree is not None, "the tree was scattered to all parties"
    parents, sizes = tree.parents.tolist(), tree.sizes.tolist()
    shapes = [
        (sizes[node],) if parent < 0 else (sizes[parent], sizes[node])
        for node, parent in enumerate(parents)
    ]
    parts = torch.split(tree.shares, [int(np.prod(shape)) for shape in shapes])
    histograms = list(party.histograms.values())
    return LatentTreeSampler(
        parents,
        [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)],
        [torch.from_numpy(table) for table in party.columns],
        [tree.first + group for group in party.group_of],
        [_encoded_ends(histogram) for histogram in histograms],
        [histogram.has_missing for histogram in histograms],
    )


def _encoded_ends(histogram: NoisyHistogram) -> tuple[float, float] | None:
    """Where the bins of a numeric column begin and end in its encoding."""
    if not isinstance(histogram.cells, Bounds):
        return None
    mean, std = histogram.mean_and_std()
    return (histogram.cells.low - mean) / std, (histogram.cells.high - mean) / std
