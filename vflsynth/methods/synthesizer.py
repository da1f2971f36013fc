"""What every synthesizer is: parameters, a method for every mechanism, and a fitted form."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, overload

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from vflsynth import _artefacts as artefacts
from vflsynth._device import available_memory, resolve_device
from vflsynth._random import RandomState, derive, secret_from
from vflsynth._version import __version__
from vflsynth.codec import as_frame, parameters_from_json, parameters_to_json
from vflsynth.columns import TableTransformer
from vflsynth.columns.public import typed_frames
from vflsynth.contract import Contract, Cost, Rule, index_columns, prepared_parties, with_public
from vflsynth.exceptions import (
    ArtefactError,
    MemoryLimitError,
    NoPrivacyWarning,
    ParameterError,
    PublishingWarning,
    warn_user,
)
from vflsynth.frames import AlignmentReport, DrawnRecords, MatchOn, key_of
from vflsynth.frames.keys import align_keys
from vflsynth.frames.party_frames import (
    check_party_frames,
    is_matched,
    party_keys,
    without_labels_of_others,
)
from vflsynth.learning import Method
from vflsynth.mechanisms import HistogramMechanism, Mechanism
from vflsynth.mechanisms.base import in_full_precision
from vflsynth.methods.parameters import (
    WithParts,
    check_combination,
    document,
    mechanism_of,
    rules_of,
)
from vflsynth.methods.parts import PART_ROWS, call_of, sample_parts
from vflsynth.models import PartyModel
from vflsynth.models.conditions import complete_rows, contract_rules, sample_given
from vflsynth.models.party_model import sample_parties
from vflsynth.models.satisfying import enforce
from vflsynth.privacy import PrivacyAccount, PrivacyLedger
from vflsynth.registry import Jobs, Number, check_parameters, full_name
from vflsynth.registry import Rule as Range
from vflsynth.reporting import size_text
from vflsynth.run.joined import JoinedRun
from vflsynth.run.local import LocalRun, Options
from vflsynth.run.party_run import party_templates
from vflsynth.run.server_run import history_frame, history_from_json, history_to_json

PartyFrames = Mapping[str, pd.DataFrame]

Conditions = Mapping[Any, Any] | pd.DataFrame
"""Column to value, values or `vflsynth.Range`; or partly filled rows."""

KIND = "vflsynth model"
"""What the manifest of a saved model says."""


def refuse_drawn(method: Method) -> None:
    """Refuse records that `read_records` drew where a ledger counts (ParameterError)."""
    if method.privacy is not None:
        raise ParameterError(
            "privacy does not go with max_records: of a fixed number of records that are drawn, "
            "one more or less in a table changes two, and the ledger counts one. Fix: read whole "
            "tables with read_table, or leave privacy out"
        )


def _matched(frames: PartyFrames, on: Any) -> dict[str, npt.NDArray[np.bool_]]:
    """Say which rows of every table all others have, too: nothing is learned of the rest."""
    keys = {name: party_keys(frame, key_of(on, name)) for name, frame in frames.items()}
    common, _ = align_keys(keys, matched_by=str(MatchOn.reading(on)))
    return {name: is_matched(f, key_of(on, name), common) for name, f in frames.items()}


class _Fitted(WithParts):
    """What a fit leaves, and what counts where a synthesizer has no such parameter."""

    structure: str = "exact"
    device: str = "cpu"
    verbose: int = 0
    memory_limit: float | None = None
    privacy: Mechanism | None = None
    parties_: dict[str, PartyModel]
    alignment_: AlignmentReport | None
    history_: pd.DataFrame
    settings_: dict[str, Any]
    device_: str
    interrupted_: bool
    transcript_: pd.DataFrame | None
    privacy_ledger_: PrivacyLedger | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out of copies and pickles what `save` leaves out: numbers of records."""
        state: dict[str, Any] = dict(super().__getstate__())
        gone = ("alignment_", "transcript_") if self._numbers_are_private else ()
        return state | {name: None for name in gone if name in state}

    @property
    def _numbers_are_private(self) -> bool:
        """Whether nothing but what a ledger pays for may be told of the records of a fit."""
        ledger = self.privacy_ledger_
        return ledger is not None and ledger.covers_synthetic_data


