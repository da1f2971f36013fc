"""What may be passed as callbacks."""

import pytest

from vflsynth import EarlyStopping
from vflsynth.datasets import make_party_frames
from vflsynth.exceptions import ParameterError
from vflsynth.run.local import Options


class Watch:
    def on_epoch_end(self, state):
        return None


@pytest.mark.parametrize("wrong", [5, "abc", [3], [Watch], [Watch(), print], {"a": Watch()}])
def test_what_cannot_be_called_is_refused_before_training(wrong):
    with pytest.raises(ParameterError, match="on_epoch_end"):
        Options(callbacks=wrong)


@pytest.mark.parametrize("right", [(), [], [Watch()], (EarlyStopping(3), Watch())])
def test_callbacks_are_taken(right):
    assert Options(callbacks=right).callbacks == right


def test_early_stopping_is_refused_where_nothing_is_evaluated(make_gan):
    frames = make_party_frames(60, 2, random_state=0)
    with pytest.raises(ParameterError, match=r'EarlyStopping.*model_selection="best"'):
        make_gan(model_selection="last").fit(frames, "record_id", callbacks=[EarlyStopping(1)])
    still = {"model_selection": "best", "learning_rate": 1e-9, "generator_average": 0.0}
    fitted = make_gan(**still).fit(frames, "record_id", callbacks=[Watch(), EarlyStopping(1)])
    assert len(fitted.history_) < 6
