"""VFLGAN Eq. 3: the centralised synthesizer is plain WGAN-GP on the joined table."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from tests.equations.test_vertigan import OneGraph
from vflsynth import WGANGPSynthesizer
from vflsynth._random import RandomStreams
from vflsynth.protocol.channel import LocalChannel
from vflsynth.protocol.schedule import Schedule
from vflsynth.run.joined import JOINED
from vflsynth.run.local import Options

BATCH, STEPS, WEIGHT, RATE = 8, 2, 7.0, 0.01


@pytest.fixture
def frames() -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(1)
    index = pd.Index(rng.permutation(40))
    return {
        "a": pd.DataFrame(rng.normal(size=(40, 2)), columns=["x", "y"], index=index),
        "b": pd.DataFrame(rng.normal(size=(40, 3)), columns=["p", "q", "r"], index=index[::-1]),
    }


@pytest.fixture
def synthesizer() -> WGANGPSynthesizer:
    return WGANGPSynthesizer(
        latent_dim=4,
        generator_hidden=(6, 5),
        discriminator_hidden=(7, 3),
        batch_norm_eps=0.8,
        gradient_penalty_weight=WEIGHT,
        discriminator_steps=STEPS,
        batch_size=BATCH,
        learning_rate=RATE,
        generator_average=0.0,
        epochs=1,
        model_selection="last",
        device="cpu",
        random_state=0,
        verbose=0,
    )


def test_joins_matched_rows_side_by_side(frames, synthesizer):
    joined = _joined(frames, synthesizer).parties[JOINED].party
    assert joined.name == JOINED
    expected = frames["a"].join(frames["b"]).sort_index()
    found = joined.matched()
    assert found.columns.tolist() == ["x", "y", "p", "q", "r"]
    # Every record of A meets its own record of B, whatever the order of records.
    order = found.sort_values("x").to_numpy()
    np.testing.assert_array_equal(order, expected.sort_values("x").to_numpy())


def test_steps_equal_plain_wgan_gp(frames, synthesizer, streams, plain):
    run, streams = _joined(frames, synthesizer), streams(1)
    joined, settings = run.parties[JOINED].party, run.settings
    assert (settings.batch_size, settings.first_part) == (BATCH, (7, 3))
    assert (settings.gradient_penalty_weight, settings.learning_rate) == (WEIGHT, RATE)
    assert settings.discriminator_steps == STEPS
    schedule = Schedule(streams.child("shared"), n_records=40, batch_size=BATCH, latent_dim=4)
    run.method.build(joined, settings, schedule, streams.child("party"))
    joined.records = joined.records.double()
    algorithm = run.method.algorithm(LocalChannel([joined]), settings, streams.child("server"))
    slow = OneGraph([joined], settings, 0, plain)
    for step in range(3 * STEPS):
        algorithm.step(step)
        slow.step(step)
    slow.assert_equal()
    torch.testing.assert_close(
        joined.generator.hidden[3].running_var[0, 0], slow.backbone[3].running_var
    )


def test_parties_draw_columns_of_the_one_generator(frames, synthesizer):
    fitted = synthesizer.set_params(calibrate_marginals=False).fit(frames)
    a, b = (fitted.parties_[name].sampler for name in ("a", "b"))
    for name, weight in a.generator.hidden.state_dict().items():
        assert torch.equal(weight, b.generator.hidden.state_dict()[name])
    streams = RandomStreams([b"any"])
    latent = streams.normal("latent", 0, (9, 4))
    hidden = a.generator.eval().hidden(latent)[0]
    weight = torch.cat([s.generator.output.weight[0] for s in (a, b)], 1)
    bias = torch.cat([s.generator.output.bias[0, 0] for s in (a, b)])
    drawn = torch.cat([s.draw(latent, streams, 0) for s in (a, b)], 1)
    torch.testing.assert_close(drawn, nn.functional.linear(hidden, weight.T, bias))
    assert drawn.shape == (9, 5)


def _joined(frames, synthesizer):
    """A run whose records are matched, joined and encoded."""
    run = synthesizer._local_run(synthesizer.method(), frames, None, Options(), [b"secret"])
    assert list(run.parties) == [JOINED]
    run.join()
    return run