@dataclass(repr=False, eq=False, kw_only=True)
class BaseSynthesizer(_Fitted):
    """A scikit-learn estimator over party frames whose fitted form is one model per party.

    Subclasses add parameters, with rules for them, and say by which method they learn with which
    mechanism.
    """

    registry_group: ClassVar[str] = "synthesizers"

    methods: ClassVar[Mapping[type[Mechanism] | None, type[Method]]]
    """The method for every mechanism that the synthesizer can have; None is without privacy."""

    joins: ClassVar[bool] = False
    """Whether it joins the parties' tables, which no message may carry."""

    _rules: ClassVar[Mapping[str, Range]] = {}

    column_kinds: Mapping[Any, str] | None = None
    contract: Contract | None = None
    transformer: TableTransformer | None = None
    random_state: RandomState = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        document(cls)

    def _stated(self) -> Self:
        """Return this estimator in full precision, with the mechanism that a text names."""
        stated: Self = in_full_precision(self)
        if isinstance(self.privacy, str):
            stated = clone(stated).set_params(privacy=mechanism_of(self.privacy))
        return stated

    # -- fitting ---------------------------------------------------------------------------------

    def fit(
        self,
        party_frames: PartyFrames,
        on: Any = None,
        *,
        transcript: bool = False,
        account: PrivacyAccount | str | os.PathLike[str] | None = None,
    ) -> Self:
        """Match the parties' records and learn.

        Parameters
        ----------
        party_frames : mapping of str to DataFrame
            One table per party; never modified, never joined.
        on : hashable, mapping of str to hashable, or MatchOn, optional
            Key column of every table, or of each party's; `vflsynth.MatchOn` also says in which
            form keys are compared. Default: the index.
        transcript : bool, default=False
            Count every message that crosses a boundary, in `transcript_`.
        account : PrivacyAccount or path-like, optional
            With `privacy`: everything that is released is booked there before it is, and a fit that
            would overshoot the budget in it is refused. See `vflsynth.privacy.PrivacyAccount`.

        Returns
        -------
        self

        Raises
        ------
        PartyDataError
            One of its children for every way in which tables can be unusable.
        ParameterError
            If a parameter is out of range, or does not go with another.
        PrivacyBudgetError
            If `account` has too little left; nothing was released.
        ArtefactError
            If there is no such account, or it is damaged.
        """
        options = Options(transcript=transcript, account=account)
        self._fit_models([self], party_frames, on, options)
        return self

    def method(self, noise: torch.Generator | None = None) -> Method:
        """Check all parameters, and return the method that they ask for.

        ParameterError if one is out of range, or does not go with another. `noise` is for tests
        only, see `vflsynth.privacy.noise`.
        """
        if (stated := self._stated()) is not self:
            return stated.method(noise)
        rules = rules_of(type(self), self._rules)
        check_parameters(type(self).__name__, self.get_params(deep=False), rules)
        check_combination(self)
        kind, privacy = None if self.privacy is None else type(self.privacy), self.privacy
        if self.contract is not None and isinstance(privacy, HistogramMechanism):
            schema = with_public(privacy.public_schema, self.contract)
            privacy = clone(privacy).set_params(public_schema=schema)
        return self.methods[kind](self, privacy, noise)

    def _fit_models(
        self,
        models: Sequence[Self],
        party_frames: PartyFrames,
        on: Any,
        options: Options,
        *,
        noise: torch.Generator | None = None,
    ) -> LocalRun:
        """Fit models that differ in `random_state` only, all at once."""
        stated = self._stated()
        method = stated.method(noise)
        check_combination(stated, n_models=len(models), options=options)
        if stated.privacy is not None and not stated.privacy.protects_synthetic_data:
            warn_user(
                f"{type(stated.privacy).__name__} does not protect the synthetic data: its epsilon "
                "is the budget of the gradients that it perturbs only. It is for reproduction and "
                "comparison; DPSGD protects the synthetic data",
                NoPrivacyWarning,
            )
        run = self._local_run(
            method, party_frames, on, options, [secret_from(m.random_state) for m in models]
        )
        run.run()
        halves = run.halves()
        transcript = run.transcript
        ledger = None if method.plan is None else method.plan.ledger.of_one_of(len(models))
        for replica, model in enumerate(models):
            model.parties_ = {name: found[replica] for name, found in halves.items()}
            for name, preparation in run.preparations.items():
                model.parties_[name].preparation = preparation
            model.alignment_ = run.alignment
            history = history_frame(run.history, replica)
            if ledger is not None and ledger.covers_synthetic_data:  # times depend on batches
                history = history.drop(columns="seconds", errors="ignore")
            model.history_ = history
            bound = {"contract": (self.contract or Contract()).digest}
            if ledger is not None:
                bound["account"] = run.booked
            model.settings_ = method.reported(run.settings, run.duration) | bound
            model.device_, model.interrupted_ = str(run.device), run.interrupted
            model.transcript_ = None if transcript is None else transcript.to_frame()
            model.privacy_ledger_ = ledger
            model._secret, model._n_samples = derive(run.secrets[replica], "samples"), 0
        return run

    def _local_run(
        self,
        method: Method,
        party_frames: PartyFrames,
        on: Any,
        options: Options,
        secrets: Sequence[bytes],
    ) -> LocalRun:
        """Check the tables, prepare them as a contract says, and seat the parties."""
        if isinstance(party_frames, DrawnRecords):
            refuse_drawn(method)
        device = resolve_device(self.device)
        schema, private = method.public_schema, method.is_private
        may_be_empty = private or self.contract is not None
        frames = check_party_frames(
            party_frames, on, allow_empty_columns=may_be_empty, private=private
        )
        if private:
            frames = typed_frames(frames, schema, on)
        else:
            self._warn_of_index_columns(frames, on)
        templates = party_templates(self.transformer, self.column_kinds, frames, on, schema)
        matched = {} if private else _matched(frames, on)
        looked_at = {
            name: without_labels_of_others(frames[name][own], frames[name])
            for name, own in matched.items()
        }
        prepared, templates = prepared_parties(
            self.contract,
            looked_at or frames,
            on,
            templates,
            private=private,
            exact=self.structure == "exact",
            copies=method.copies,
        )
        for name, own in prepared.items():
            frames[name] = own.apply(frames[name], matched.get(name))
            schema = own.schema(schema)
        run = (JoinedRun if self.joins else LocalRun)(
            method,
            frames,
            on,
            secrets=secrets,
            device=device,
            templates=templates,
            schema=schema,
            options=options,
            least_records=(self.contract or Contract()).fewest_records,
        )
        run.preparations = prepared
        if isinstance(party_frames, DrawnRecords):
            run.stand_for(party_frames)
        return run

    def _warn_of_index_columns(self, frames: PartyFrames, on: Any) -> None:
        for party, frame in frames.items():
            said = {} if self.contract is None else self.contract.of(party).columns
            declared = {key_of(on, party), *said, *(self.column_kinds or {})}
            for label in index_columns(frame):
                if label not in declared:
                    warn_user(
                        f"party {party!r}: column {label!r} looks like the row number that a csv "
                        "file kept of a table's index, and is modelled and published as a number. "
                        "Fix: drop it, or give it the role 'identifier' in a contract",
                        PublishingWarning,
                    )

    # -- sampling --------------------------------------------------------------------------------

    @overload
    def sample(
        self,
        n: int,
        *,
        by_party: Literal[False] = False,
        keys: bool = False,
        conditions: Conditions | None = None,
        random_state: RandomState = None,
    ) -> pd.DataFrame: ...

    @overload
    def sample(
        self,
        n: int,
        *,
        by_party: Literal[True],
        keys: bool = False,
        conditions: Conditions | None = None,
        random_state: RandomState = None,
    ) -> dict[str, pd.DataFrame]: ...

    def sample(
        self,
        n: int,
        *,
        by_party: bool = False,
        keys: bool = False,
        conditions: Conditions | None = None,
        random_state: RandomState = None,
    ) -> pd.DataFrame | dict[str, pd.DataFrame]:
        """Sample synthetic records.

        Parameters
        ----------
        n : int
            Number of records; exactly so many are returned.
        by_party : bool, default=False
            Return one table per party, row i of each being the same record.
        keys : bool, default=False
            Put fresh keys, which no real record has, into the key column (or the index). Every call
            counts from the same one, so that parties that sample apart agree; sample once for one
            table.
        conditions : mapping or DataFrame, optional
            Columns of any party to what they must be: a value (None if missing), a list of values,
            or `vflsynth.Range`. A frame of n partly filled rows gives one record for each, see
            `complete`. Records are drawn from the model given the conditions: draws that do not
            satisfy them are thrown away, which is exact (``.attrs["acceptance_rate"]``, the share
            of the model's records that do); where too few would be left, an
            `AutoregressiveSynthesizer` weighs draws, by sequential importance sampling
            (``.attrs["effective_sample_size"]``, per record; exact if the columns come first in its
            order), and others raise `ConditionError`. A `MixtureSynthesizer` and a
            `DPLTSynthesizer` draw given the conditions at once, which is exact, too. Rules of the
            contract hold in these records, too; what that cost, `rule_cost` tells. With a guarantee
            for the synthetic data this is post-processing: it costs nothing. What a frame gives
            comes out as it was given, and no guarantee is about that.
        random_state : int, numpy Generator, RandomState or None, default=None
            None continues the sequence that `fit`'s ``random_state`` started: two calls return
            different records, and the same calls after the same fit return the same.

        Returns
        -------
        DataFrame, shape (n, column), or dict of str to DataFrame
            All parties' columns in the order of the party frames, with their original dtypes.

        Raises
        ------
        ParameterError
            If `n` is not a whole number ≥ 0.
        ConditionError
            If no party has a column of `conditions`, or its values hardly ever are so.
        PartyDataError
            If a value that is asked for is none that its column can have.
        KeyTypeError
            If the keys' type has no room for n fresh ones.
        RuleError
            If hardly any drawn row keeps the rules of the contract.
        MemoryLimitError
            If so many records are more than there is memory for.
        """
        check_is_fitted(self, "parties_")
        check_parameters("sample", {"n": n}, {"n": Number(0, whole=True)})
        n = int(n)  # small types of NumPy wrap around
        self._check_memory(n)
        secret = self._next_secret(random_state)
        if conditions is None:
            parts = self.draw_rows(n, secret)
        else:
            parts, self._cost = sample_given(self.parties_, n, conditions, secret)
        if by_party:
            if keys:
                parts = {name: self.parties_[name].add_keys(part) for name, part in parts.items()}
            return parts
        table = pd.concat(list(parts.values()), axis=1)
        return next(iter(self.parties_.values())).add_keys(table) if keys else table

    def sample_to(
        self,
        folder: str | os.PathLike[str],
        n: int,
        *,
        n_jobs: int | None = None,
        part_rows: int = PART_ROWS,
        keys: bool = False,
        random_state: RandomState = None,
    ) -> list[Path]:
        """Sample into a folder of parquet files, in bounded memory and on several cores.

        Parameters
        ----------
        folder : path-like
            Gets ``part-00000.parquet`` and so on, each under its name once it is complete. A folder
            with parts of the same sample is continued: what is there is not drawn again.
        n : int
            Number of records.
        n_jobs : int, optional
            Parts drawn at a time, as joblib understands it, also ``-1`` for all cores;
            ``joblib.parallel_config`` decides by default, and chooses where they run.
        part_rows : int, default=65536
            Records of a part, which is what a worker holds at a time.
        keys : bool, default=False
            As in `sample`; keys count through all parts.
        random_state : int, numpy Generator, RandomState or None, default=None
            As in `sample`.

        Returns
        -------
        list of Path
            The files, in order. The same for any number of workers, byte for byte, and other
            records than `sample` draws, as every part is drawn on its own. On a GPU they differ
            by rounding.

        Raises
        ------
        ParameterError
            If a number is out of range.
        ArtefactError
            If the folder has something else, or is a file.
        KeyTypeError, RuleError
            As in `sample`.

        Notes
        -----
        Rules of the contract are kept in every part. Privacy: as for `sample`.
        """
        check_is_fitted(self, "parties_")
        rules = {"n": Number(0, whole=True), "part_rows": Number(1, whole=True), "n_jobs": Jobs()}
        check_parameters("sample_to", {"n": n, "part_rows": part_rows, "n_jobs": n_jobs}, rules)
        n, part_rows, path, call = int(n), int(part_rows), Path(folder), None
        if random_state is not None:
            secret = secret_from(random_state)
        elif (call := call_of(path)) is not None:  # the sample that was begun
            secret = derive(self._secret, f"call {call}")
        else:
            call, secret = self._n_samples, self._next_secret(None)
        return sample_parts(
            self, path, n, secret, call, part_rows=part_rows, n_jobs=n_jobs, keys=keys
        )

    def complete(
        self, frame: pd.DataFrame, *, n_draws: int = 64, random_state: RandomState = None
    ) -> pd.DataFrame:
        """Draw what a table lacks: columns, all those of a party for instance, and missing cells.

        Parameters
        ----------
        frame : DataFrame, shape (record, column)
            Any of the columns, without keys. A missing cell gets a value that is not missing,
            unless an exact relation of the party's records says that it has none.
        n_draws : int, default=64
            Draws per record, one of which is chosen by its weight.
        random_state : int, numpy Generator, RandomState or None, default=None
            As in `sample`.

        Returns
        -------
        DataFrame, shape (record, column)
            All columns, with what `frame` gives as it was given. The attribute
            ``"effective_sample_size"`` of ``.attrs`` tells, per record, how many draws there were
            to choose from, rules of the contract being kept.

        Raises
        ------
        ConditionError
            If no party has a column, or no draw resembles a record.
        RuleError
            If what is given breaks a rule of the contract.
        ParameterError
            If `n_draws` is not a whole number ≥ 1.
        PartyDataError
            If a value is none that the model knows.

        Notes
        -----
        An `AutoregressiveSynthesizer` weighs draws by the probability of what is given, which is
        exact where that comes before what is drawn, and in the limit of many draws; a number that
        is often another column's counts as none of it where only itself is given. Draws of a
        `MixtureSynthesizer` or a `DPLTSynthesizer` are exact, but that numbers where it has none
        count as the nearest that it has. Of all others at least 20,000 records are drawn and
        resampled: categories agree with those given, and numbers are near (a Gaussian kernel on
        ranks, a twentieth of the records wide).

        Privacy: post-processing of the model. What is given is not protected by it.
        """
        check_is_fitted(self, "parties_")
        check_parameters("complete", {"n_draws": n_draws}, {"n_draws": Number(1, whole=True)})
        secret = self._next_secret(random_state)
        frame = as_frame(frame)
        parts, self._cost = complete_rows(self.parties_, frame, int(n_draws), secret)
        return pd.concat(list(parts.values()), axis=1).set_index(frame.index)

    def _check_memory(self, n: int) -> None:
        """Refuse a table that is larger than what memory is left; a gigabyte is always tried."""
        encoders = [half.transformer.transformers_.values() for half in self.parties_.values()]
        dtypes = [column.dtype_ for own in encoders for column in own]
        sizes = (1 if dtype == "category" else getattr(dtype, "itemsize", 8) for dtype in dtypes)
        needed = n * sum(sizes)
        free = available_memory(torch.device("cpu")) if needed > 2**30 else None
        if free is not None and needed > free:
            raise MemoryLimitError(
                f"{n:,} records take at least {size_text(needed)} of memory, and {size_text(free)} "
                "are left",
                fix="draw them with sample_to, on the command line with a folder as --output",
            )

    def _next_secret(self, random_state: RandomState) -> bytes:
        """Return what a call draws from."""
        if random_state is not None:
            return secret_from(random_state)
        secret = derive(self._secret, f"call {self._n_samples}")
        self._n_samples += 1
        return secret

    def draw_rows(self, n: int, secret: bytes) -> dict[str, pd.DataFrame]:
        """Draw all parties' rows from a secret, until enough of them keep the contract's rules."""
        rules = self.rules()
        if not rules:
            return sample_parties(self.parties_, n, secret)
        parts, self._cost = enforce(partial(sample_parties, self.parties_), n, secret, rules)
        return parts

    def rules(self) -> tuple[Rule, ...]:
        """Return the rules that hold in every sampled row, with what was learned of records."""
        check_is_fitted(self, "parties_")
        return contract_rules(self.parties_)

    def sample_before_rules(self, n: int) -> pd.DataFrame:
        """Sample rows as the model draws them: to see what rules cost, not to publish.

        They are those of its first draw; its sequence stays as it is.

        Parameters
        ----------
        n : int

        Returns
        -------
        DataFrame, shape (n, column)
            Before any rule of the contract computed a column or left out a row, for
            `vflsynth.evaluation.rule_cost`.
        """
        check_is_fitted(self, "parties_")
        check_parameters("sample_before_rules", {"n": n}, {"n": Number(0, whole=True)})
        secret = derive(self._secret, "call 0")
        parts = sample_parties(self.parties_, int(n), secret, repairs=False)
        return pd.concat(list(parts.values()), axis=1)

    def rule_cost(self) -> Cost | None:
        """Return what rules cost in the last sample; None if there are no rules, or was no sample.

        Returns
        -------
        Cost or None
            ``str()`` and ``to_frame()`` show the share of drawn rows that kept each rule, and all.
        """
        return getattr(self, "_cost", None)

    # -- saving ----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the model as a directory of JSON and safetensors, written aside and renamed.

        Parameters
        ----------
        path : path-like
            Replaced if it is a saved model; refused if it holds anything else.

        Notes
        -----
        Holds every party's generator and encoding, no record, and no discriminator. To save a
        single party's half use ``parties_[name].save(path)``.

        With a guarantee for the synthetic data, `alignment_` and `transcript_`, which tell numbers
        of records, are left out and None after loading: nothing in the files is derived from
        records but by the releases of the ledger (`vflsynth.models.number_sources`). Pickles and
        copies lack them, too.
        """
        check_is_fitted(self, "parties_")
        alignment, transcript = self.alignment_, self.transcript_
        if self._numbers_are_private:
            alignment = transcript = None
        content = fitted_to_json(self, alignment) | {
            "settings": self.settings_,
            "transcript": None if transcript is None else transcript.to_dict("records"),
            "samples": {"secret": self._secret.hex(), "drawn": self._n_samples},
        }
        with artefacts.new_directory(path, KIND) as root:
            artefacts.write_json(root / "synthesizer.json", content)
            for name, model in self.parties_.items():
                model.write(root / "parties" / name)

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str = "auto") -> Self:
        """Load a saved model, on a CPU or a GPU whichever it was trained on.

        Parameters
        ----------
        path : path-like
        device : str, default="auto"

        Raises
        ------
        ArtefactError
            If it is no saved model of this class, or a file is missing, extra or changed.
        ArtefactVersionError
            If a newer version wrote it.
        """
        where = resolve_device(device)
        root = artefacts.open_directory(path, KIND)
        content = artefacts.read_json(root / "synthesizer.json")
        with artefacts.reading(root, f"a {cls.__name__}"):
            synth: Self = fitted_from_json(cls, content, root)
            synth.settings_ = dict(content["settings"])
            transcript = content["transcript"]
            synth.transcript_ = None if transcript is None else pd.DataFrame(transcript)
            synth._secret = bytes.fromhex(content["samples"]["secret"])
            synth._n_samples = int(content["samples"]["drawn"])
            names = content["parties"]
            if not names or sorted(names) != sorted(f.name for f in (root / "parties").iterdir()):
                raise ArtefactError(f"{root} does not hold exactly the parties {names}")
        synth.parties_ = {name: PartyModel.read(root / "parties" / name, where) for name in names}
        return synth


def fitted_to_json(estimator: Any, alignment: AlignmentReport | None) -> dict[str, Any]:
    """Return what is written of any fitted estimator over party frames, JSON-safe."""
    ledger = estimator.privacy_ledger_
    return {
        "class": full_name(type(estimator)),
        "version": __version__,
        "parameters": parameters_to_json(estimator),
        "alignment": None if alignment is None else alignment.to_dict(),
        "history": history_to_json(estimator.history_),
        "device": estimator.device_,
        "interrupted": estimator.interrupted_,
        "privacy_ledger": None if ledger is None else ledger.to_dict(),
        "parties": list(estimator.parties_),
    }


def fitted_from_json(cls: type[Any], content: Mapping[str, Any], root: Path) -> Any:
    """Undo `fitted_to_json`, but for the parties; ArtefactError if it is of another class."""
    if content["class"] != full_name(cls):
        held = content["class"].rpartition(":")[2]
        fix = f"{held}.load, or vflsynth.load, which takes whatever was saved"
        raise ArtefactError(f"{root} holds a {held}, not a {cls.__name__}. Fix: {fix}")
    found = cls(**parameters_from_json(content["parameters"]))
    alignment, ledger = content["alignment"], content.get("privacy_ledger")
    found.alignment_ = None if alignment is None else AlignmentReport(**alignment)
    found.history_ = history_from_json(content["history"])
    found.device_, found.interrupted_ = str(content["device"]), bool(content["interrupted"])
    found.privacy_ledger_ = None if ledger is None else PrivacyLedger.from_dict(ledger)
    return found
