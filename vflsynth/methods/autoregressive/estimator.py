"""AutoregressiveSynthesizer: columns in order, and a narrow context of the parties before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pandas as pd
from sklearn.utils.validation import check_is_fitted

from vflsynth._random import RandomState, secret_from
from vflsynth.methods.autoregressive.method import AutoregressiveMethod
from vflsynth.methods.trained import TrainedSynthesizer
from vflsynth.models.completing import weigh_rows
from vflsynth.models.conditions import typed_rows
from vflsynth.registry import Choice, Number, Optional, Rule, check_parameters, register


@register
@dataclass(repr=False, eq=False, kw_only=True)
class AutoregressiveSynthesizer(TrainedSynthesizer):
    """Split autoregressive model: every column given those before it, trained by likelihood.

    Each party learns the density of every own column given its earlier columns and a context of the
    parties before it. The context is all that crosses, and `protocol` says how it is made.

    Parameters
    ----------
    protocol : {"bounded", "trained", "one_message"}, default="bounded"
        How a party learns of the parties before it. "bounded": every party sends fixed random
        features of at most 32,768 records once to a server that owns no table; the server alone
        trains bottlenecks with noise, which the parties apply to their features of all records;
        the server adds the noise and sends each later party one context per record, once; then
        every party trains alone, and learns relations as if without noise, though it can take it
        off no record (`denoising.NoiselessContexts`). "trained": contexts have no noise, and the
        server learns to make them from gradients that the later parties return at every step;
        nothing bounds what they tell. "one_message": features are handed on to the later parties
        as they are, who can read nearly everything from them if they know a few hundred records:
        for parties that may know each other's columns.
    bits_per_record : float, default=8.0
        With "bounded", and at least 1e-6: the most that a record's own context tells about it, in
        bits, whatever the receiver knows (`contexts.bits_of_channel`). What makes contexts was
        trained on all records; what that tells is not bounded.
        Which bits, a party can choose that sends other features than those of its records: 8 are
        enough for a column or two. Without effect otherwise.
    unmatched : {"train", "ignore"}, optional
        What becomes of a party's records that some other party lacks. "train": they train the
        network of that party's columns beside the matched ones, without a context and with a flag
        that says so; synthetic records never have it. Nothing of them crosses. Encoding, shares of
        values and when to stop follow from the matched records alone, which the synthetic records
        are like; records with a value that no matched one has are left out. Default: "train".
    context_dim : int, optional
        Numbers of a context. Default: twice the square root of `bits_per_record`, 2 at least;
        of 2 to 12 numbers for 8 bits 4 and 6 did best; 32 without a bound.
    n_features : int, optional
        Fixed random features that a party sends of every record. Default: 512.
    hidden : int, optional
        Units of the two hidden layers that every column has. Default: 96; 48 of a party with more
        than 64 columns.
    dropout : float, optional
        Share of the hidden units that a training step leaves out. Default: .15 of up to 5,000
        training records, and less of more, 750 over their number.
    batch_size : int, optional
        Records per step. Default: from the number of records, 32 to 256.
    epochs : int, optional
        Most epochs; training ends earlier. An epoch is a pass over the records, or 125 steps of
        one if that is less. Default: 500.
    patience : int, default=10
        Epochs without a better likelihood of the held-out records after which a party stops.
    learning_rate : float, default=2e-3
        Of Adam.
    weight_average : float, default=0.998
        Decay per step of an exponential average of the weights, which is what is looked at and
        kept. 0 uses the weights themselves.
    {column_kinds, contract, structure}
    transformer : TableTransformer, optional
        Cloned for every party. Default: numbers by ranks (`vflsynth.columns.Ranks`); values
        of at least 300 records and one in a hundred, and all values of columns that have at most
        60 and 300 records for each on average, are states.
    {memory_limit, device, random_state, verbose}
    privacy : None
        There is no private mode: a mechanism is refused, with the synthesizers that can have it.

    Attributes
    ----------
    parties_ : dict of str to PartyModel
        Each party's half of the model. A later party's half draws given what the halves of earlier
        ones pass on of their synthetic rows, see `PartyModel.pass_on`.
    {alignment_}
    history_ : DataFrame
        One row per epoch: mean log-likelihood per record, in nats, of every party's columns over
        training and over held-out records (``log_likelihood_*``, ``held_out_*``), the sum of the
        latter over parties (``held_out``), ``seconds``, and which epoch was the last to be
        ``chosen`` by some party.
    {settings_, device_, interrupted_, transcript_}
    privacy_ledger_ : None
        As there is no private mode.

    Notes
    -----
    ``p(x) = prod_party prod_column p(x_j | earlier columns of the party, context of the party)``,
    parties in the order of their names, columns in the tables' order. Categories have a softmax;
    numbers have states (an ordinary value, missing, frequent values) and a mixture of ten Gaussians
    on normal scores, about a linear map of the party's earlier numbers. A tenth of the records, at
    most 16,384, is held out and says when to stop.

    Noise bounds what a context tells of its own record; of all records together it can be taken
    off, since its distribution is known. Contexts without it are latent: a mixture of Gaussians
    that with the noise is distributed as the noisy ones are (Bovy, Hogg and Roweis 2011) proposes
    them, and at every step the likelihood of the columns chooses. Drawn rows, which are nobody's,
    have contexts without noise.

    Of a party with more than 64 columns, each sees the 16 earlier ones of that party which depend
    on it most (`layout.seen_columns`), beside the context: size and time grow with the columns
    and not with their square.

    A record that one party alone has is training data too, unless `unmatched` is "ignore": the
    synthetic table can tell whether it was used. No message has anything of it but through that
    party's mean likelihoods, with "trained" also its gradients, and audits (`vflsynth.audit`) look
    at matched records only.

    Privacy: no differential privacy. The server sees fixed features of records, once, and
    a few numbers of every record. The bound of `bits_per_record` is about one party's contexts and
    one fit: fits add up, and so do the contexts of parties that pool theirs. Models and synthetic
    rows can leak information about records as any model without differential privacy. Encoding by
    ranks keeps values of five records and more, and interpolates between quantiles of the others.

    Examples
    --------
    >>> from vflsynth import AutoregressiveSynthesizer
    >>> from vflsynth.datasets import make_party_frames
    >>> frames = make_party_frames(200, 2, random_state=0)
    >>> synth = AutoregressiveSynthesizer(hidden=8, epochs=2, random_state=0, verbose=0)
    >>> synth.fit(frames, on="record_id").sample(3).shape[0]
    3
    """

    methods: ClassVar = {None: AutoregressiveMethod}

    _rules: ClassVar[Mapping[str, Rule]] = {
        "protocol": Choice(("bounded", "trained", "one_message")),
        "bits_per_record": Number(1e-6),
        "unmatched": Optional(Choice(("train", "ignore"))),
        "context_dim": Optional(Number(1, whole=True)),
        "n_features": Optional(Number(1, whole=True)),
        "hidden": Optional(Number(1, whole=True)),
        "dropout": Optional(Number(0, 1, closed=(True, False))),
        "batch_size": Optional(Number(1, whole=True)),
        "patience": Number(1, whole=True),
        "weight_average": Number(0, 1, closed=(True, False)),
    }

    protocol: Literal["bounded", "trained", "one_message"] = "bounded"
    bits_per_record: float = 8.0
    unmatched: Literal["train", "ignore"] | None = None
    context_dim: int | None = None
    n_features: int | None = None
    hidden: int | None = None
    dropout: float | None = None
    batch_size: int | None = None
    epochs: int | None = None
    patience: int = 10
    learning_rate: float = 2e-3
    weight_average: float = 0.998

    def log_prob(
        self, frame: pd.DataFrame, *, n_draws: int = 64, random_state: RandomState = 0
    ) -> pd.Series[Any]:
        """Estimate how probable records are.

        Parameters
        ----------
        frame : DataFrame, shape (record, column)
            Any of the columns, without keys. A missing value is a value.
        n_draws : int, default=64
            Draws per record over what is not known exactly: columns that are left out, and where
            in its interval a rounded number lies.
        random_state : int, numpy Generator, RandomState or None, default=0

        Returns
        -------
        Series of float64, shape (record,)
            Log probability, a density in the unit of columns whose values may lie anywhere. The
            expectation of its exponential is the model's; attribute ``"effective_sample_size"`` of
            ``.attrs`` tells, per record, how many draws the estimate rests on. Rare categories that
            share a slot count as their slot, numbers beyond the range that was learned as its end.

        Raises
        ------
        ParameterError
            If no party has a column, or `n_draws` is not a whole number ≥ 1.
        PartyDataError
            If a value is none that the model knows.
        """
        check_is_fitted(self, "parties_")
        check_parameters("log_prob", {"n_draws": n_draws}, {"n_draws": Number(1, whole=True)})
        secret = secret_from(random_state)
        known = typed_rows(self.parties_, frame)
        drawn = weigh_rows(self.parties_, known, n_draws, secret, missing_is_value=True)
        found = pd.Series(drawn.log_probability, known.index, name="log_prob")
        found.attrs["effective_sample_size"] = drawn.effective_sample_size.tolist()
        return found
