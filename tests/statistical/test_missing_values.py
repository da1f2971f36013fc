"""Missing values come back as often as they were, also where another column decides."""

import pytest

from vflsynth import VFLGANSynthesizer
from vflsynth.datasets import make_party_frames

pytestmark = pytest.mark.slow


def test_rates_of_missing_values_survive_within_two_points():
    """``result`` is missing in 45 % of the records with ``flag`` and in 5 % of the others."""
    frames = make_party_frames(4000, 2, random_state=3)
    synth = VFLGANSynthesizer(random_state=0, device="cpu", verbose=0).fit(frames, "record_id")
    table = synth.sample(20_000)
    for party, number in (("party_1", 1), ("party_2", 2)):
        real = frames[party]
        for column in (f"score_{number}", f"result_{number}"):
            assert abs(table[column].isna().mean() - real[column].isna().mean()) < 0.02
        for flag in (True, False):
            there, fake = (
                frame.loc[frame[f"flag_{number}"] == flag, f"result_{number}"].isna().mean()
                for frame in (real, table)
            )
            assert abs(there - fake) < 0.02
