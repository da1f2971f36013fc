"""VFLGANSynthesizer: party frames in, one synthetic table out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from vflsynth.mechanisms import DPSGD, FirstLayer
from vflsynth.methods.gan.discriminator import PENALTIES, Penalty
from vflsynth.methods.gan.estimator import GANSynthesizer
from vflsynth.methods.vflgan.method import VFLGANMethod
from vflsynth.registry import Choice, Number, Optional, Pair, Rule, Sizes, register


@register
@dataclass(repr=False, eq=False, kw_only=True)
class VFLGANSynthesizer(GANSynthesizer):
    """Vertical federated WGAN-GP with a shared discriminator (VFLGAN).

    Every party trains a private generator and a private local discriminator; a server trains a
    shared discriminator on the parties' intermediate features. The generators are fed the same
    latents, so their outputs are columns of the same synthetic records.

    Parameters
    ----------
    {latent_dim, generator_hidden}
    generator : {"sequential", "parallel"}, optional
        Whether a party's columns are drawn one after the other, in the order of its table and each
        given those before it, or all at once, as in the paper: then they know of each other by the
        latent alone. Default: "sequential", and "parallel" with `privacy` or if a party's
        table has more than 256 encoded columns.
    first_part : sequence of int, optional
        Layer sizes of the first part of every local discriminator; the last one is the width of the
        intermediate features that leave the party. Default: one layer, of a size that follows from
        the encoded width. More or narrower layers show the server less of a record, and relations
        across parties are learned less well.
    shared_hidden : sequence of int, optional
        Hidden layer sizes of the shared discriminator. Default: two layers as wide as the features.
    private_heads : bool, default=True
        False drops the second parts of the local discriminators: VFLGAN-base of the paper's §5.1.2.
    shared_weights : tuple of float, default=(1, 1)
        How much the shared discriminator counts beside the local ones in what discriminators and
        what generators learn (λ_1 of Eq. 8, λ_2 of Eq. 9).
    {bias, batch_norm_eps, gumbel_temperature}
    gradient_penalty : {"end_to_end", "layerwise", "paper"}, optional
        Which slopes are penalised: those above one of whole critics with respect to records, the
        shared one's with respect to joint records; or all that differ from one of the reference
        code's five layer-wise terms, or of the three terms of Eq. 8. Default: "end_to_end", and
        "layerwise" with `privacy`, whose ledgers do not count the exchange that "end_to_end" adds
        to every discriminator step.
    {gradient_penalty_weight}
    discriminator_steps : int, optional
        How often discriminators move per step of the generators (T_d). Default: 1, and 2 with
        `privacy`; the paper has 5.
    {batch_size}
    epochs : int, optional
        Passes over the records. Default: as many as give about 3,600 steps of the generators;
        without `privacy` 7,200 with batches of at most 128 records, which smaller tables have, and
        1,800 with those of 512 or more, which tables of 8,192 records have unless an exchange has
        several steps.
    learning_rate : float, optional
        How far a step goes, for all networks (Adam). Default: 0.001 with batches of 512 records or
        more, and 0.0005 with smaller ones, `privacy` or several `steps_per_exchange`.
    {betas, generator_average, model_selection, evaluate_every, calibrate_marginals, resample}
    calibrate_relations : bool, default=True
        Whether every party then also mends how its columns depend on its earlier ones, by trees
        that tell its generated rows from its records; relations across parties may lose. Trees and
        quantiles in their leaves, means of ten records or more, are in the party's half of the
        model. False is the paper's; nothing without `calibrate_marginals`.
    residuals : bool, default=True
        Whether a number is learned as what a linear regression on the party's earlier columns
        leaves of it, so that columns which all but agree stay as close as they are. The regressions
        are part of the party's half of the model. False is the paper's; not with `privacy`.
    steps_per_exchange : int, default=1
        Discriminator steps that are taken with one exchange of features: 1 is Algorithm 1, which
        has an exchange more per step of the generators. With more, discriminators repeat steps on
        the exchanged batch, with gradients of the others' part from before the first of them, and
        generators move by the same exchange: far fewer messages, for parties that are far apart.
    {wire_precision, column_kinds, contract, structure}
    transformer : TableTransformer, optional
        Cloned for every party. Default: numbers by ranks (`vflsynth.columns.Ranks`), so that what
        a column repeats comes out; ``TableTransformer()`` with `privacy`.
    {memory_limit, device, random_state, verbose}
    privacy : Mechanism, optional
        Differential privacy (Notes): `DPSGD` or `FirstLayer`. With `DPSGD`, `batch_size` is the
        expected number of real records in a batch, `learning_rate` is that of the generators and a
        tenth of the discriminators', and the default is about 3,000 steps; ``max_grad_norm=2`` did
        best.
        {no effect}

    Attributes
    ----------
    {parties_, alignment_}
    history_ : DataFrame
        One row per epoch: Wasserstein estimates and penalties of the shared and the local
        discriminators (``wasserstein_*``, ``penalty_*``), ``seconds``, whether the epoch's
        generators were ``chosen`` in the end, and with ``model_selection="best"`` the
        ``frechet_distance`` between the *encoded* real and fake records. With `DPSGD` there are
        `fake_score_*` instead of Wasserstein estimates, and no distance.
    {settings_, device_, interrupted_, transcript_, privacy_ledger_}

    Notes
    -----
    Source: VFLGAN §3 and Algorithm 1.

    Departs from the paper, also where its text and code differ or say nothing: Adam instead of
    plain descent (as the code); two penalties by name; numbers are encoded by ranks and learned as
    residuals; the Fréchet distance of model selection is computed from masked records, so that
    nobody sees the joint table (`vflsynth.protocol.messages`).

    Privacy: without `privacy`, none. The synthetic table, the generators and the intermediate
    features can leak information about single records. `DPSGD` publishes noisy histograms of the
    columns and, at every step, noisy sums of clipped per-record gradients of all discriminator
    parameters over a Poisson sample, and takes the gradient penalty between fakes. `FirstLayer`,
    the paper's, gives the synthetic table no guarantee and warns. Noise and samples of records are
    drawn from the operating system whatever `random_state` is, so that two fits differ and each
    spends the whole budget anew. `save` leaves out alignment, transcript and running times. The
    ledger says what is not covered.

    Examples
    --------
    >>> from vflsynth import VFLGANSynthesizer
    >>> from vflsynth.datasets import make_party_frames
    >>> frames = make_party_frames(200, 2, random_state=0)
    >>> synth = VFLGANSynthesizer(epochs=2, random_state=0, verbose=0).fit(frames, on="record_id")
    >>> synth.sample(3).shape[0]
    3
    """

    _rules: ClassVar[Mapping[str, Rule]] = {
        "generator": Optional(Choice(("sequential", "parallel"))),
        "first_part": Optional(Sizes()),
        "shared_hidden": Optional(Sizes(at_least=0)),
        "private_heads": Choice((True, False)),
        "shared_weights": Pair(Number(0, closed=(False, True))),
        "gradient_penalty": Optional(Choice(PENALTIES)),
        "discriminator_steps": Optional(Number(1, whole=True)),
        "learning_rate": Optional(Number(0, closed=(False, True))),
        "steps_per_exchange": Number(1, whole=True),
        "calibrate_relations": Choice((True, False)),
        "residuals": Choice((True, False)),
    }

    methods: ClassVar = dict.fromkeys((None, DPSGD, FirstLayer), VFLGANMethod)

    generator: Literal["sequential", "parallel"] | None = None
    first_part: Sequence[int] | None = None
    shared_hidden: Sequence[int] | None = None
    private_heads: bool = True
    shared_weights: tuple[float, float] = (1.0, 1.0)
    gradient_penalty: Penalty | None = None
    steps_per_exchange: int = 1
    discriminator_steps: int | None = None  # type: ignore[assignment]
    learning_rate: float | None = None  # type: ignore[assignment]
    generator_average: float = 0.998
    residuals: bool = True
    calibrate_relations: bool = True
