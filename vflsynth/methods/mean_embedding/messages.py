"""What parties and the server tell each other of a noisy mean embedding."""

from __future__ import annotations

import torch
from torch import Tensor

from vflsynth.learning.messages import UNIFORM
from vflsynth.protocol.declaration import REAL, MadeOf, Message, When, holds, message


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    when=When.BLOCK,
    slow=True,
    masked=True,
    contents="of angles w_i^k x_i of the block's records, each with a dither that is drawn of the "
    "shared secret, points of the circle (2, b, K, bytes), masked, or turns in 2^8ths of the "
    "circle (b, K); both at parties but the first and last of three and more; at which frequencies "
    "a record counts, drawn of the secret and sorted",
    tells=UNIFORM + ", and whatever it does (`vflsynth.secure.rotations`)",
)
class MaskedPoints(Message):
    """Masked points and turns of a block of records: `vflsynth.secure.Turning`."""

    points: Tensor = holds(torch.uint8, 2, "masked record", "frequency", "byte")
    turns: Tensor = holds(torch.uint8, "turned record", "frequency")
    windows: Tensor = holds(torch.int32, "record")


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    slow=True,
    contents="counts of the cells of all columns, with discrete Gaussian noise, in whole steps; "
    "the noise; which columns are numeric; where their bins begin and end, between 0 and 1; the "
    "seed of the public random frequencies",
    tells="published; the privacy ledger counts it. No name, unit or label of a column",
)
class NoisyHistograms(Message):
    """Published counts of a party's columns, one after the other, and what they are counts of.

    Counts are whole numbers of steps; those of column i are ``2**exponents[i]``, and their noise
    has standard deviation ``noise_stds[i]``, in counts. Bins of numeric columns, one column's after
    the other, are where `lows` and `highs` say, scaled to the unit interval. The encoding of the
    columns follows, but for names, units and labels. `seed`, uint8 of shape (32,), is that of the
    party's frequencies.
    """

    counts: Tensor = holds(torch.int64, "cell")
    n_cells: Tensor = holds(torch.int64, "column")
    exponents: Tensor = holds(torch.int64, "column")
    noise_stds: Tensor = holds(torch.float64, "column")
    numeric: Tensor = holds(torch.bool, "column")
    lows: Tensor = holds(torch.float64, "bin")
    highs: Tensor = holds(torch.float64, "bin")
    seed: Tensor = holds(torch.uint8, 32)


@message(
    from_party=False,
    made_of=MadeOf.RECORDS,
    contents="at how many of the K random frequencies every record counts",
    tells="a function of the noisy histograms: how many records there are, about",
)
class WindowWidth(Message):
    """At how many frequencies, of those that were planned, the server lets a record count."""

    width: int


@message(
    from_party=False,
    made_of=MadeOf.NETWORKS,
    contents="weights of the party's generator (R, weights)",
    tells="a function of the noisy releases",
)
class GeneratorWeights(Message):
    """A party's generator, which the server trained on the noisy releases, (replica, weight)."""

    weights: Tensor = holds(REAL, "replica", "weight")
