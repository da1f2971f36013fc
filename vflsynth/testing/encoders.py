"""Laws of encoders: increasing maps with an inverse, from the records or from public knowledge."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone

from vflsynth.columns import Bounds, Encoder, NoisyHistogram, TableTransformer
from vflsynth.columns.encoders.base import Curve
from vflsynth.columns.table import check_public
from vflsynth.exceptions import ArtefactError, ParameterError
from vflsynth.testing.laws import PARAMETER_LAWS, Check, checks_of, laws_of, refused, require, same


@dataclass(frozen=True)
class EncoderCase:
    """An encoder whose laws are checked, not fitted, with numbers of shape (record,)."""

    value: Encoder
    numbers: npt.NDArray[np.float64]

    def __str__(self) -> str:
        return str(self.value)

    def fitted(self, zero: float = 0.0, unit: float = 1.0) -> Encoder:
        """Return an encoder that is fitted to the numbers, counted from `zero` in units."""
        fresh: Encoder = clone(self.value)
        return fresh.fit((np.sort(self.numbers) - zero) / unit, zero=zero, unit=unit)

    def table(self) -> TableTransformer:
        """Return the encoding of a table with the numbers in one column, which is fitted."""
        template = TableTransformer(
            {"x": "continuous"}, encoders={"x": self.value}, spike_share=None
        )
        return template.fit(pd.DataFrame({"x": self.numbers}))


def larger_numbers_get_larger_scores(case: EncoderCase) -> None:
    """The map rises, from numbers to scores and back."""
    ordered = np.sort(case.numbers)
    scaled = case.fitted().scale(ordered)
    require(np.isfinite(scaled).all(), "scaled numbers are not finite")
    require((np.diff(scaled) >= 0.0).all(), "a larger number has a smaller score")
    back = case.fitted().unscale(np.linspace(-40.0, 40.0, 2000))
    require((np.diff(back) >= 0.0).all(), "a larger score is decoded to a smaller number")


def numbers_survive_32_bits(case: EncoderCase) -> None:
    """They come back within the stated error, whatever they are counted from."""
    for zero, unit in ((0.0, 1.0), (float(case.numbers.min()), 0.5)):
        encoder, counted = case.fitted(zero, unit), (np.sort(case.numbers) - zero) / unit
        kept = encoder.scale(counted).astype(np.float32)
        off = np.abs(encoder.unscale(kept) - counted).max()
        most = encoder.error(counted[0], counted[-1])
        require(off <= most, f"numbers come back {off:g} off, and it states {most:g}")


def scores_are_of_unit_size(case: EncoderCase) -> None:
    """Networks see numbers around zero."""
    scaled = case.fitted().scale(np.sort(case.numbers))
    require(abs(scaled.mean()) < 1.0, f"the mean of scaled numbers is {scaled.mean():g}")
    require(0.1 < scaled.std() < 10.0, f"their standard deviation is {scaled.std():g}")


def scores_that_are_spread_decode_alike(case: EncoderCase) -> None:
    """What is moved apart stays the number that it was."""
    encoder, ordered = case.fitted(), np.sort(case.numbers)
    scaled = encoder.scale(ordered)
    off = np.abs(encoder.unscale(encoder.spread(scaled)) - encoder.unscale(scaled)).max()
    require(off <= encoder.error(ordered[0], ordered[-1]), f"spreading moves numbers by {off:g}")


def what_it_learned_survives_json(case: EncoderCase) -> None:
    """What is restored encodes alike; what is not its own is refused."""
    encoder, ordered = case.fitted(), np.sort(case.numbers)
    written = json.dumps(encoder.to_dict(), allow_nan=False)
    restored = Encoder.from_dict(json.loads(written))
    same(restored.to_dict(), encoder.to_dict(), "what is written again")
    np.testing.assert_array_equal(restored.scale(ordered), encoder.scale(ordered))
    content = case.table().to_dict()
    same(TableTransformer.from_dict(content).to_dict(), content, "what a table writes again")
    state = content["transformers"][0]["state"]["encoder"]
    for name in list(state["learned"]):
        del state["learned"][name]
        with refused(ArtefactError, f"an encoder without {name!r}"):
            TableTransformer.from_dict(content)


def a_table_has_it_for_one_column(case: EncoderCase) -> None:
    """Columns beside it keep the encoder of the table."""
    frame = pd.DataFrame({"x": case.numbers, "y": case.numbers})
    template = TableTransformer(dict.fromkeys("xy", "continuous"), continuous="standard")
    alone = clone(template).fit(frame).transform(frame)
    both = clone(template).set_params(encoders={"x": case.value}).fit(frame).transform(frame)
    np.testing.assert_array_equal(both[:, -1], alone[:, -1])


def without_the_records_it_needs_histograms_or_is_refused(case: EncoderCase) -> None:
    """Under differential privacy it is a curve of published histograms, or refused by name."""
    template = TableTransformer({"x": "continuous"}, encoders={"x": case.value})
    try:
        curve = case.value.published()
    except ParameterError:
        with refused(ParameterError, "a private fit", says="encoders['x']"):
            check_public(template)
        return
    check_public(template)
    require(isinstance(curve, Curve), f"{curve} is no Curve, and encodes by histograms")
    low, high = float(case.numbers.min()), float(case.numbers.max())
    frame = pd.DataFrame({"x": np.sort(case.numbers)})
    histogram = NoisyHistogram.uninformed(Bounds(low, high), 16)
    table = TableTransformer.from_histograms(frame, {"x": histogram}, template)
    first = TableTransformer.from_histograms(frame[:1], {"x": histogram}, template)
    same(first.to_dict(), table.to_dict(), "the encoding of another table")
    same(TableTransformer.from_dict(table.to_dict()).to_dict(), table.to_dict(), "what is read")
    matrix = table.transform(frame)
    require((np.diff(matrix[:, 0]) >= 0.0).all(), "a larger number has a smaller score")
    inside = np.abs(matrix[:, 0]) < 12.0
    off = np.abs(table.inverse_transform(matrix)["x"] - frame["x"])[inside]
    most = 1e-4 * (high - low)
    require(bool((off <= most).all()), f"numbers come back {off.max():g} off; allowed: {most:g}")


LAWS = (*PARAMETER_LAWS, *laws_of(EncoderCase))


def encoder_checks(encoder: Encoder, numbers: npt.ArrayLike) -> list[Check]:
    """Return the checks of one encoder, for `parametrize_with_checks`."""
    return checks_of(LAWS, EncoderCase(encoder, np.asarray(numbers, np.float64)))


def check_encoder(encoder: Encoder, numbers: npt.ArrayLike) -> None:
    """Check all laws of an encoder.

    Parameters
    ----------
    encoder : Encoder
        Not fitted.
    numbers : array of float, shape (record,)
        Such as it is made for, at least two different ones.

    Raises
    ------
    AssertionError
        Naming the first law that it breaks.

    Examples
    --------
    >>> from vflsynth.columns import Log
    >>> check_encoder(Log(), [0.0, 10.0, 200.0, 35_000.0])
    """
    for check in encoder_checks(encoder, numbers):
        check()
