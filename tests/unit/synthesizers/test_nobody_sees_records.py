"""All that crosses in private fits: masked numbers are uniform, and the rest is paid for as noisy.

Judged on what the server and each party receive in fits of two populations that differ in
everything.
"""

import functools
from collections import defaultdict

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2_contingency, chisquare

from vflsynth import (
    DPLTSynthesizer,
    LatentTree,
    MixtureSynthesizer,
    PairwiseTables,
)
from vflsynth.privacy import PublicSchema
from vflsynth.protocol.channel import MESSAGES, SERVER, MadeOf, Transcript
from vflsynth.run import local
from vflsynth.run.local import Options
from vflsynth.secure import ring as ring_module
from vflsynth.secure.ring import Masks

pytestmark = pytest.mark.usefixtures("short_searches")

PARTIES = ("bank", "clinic", "lab")
KINDS = ("MaskedStates", "SumShares")
N = 300
LEAST_P = 1e-10
"""Of some two hundred tests in a run, of counts so few that a tail may be ten times as likely."""
SCHEMA = PublicSchema(
    dtypes="given",
    bounds={f"x_{name}": (0.0, 10.0) for name in PARTIES},
    categories={f"c_{name}": tuple("abcdefgh") for name in PARTIES},
)


def all_alike():
    """Everybody is the same person."""
    return {
        name: pd.DataFrame({f"x_{name}": np.zeros(N), f"c_{name}": ["a"] * N}) for name in PARTIES
    }


def all_different():
    rng = np.random.default_rng(3)
    values = np.linspace(0.0, 10.0, N)
    return {
        name: pd.DataFrame(
            {f"x_{name}": rng.permutation(values), f"c_{name}": rng.choice(list("bcdefgh"), N)}
        )
        for name in PARTIES
    }


def latent_tree(n_parties):
    privacy = LatentTree(epsilon=5.0, delta=1e-4, public_schema=SCHEMA, n_bins=4)
    return DPLTSynthesizer(privacy=privacy, random_state=0), PARTIES[:n_parties]


def pairwise_tables(n_parties):
    privacy = PairwiseTables(epsilon=5.0, delta=1e-4, public_schema=SCHEMA, n_bins=4)
    model = MixtureSynthesizer(privacy=privacy, n_components=4, random_state=0)
    return model, PARTIES[:n_parties]


def crossed(made, table):
    """Everything that crossed in a fit, and what the plan says of each kind of message."""
    synth, names = made
    spoken = Transcript(keep_messages=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ring_module, "BLOCK_ELEMENTS", 5_000)
        patch.setattr(local, "Transcript", lambda: spoken)
        frames = {name: table()[name] for name in names}
        run = synth._fit_models([synth], frames, None, Options(transcript=True))
    return spoken.messages, run.method.plan.covers


@functools.cache
def crossed_honestly(make, n_parties, table):
    """As `crossed`, of fits that several tests judge."""
    return crossed(make(n_parties), table)


def bytes_of(messages, role):
    """Counts of the bytes that a role received masked, by kind, sender and place in the number."""
    found = defaultdict(list)
    for message in messages:
        if message.receiver != role or not message.declared.masked:
            continue
        for field, value in message.contents():
            if field == "places":  # from 0 to the column's number of states
                for column, own in enumerate(value.numpy().T):
                    found["MaskedStates", message.sender, field, column].append(own)
                continue
            width = value.element_size()
            octets = value.contiguous().numpy().view(np.uint8).reshape(-1, width)
            kind = type(message).__name__
            if kind == "SumShares":  # few numbers, of 46 bits or more
                found[kind, message.sender, field, "any"].append(octets[:, :5].ravel())
                continue
            for place in range(width):
                found[kind, message.sender, field, place].append(octets[:, place])
    return {
        key: np.bincount(np.concatenate(parts), minlength=0 if "places" in key else 256)
        for key, parts in found.items()
    }


def judge(one, other):
    assert one.keys() == other.keys()
    for key, counts in one.items():
        if min(counts.sum(), other[key].sum()) <= 100:
            continue  # sums of as many coordinates as noisy histograms say
        for found in (counts, other[key]):
            assert chisquare(found).pvalue > LEAST_P, key
        if len(counts) != len(other[key]):
            continue  # places of as many states as noisy histograms say
        table = np.stack([counts, other[key]])[:, counts + other[key] > 0]
        assert chi2_contingency(table).pvalue > LEAST_P, key


def roles(n_parties):
    return (SERVER, *PARTIES[:n_parties])


MODELS = pytest.mark.parametrize("make", [latent_tree, pairwise_tables])
NUMBERS = pytest.mark.parametrize("n_parties", [2, 3])


@MODELS
@pytest.mark.parametrize("n_parties", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_what_is_masked_is_uniform_whatever_the_records_are(make, n_parties):
    (one, _), (other, _) = (
        crossed_honestly(make, n_parties, table) for table in (all_alike, all_different)
    )
    judged = set()
    for role in roles(n_parties):
        found = bytes_of(one, role)
        judge(found, bytes_of(other, role))
        judged |= {kind for kind, *_ in found}
    assert judged == {"MaskedStates", "VerifierSeeds", "SumShares"}


@MODELS
@NUMBERS
def test_what_is_not_masked_is_noisy_or_not_about_records(make, n_parties):
    messages, covers = crossed_honestly(make, n_parties, all_different)
    kinds = {type(message).__name__ for message in messages}
    assert kinds & set(KINDS)
    for name in kinds:
        declared = MESSAGES[name].declared
        if declared.made_of in (MadeOf.RECORDS, MadeOf.NETWORKS) and declared.from_party:
            assert declared.masked or covers[name].noised, name
        if declared.masked and declared.from_party:
            assert not covers[name].noised, name


def assert_masks_are_new(make):
    """The same table and random state: what was masked twice alike would show itself."""
    first, second = (
        [m for m in crossed(make(2), all_alike)[0] if type(m).__name__ in KINDS] for _ in "12"
    )
    for one, other in zip(first, second, strict=True):
        for (field, value), (_, again) in zip(one.contents(), other.contents(), strict=True):
            if value.numel() > 1000:
                if value.shape != again.shape:  # of as many states as noisy histograms say
                    n = min(value.shape[1], again.shape[1])
                    value, again = value[:, :n], again[:, :n]
                assert (value == again).double().mean() < 0.05, (type(one).__name__, field)


@MODELS
def test_masks_are_new_in_every_fit(make):
    assert_masks_are_new(make)


def test_a_reused_secret_is_noticed(monkeypatch):
    monkeypatch.setattr(local, "_entropy", lambda noise: bytes(32))
    with pytest.raises(AssertionError):
        assert_masks_are_new(latent_tree)


@MODELS
def test_a_missing_mask_is_noticed(make, monkeypatch):
    honest = Masks.draw

    def draw(self, label, *rest):
        drawn = honest(self, label, *rest)
        return np.zeros_like(drawn) if label.startswith("matrix|0") else drawn

    monkeypatch.setattr(Masks, "draw", draw)
    one, other = (bytes_of(crossed(make(2), t)[0], SERVER) for t in (all_alike, all_different))
    with pytest.raises(AssertionError):
        judge(one, other)
