"""VFLGANSynthesizer: party frames in, one synthetic table out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from vflsynth._random import RandomState
from vflsynth._validation import Choice, Number, Optional, Rule, Sizes
from vflsynth.columns import TableTransformer
from vflsynth.contract import Contract
from vflsynth.mechanisms import DPSGD, FirstLayer, MeanEmbedding, Mechanism
from vflsynth.methods import MeanEmbeddingMethod, VFLGANMethod
from vflsynth.networks import PENALTIES, Penalty
from vflsynth.protocol import PRECISIONS, Precision
from vflsynth.registry import register
from vflsynth.synthesizers.gan import RULES, GANSynthesizer


@register
class VFLGANSynthesizer(GANSynthesizer):
    """Vertical federated WGAN-GP with a shared discriminator (VFLGAN).

    Every party trains a private generator and a private local discriminator; a server trains a
    shared discriminator on the parties' intermediate features. The generators are fed the same
    latents, so their outputs are columns of the same synthetic records.

    Parameters
    ----------
    latent_dim : int, optional
        Random numbers that one synthetic record is made of, the same at all parties (the paper's
        l). Default: from the encoded width.
    generator_hidden : sequence of int, optional
        Hidden layer sizes of every generator. Default: from the encoded width.
    generator : {"sequential", "parallel"}, optional
        Whether a party's columns are drawn one after the other, in the order of its table and each
        given those before it, or all at once, as in the paper: then they know of each other by the
        latent alone. Default: "sequential", and "parallel" with `privacy`.
    first_part : sequence of int, optional
        Layer sizes of the first part of every local discriminator; the last one is the width of the
        intermediate features that leave the party. Default: one layer, of a size that follows from
        the encoded width. More or narrower layers show the server less of a record, and relations
        across parties are learned less well.
    shared_hidden : sequence of int, optional
        Hidden layer sizes of the shared discriminator. Default: two layers as wide as the features.
    private_heads : bool, default=True
        False drops the second parts of the local discriminators: VFLGAN-base of the paper's §5.1.2.
    bias : bool, default=True
        Whether hidden and discriminator layers have biases.
    batch_norm_eps : float or None, default=1e-5
        Of the generators' batch normalisation (the reference code has 0.8); None leaves it out.
    gumbel_temperature : float, default=0.2
        How soft the choice between categories is that generators are trained with; small is nearly
        a hard choice (straight-through Gumbel-softmax).
    gradient_penalty : {"end_to_end", "layerwise", "paper"}, optional
        Which slopes are held near one: of whole critics with respect to records, the shared one's
        with respect to joint records; the reference code's five layer-wise terms; or the three
        terms of Eq. 8. Default: "end_to_end", and "layerwise" with `privacy`, whose ledgers do not
        count the exchange that "end_to_end" adds to every discriminator step.
    gradient_penalty_weight : float, default=10
        How strongly the slope of discriminators is held near one: large is smooth and slow, small
        may diverge (λ of Eq. 3).
    discriminator_steps : int, default=2
        How often discriminators move per step of the generators (T_d).
    batch_size : int, optional
        Records per discriminator step. Default: from the number of records.
    epochs : int, optional
        Passes over the records. Default: as many as give about 7,200 discriminator steps.
    learning_rate : float, default=5e-4
        How far a step goes, for all networks (Adam).
    betas : tuple of float, default=(0.5, 0.999)
        How long steps and their sizes are remembered, 0 to 1 (decay rates of Adam's moments).
    generator_average : float, default=0.998
        Decay per generator step of an exponential average of the generators, which is then what is
        evaluated, kept and sampled from. 0 uses the generators themselves.
    model_selection : {"best", "last"}, default="best"
        Keep the generators of the epoch with the lowest Fréchet distance, or those of the last.
    evaluate_every : int, default=1
        Epochs between evaluations of the Fréchet distance.
    calibrate_marginals : bool, default=True
        Whether every party, once training is over, gives its generated columns the marginals of its
        records: categories their shares, numbers their quantiles, each the mean of ten records or
        more. Order stays, and with it the relations between columns. False is the paper's.
    steps_per_exchange : int, default=1
        Discriminator steps that are taken with one exchange of features: 1 is Algorithm 1, which
        has an exchange more per step of the generators. With more, discriminators repeat steps on
        the exchanged batch, with gradients of the others' part from before the first of them, and
        generators move by the same exchange: far fewer messages, for parties that are far apart.
    wire_precision : {"float32", "float16", "int8"}, default="float32"
        Of features and their gradients as they are exchanged. With fewer bits a model is another
        one, but the same in one process and across processes.
    column_kinds : mapping, optional
        Column label to kind, over all parties: "continuous", "integer", "boolean", "categorical",
        "ordered", "datetime". Default: inferred, see `vflsynth.columns.kinds.infer_kind`.
    contract : Contract, optional
        What is modelled, what may come out and which rules hold in every sampled row, see
        `vflsynth.contract`.
    transformer : TableTransformer, optional
        Cloned for every party. Default: ``TableTransformer()``.
    memory_limit : float, optional
        Bytes that a fit may take by our estimate. Default: 90 % of what is free now.
    device : str, default="auto"
        "auto" takes a GPU when there is one; else a torch device.
    random_state : int, numpy Generator, RandomState or None, default=None
        Seeds everything; on one CPU the same integer gives the same bytes.
    verbose : int, default=1
        0 shows no progress bar.
    privacy : Mechanism, optional
        Differential privacy (Notes): `MeanEmbedding`, `DPSGD` or `FirstLayer` of
        `vflsynth.mechanisms`. A parameter that has no effect with a mechanism is refused if it is
        not the default. `MeanEmbedding` replaces the discriminators: what is about them or about
        evaluation, `learning_rate`, `betas` and `generator_average` have none; an epoch is 100
        steps (default 25) with batches of 512 fakes. With `DPSGD` nothing is evaluated either:
        `model_selection`, `evaluate_every` and `calibrate_marginals` have none, `batch_size` is the
        expected number of real records in a batch, `learning_rate` is that of the generators and a
        tenth of the discriminators', and the default is about 3,000 steps. In our experiments
        ``max_grad_norm=2`` did best. With `FirstLayer` all parameters
        are as without.

    Attributes
    ----------
    parties_ : dict of str to PartyModel
        Each party's half of the model.
    alignment_ : AlignmentReport
        Matched, dropped and duplicated records per party.
    history_ : DataFrame
        One row per epoch: Wasserstein estimates and penalties of the shared and the local
        discriminators (``wasserstein_*``, ``penalty_*``), ``frechet_distance`` between the
        *encoded* real and fake records, ``seconds``, and whether the epoch's generators were
        ``chosen`` in the end. There is no distance with ``model_selection="last"``. With
        `MeanEmbedding` there are only `squared_distance`, of the fakes' mean embedding from what
        was made of the release, ``seconds`` and ``chosen``; with `DPSGD` `fake_score_*` instead of
        Wasserstein estimates, no distance, and no penalties where these are taken at records.
    settings_ : dict
        Sizes and rates after defaults were filled in.
    device_ : str
        Where it was trained.
    interrupted_ : bool
        Whether Ctrl-C ended training early.
    transcript_ : DataFrame or None
        Messages and bytes per boundary, if ``fit(transcript=True)``.
    privacy_ledger_ : PrivacyLedger or None
        What was released, what it cost and what it does not cover; print it. None without
        `privacy`.

    Notes
    -----
    Source: VFLGAN §3 and Algorithm 1.

    Departs from the paper where its text and code differ or say nothing: Adam instead of plain
    descent (as the code); two penalties by name; standardisation divides by the standard deviation
    (Eq. 22 says variance); the Fréchet distance of model selection is computed from masked records,
    so that nobody sees the joint table (`vflsynth.protocol.messages`).

    Privacy: without `privacy`, none. The synthetic table, the generators and the intermediate
    features can leak information about single records. With `MeanEmbedding` parties publish noisy
    histograms of their columns and, through a trusted server, the noisy mean of random Fourier
    features of the joint records (DP-MERF); encodings and generators are computed from these alone.
    `DPSGD` publishes the histograms and, at every step, noisy sums of clipped per-record gradients
    of all discriminator parameters over a Poisson sample, and takes the gradient penalty between
    fakes, or at records and then as part of what is clipped (``gradient_penalty_at="records"``).
    `FirstLayer`, the paper's, gives the synthetic table no guarantee and warns. Noise and samples
    of records are drawn from the operating system whatever `random_state` is, so that two fits
    differ and each spends the whole budget anew. `save` leaves out alignment,
    transcript and running times. The ledger says what is not covered.

    Examples
    --------
    >>> from vflsynth import VFLGANSynthesizer
    >>> from vflsynth.datasets import make_party_frames
    >>> frames = make_party_frames(200, 2, random_state=0)
    >>> synth = VFLGANSynthesizer(epochs=2, random_state=0, verbose=0).fit(frames, on="record_id")
    >>> synth.sample(3).shape[0]
    3
    """

    def __init__(
        self,
        *,
        latent_dim: int | None = None,
        generator_hidden: Sequence[int] | None = None,
        generator: Literal["sequential", "parallel"] | None = None,
        first_part: Sequence[int] | None = None,
        shared_hidden: Sequence[int] | None = None,
        private_heads: bool = True,
        bias: bool = True,
        batch_norm_eps: float | None = 1e-5,
        gumbel_temperature: float = 0.2,
        gradient_penalty: Penalty | None = None,
        gradient_penalty_weight: float = 10.0,
        discriminator_steps: int = 2,
        batch_size: int | None = None,
        epochs: int | None = None,
        learning_rate: float = 5e-4,
        betas: tuple[float, float] = (0.5, 0.999),
        generator_average: float = 0.998,
        model_selection: Literal["best", "last"] = "best",
        evaluate_every: int = 1,
        calibrate_marginals: bool = True,
        steps_per_exchange: int = 1,
        wire_precision: Precision = "float32",
        column_kinds: Mapping[Any, str] | None = None,
        contract: Contract | None = None,
        transformer: TableTransformer | None = None,
        memory_limit: float | None = None,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: int = 1,
        privacy: Mechanism | None = None,
    ) -> None:
        self.latent_dim = latent_dim
        self.generator_hidden = generator_hidden
        self.generator = generator
        self.first_part = first_part
        self.shared_hidden = shared_hidden
        self.private_heads = private_heads
        self.bias = bias
        self.batch_norm_eps = batch_norm_eps
        self.gumbel_temperature = gumbel_temperature
        self.gradient_penalty = gradient_penalty
        self.gradient_penalty_weight = gradient_penalty_weight
        self.discriminator_steps = discriminator_steps
        self.batch_size = batch_size
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.betas = betas
        self.generator_average = generator_average
        self.model_selection = model_selection
        self.evaluate_every = evaluate_every
        self.calibrate_marginals = calibrate_marginals
        self.steps_per_exchange = steps_per_exchange
        self.wire_precision = wire_precision
        self.column_kinds = column_kinds
        self.contract = contract
        self.transformer = transformer
        self.memory_limit = memory_limit
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.privacy = privacy

    _rules: ClassVar[Mapping[str, Rule]] = {
        **RULES,
        "generator": Optional(Choice(("sequential", "parallel"))),
        "first_part": Optional(Sizes()),
        "shared_hidden": Optional(Sizes(at_least=0)),
        "private_heads": Choice((True, False)),
        "gradient_penalty": Optional(Choice(PENALTIES)),
        "steps_per_exchange": Number(1, whole=True),
        "wire_precision": Choice(PRECISIONS),
    }

    methods: ClassVar = {
        None: VFLGANMethod,
        MeanEmbedding: MeanEmbeddingMethod,
        DPSGD: VFLGANMethod,
        FirstLayer: VFLGANMethod,
    }
