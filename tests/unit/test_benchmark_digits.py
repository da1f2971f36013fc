"""MNIST's tables for the benchmarks; made up here, as the images are not part of the project."""

import numpy as np
import pandas as pd

from benchmarks import _digits


def test_pixels_keep_their_range_whatever_values_occur():
    pixels = _digits.PIXELS["A"][:3]
    frame = pd.DataFrame([[0, 7, 200], [0, 9, 255]], columns=pixels, dtype=np.uint8)
    transformer = _digits.PixelTransformer().fit(frame)
    coded = transformer.transform(frame)
    np.testing.assert_allclose(coded, frame.to_numpy() / 127.5 - 1, atol=1e-6)
    pd.testing.assert_frame_equal(transformer.inverse_transform(coded), frame)
