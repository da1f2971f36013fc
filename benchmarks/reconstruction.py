"""What each role of a run reads of real records, with 0, 40 and 400 known ones, on Adult.

6,000 rows; A has the first eight columns, B the others, default settings. The receiver is B, who
gets what a protocol tells of A's records, and has its own columns. A server has features of one
party's records; that of VFLGAN has the output of the wide layer before the cut, after training, and
the one of ``protocol="trained"`` gradients, too. Who knows 40 or 400 records of the other party
fits logistic or ridge regression and a random forest to them, means of three draws of the known
records. Who knows none learns from synthetic rows: the receiver has what is passed on for them when
sampling, beside the published columns, and learns from both if it knows records; a server makes
features of synthetic rows by weights of its own, and matches leading principal components in order,
with signs by their third moments.

A receiver that deviates chooses its features: of the records that it knows they say one column of
A's, and of all others nothing, so that the server learns to send that column. One context reads one
column. With three contexts, each booked and with noise of its own, the next features say of all
records what was read so far. Scores are means of three such attacks. With random numbers instead of
nothing, which look as features do, 400 known records and 8 bits read education of .81 in place of
.92 (one attack, older code).

    python -m benchmarks.reconstruction run --views "bounded, 8 bits" "one message"
    python -m benchmarks.reconstruction show

Scores are of 2,000 other records: accuracy of categories, R2 of numbers, of the better model.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import accuracy_score, r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from benchmarks import _commands, _results
from benchmarks.ladder import split
from vflsynth import AutoregressiveSynthesizer, VFLGANSynthesizer
from vflsynth._random import RandomStreams
from vflsynth.methods.autoregressive.contexts import FixedFeatures, into_ball
from vflsynth.methods.autoregressive.layout import Layout
from vflsynth.methods.autoregressive.messages import BatchContexts, RecordFeatures
from vflsynth.methods.autoregressive.party import AutoregressiveParty
from vflsynth.models import PartyModel

N_RECORDS, N_TESTED, N_SYNTHETIC = 6_000, 2_000, 10_000
KNOWN = (0, 40, 400)
TARGETS = {
    "A": ("education", "marital-status", "occupation", "age", "fnlwgt"),
    "B": ("sex", "income", "native-country", "hours-per-week", "capital-gain"),
}
BITS, CONTEXTS = (4, 8, 16, 32), (1, 3)
N_FEATURES = 512
_DRAWS, _COMPONENTS = 3, 20

Floats = npt.NDArray[np.float64]
Pairs = tuple[Floats, pd.DataFrame]
"""Per record what is seen, and the columns that are looked for."""


def records() -> dict[str, pd.DataFrame]:
    """Return both parties' columns of the records."""
    table, train, _ = split("adult")
    some = train.sample(N_RECORDS, random_state=0).reset_index(drop=True)
    return {party: some[list(columns)] for party, columns in table.party_columns.items()}


class Watched:
    """An autoregressive fit, and what its parties got."""

    def __init__(
        self, frames: dict[str, pd.DataFrame], random_state: int = 0, **parameters: Any
    ) -> None:
        self.frames, self.parties = frames, {}
        self.seen: dict[str, dict[str, Floats]] = {}
        with self._watching():
            self.synth = AutoregressiveSynthesizer(
                random_state=random_state, verbose=0, **parameters
            )
            self.synth.fit(frames)
        self.order = self.parties["A"].schedule.order[0].numpy()

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Keep the parties, and per record the mean of contexts and gradients of all steps."""
        build, take = AutoregressiveParty.build, AutoregressiveParty.take_batch

        def kept_build(party: AutoregressiveParty, *given: Any) -> None:
            build(party, *given)
            self.parties[party.name] = party

        def kept_take(party: AutoregressiveParty, message: BatchContexts) -> None:
            take(party, message)
            rows = party.schedule.rows(message.step)[0].numpy()
            shown = {"contexts": message.contexts, "gradients": party._gradients}
            for name, value in shown.items():
                total = self.seen.setdefault(party.name, {}).setdefault(
                    name, np.zeros((N_RECORDS, value.shape[-1]))
                )
                np.add.at(total, rows, value[0].numpy())

        with (
            mock.patch.object(AutoregressiveParty, "build", kept_build),
            mock.patch.object(AutoregressiveParty, "take_batch", kept_take),
        ):
            yield

    def in_table_order(self, values: Any) -> Floats:
        """Return what is in the order of the run, (record, number), in the table's order."""
        found = np.empty(values.shape)
        found[self.order] = np.asarray(values)
        return found

    def features(self, party: str, replica: int = 0) -> Floats:
        """Return what a party sends of its records."""
        own = self.parties[party]
        return self.in_table_order(own.features(own.codes, own.values)[replica])

    def receiver(self) -> tuple[Floats, Pairs]:
        """Return what B has of real records, and of synthetic ones beside A's columns."""
        party = self.parties["B"]
        led = self.synth.protocol == "trained"
        contexts = self.in_table_order(self.seen["B"]["contexts"] if led else party.contexts[0])
        halves = self.synth.parties_
        passed = halves["A"].pass_on(N_SYNTHETIC, 1)
        columns = halves["A"].sample(N_SYNTHETIC, 1)
        beside = halves["B"].sample(N_SYNTHETIC, 1, received={"A": passed["B"]})
        shown = passed["B"].astype(np.float64)
        if self.synth.protocol != "one_message":
            noise = np.random.default_rng(0).normal(size=shown.shape)
            shown = into_ball(torch.from_numpy(shown)).numpy() + party.settings.noise_std * noise
        if led:  # contexts were added up, over as many steps as the record was drawn in
            contexts = contexts / contexts.std(0) * shown.std(0)
        own = encoded(self.frames["B"], self.frames["B"])
        synthetic = np.hstack([shown, encoded(beside, self.frames["B"])])
        return np.hstack([contexts, own]), (synthetic, columns)

    def server(self, party: str) -> tuple[Floats, Pairs]:
        """Return features of a party's records, and a guess of them for synthetic rows."""
        features = self.features(party)
        columns = self.synth.sample(N_SYNTHETIC)[list(self.frames[party].columns)]
        half = self.synth.parties_[party]
        layout = Layout(half.transformer.spans_)
        codes, values = layout.split(rows_of(half, columns))
        other = FixedFeatures(layout, features.shape[1], RandomStreams([b"of the server's own"]))
        guessed = other(codes.unsqueeze(0), values.unsqueeze(0))[0].numpy().astype(np.float64)
        return features, (guessed, columns)


def rows_of(half: PartyModel, columns: pd.DataFrame) -> Tensor:
    """Encode a party's columns as the networks of its half have them."""
    made = columns if half.preparation is None else half.preparation.apply(columns)
    return torch.from_numpy(half.transformer.spread(half.transformer.transform(made)))


def autoregressive(frames: dict[str, pd.DataFrame], **parameters: Any) -> _results.Row:
    """Attack what the receiver gets by one protocol."""
    fitted = Watched(frames, **parameters)
    return attack(frames["A"], "A", *fitted.receiver())


@functools.cache
def chosen(bits_per_record: float, column: str) -> tuple[float, ...]:
    """Read a column by features that say it of known records, after one, two and three contexts.

    The mean of three draws of features and of whatever else is random.
    """
    return tuple(np.mean([_chosen(bits_per_record, column, draw) for draw in range(_DRAWS)], 0))


def _chosen(bits_per_record: float, column: str, draw: int) -> list[float]:
    frames = records()
    wanted = frames["A"][column]
    order = np.random.default_rng(0).permutation(len(wanted))
    known, rest = order[: KNOWN[-1]], order[-N_TESTED:]
    values = wanted
    if pd.api.types.is_numeric_dtype(values):
        values = pd.qcut(values, 10, duplicates="drop")
    codes, names = pd.factorize(values)
    of_codes = np.random.default_rng(1 + draw).normal(size=(len(names), N_FEATURES))
    said = np.zeros((len(wanted), N_FEATURES))
    seen: list[Floats] = []
    found = []
    for attempt in range(CONTEXTS[-1]):
        said[known] = of_codes[codes[known]]
        with _sending(said):
            seed = draw * CONTEXTS[-1] + attempt
            fitted = Watched(frames, seed, bits_per_record=bits_per_record, epochs=1)
        seen.append(fitted.in_table_order(fitted.parties["B"].contexts[0]))
        contexts = np.hstack(seen)
        given = [contexts, np.hstack([contexts, encoded(frames["B"], frames["B"])])]
        answers = frames["A"].iloc[known], frames["A"].iloc[rest]
        scores = [_scores(x[known], answers[0], x[rest], answers[1], [column]) for x in given]
        found.append(max(score[column] for score in scores))
        reader = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
        reader.fit(contexts[known], codes[known])
        said = reader.predict_proba(contexts) @ of_codes[reader.classes_]
    return found


def by_choice(bits_per_record: float, n_contexts: int) -> _results.Row:
    """Attack by chosen features, and so many contexts."""
    read = {name: chosen(bits_per_record, name)[n_contexts - 1] for name in TARGETS["A"]}
    return {str(KNOWN[-1]): read}


@contextmanager
def _sending(said: Floats) -> Iterator[None]:
    """Have B send these features, shape (record, feature), in place of its own."""
    honest = AutoregressiveParty.record_features

    @functools.wraps(honest)
    def sent(party: AutoregressiveParty, step: int) -> RecordFeatures:
        message = honest(party, step)
        if party.name != "B":
            return message
        own = torch.from_numpy(said).float()[party.schedule.order[0]][party.settings.block(step)]
        return replace(message, features=own.unsqueeze(0))

    with mock.patch.object(AutoregressiveParty, "record_features", sent):
        yield


def own_columns(frames: dict[str, pd.DataFrame]) -> _results.Row:
    """Attack by what B has anyway, and the published table."""
    fitted = AutoregressiveSynthesizer(random_state=0, verbose=0).fit(frames)
    synthetic = fitted.sample(N_SYNTHETIC)
    shown = encoded(synthetic[list(frames["B"].columns)], frames["B"])
    pairs = shown, synthetic[list(frames["A"].columns)]
    return attack(frames["A"], "A", encoded(frames["B"], frames["B"]), pairs)


def server(frames: dict[str, pd.DataFrame], party: str) -> _results.Row:
    """Attack what the server of the default protocol gets of one party."""
    shown, pairs = Watched(frames).server(party)
    return attack(frames[party], party, shown, matched(shown, pairs))


def gradients(frames: dict[str, pd.DataFrame]) -> _results.Row:
    """Attack the gradients that B returns to a server that it trains, alone."""
    fitted = Watched(frames, protocol="trained")
    return attack(frames["B"], "B", fitted.in_table_order(fitted.seen["B"]["gradients"]), None)


def vflgan_server(frames: dict[str, pd.DataFrame]) -> _results.Row:
    """Attack what VFLGAN's server gets of A, from the trained weights."""
    synth = VFLGANSynthesizer(random_state=0, verbose=0)
    (fitted,) = synth.fit_replicas(frames, random_states=[0], keep_discriminators=True)
    rows = rows_of(fitted.parties_["A"], frames["A"])
    if "A" in fitted.local_residuals_:
        rows = fitted.local_residuals_["A"].take_out(rows)
    first = fitted.local_discriminators_["A"].first_part
    with torch.no_grad():
        shown = first.trace(rows.unsqueeze(0))[-1][0].numpy().astype(np.float64)
    columns = fitted.sample(N_SYNTHETIC)[list(frames["A"].columns)]
    return attack(frames["A"], "A", shown, matched(shown, (encoded(columns, frames["A"]), columns)))


VIEWS: dict[str, Callable[[dict[str, pd.DataFrame]], _results.Row]] = {
    "B: own columns alone": own_columns,
    **{
        f"B: bounded, {bits} bits": lambda f, bits=bits: autoregressive(f, bits_per_record=bits)
        for bits in BITS
    },
    **{
        f"B: {bits} bits, chosen features, {n} context{'s' * (n > 1)}": (
            lambda _, bits=bits, n=n: by_choice(bits, n)
        )
        for bits, n in product(BITS, CONTEXTS)
    },
    "B: trained": lambda f: autoregressive(f, protocol="trained"),
    "B: one message": lambda f: autoregressive(f, protocol="one_message"),
    "server: features of A": lambda f: server(f, "A"),
    "server: VFLGAN's, of A": vflgan_server,
    "server: features of B": lambda f: server(f, "B"),
    "server: gradients of B": gradients,
}


def encoded(frame: pd.DataFrame, like: pd.DataFrame) -> Floats:
    """Encode by the categories of another table, and numbers as they are."""
    numbers = list(like.select_dtypes("number").columns)
    codes = pd.get_dummies(like.drop(columns=numbers)).columns
    own = pd.get_dummies(frame.drop(columns=numbers)).reindex(columns=codes, fill_value=False)
    return np.hstack([frame[numbers].to_numpy(np.float64), own.to_numpy(np.float64)])


def matched(shown: Floats, pairs: Pairs) -> tuple[tuple[Floats, Floats], pd.DataFrame]:
    """Give real and synthetic records coordinates that ought to be the same."""
    return (_components(shown), _components(pairs[0])), pairs[1]


def _components(values: Floats) -> Floats:
    scaled = StandardScaler().fit_transform(values)
    vectors = np.linalg.svd(scaled, full_matrices=False)[0]
    found = vectors[:, :_COMPONENTS] * np.sqrt(len(values))
    return np.asarray(found * np.where((found**3).mean(0) < 0.0, -1.0, 1.0))


def attack(wanted: pd.DataFrame, party: str, shown: Floats, pairs: Any) -> _results.Row:
    """Read columns off what is shown of all records, by number of known records and column."""
    found: _results.Row = {}
    # What is matched has coordinates of its own, in which known records have no place.
    beside = None if pairs is None or isinstance(pairs[0], tuple) else pairs
    for n_known in KNOWN:
        if n_known:
            means = [_read(wanted, party, shown, n_known, draw, None) for draw in range(_DRAWS)]
            best = pd.DataFrame(means).mean()
            if beside is not None:
                both = pd.Series(_read(wanted, party, shown, n_known, 0, beside))
                best = best.where(best > both, both)
            found[str(n_known)] = best.to_dict()
        elif pairs is not None:
            seen, columns = pairs
            here, there = seen if isinstance(seen, tuple) else (shown, seen)
            rest = np.random.default_rng(0).permutation(len(wanted))[-N_TESTED:]
            found["0"] = _scores(there, columns, here[rest], wanted.iloc[rest], TARGETS[party])
    return found


def _read(
    wanted: pd.DataFrame, party: str, shown: Floats, n_known: int, draw: int, beside: Pairs | None
) -> dict[str, float]:
    order = np.random.default_rng(draw).permutation(len(wanted))
    known, rest = order[:n_known], order[-N_TESTED:]
    given, answers = shown[known], wanted.iloc[known]
    if beside is not None:
        given, answers = np.vstack([given, beside[0]]), pd.concat([answers, beside[1]])
    return _scores(given, answers, shown[rest], wanted.iloc[rest], TARGETS[party])


def _scores(
    given: Floats,
    answers: pd.DataFrame,
    shown: Floats,
    wanted: pd.DataFrame,
    targets: Sequence[str],
) -> dict[str, float]:
    found = {}
    for column in targets:
        number = pd.api.types.is_numeric_dtype(wanted[column])
        models: tuple[Any, ...] = (
            (RidgeCV(np.logspace(-2, 5, 15)), RandomForestRegressor(50, random_state=0))
            if number
            else (LogisticRegression(max_iter=300), RandomForestClassifier(50, random_state=0))
        )
        measure = r2_score if number else accuracy_score
        answer = answers[column].to_numpy()
        if not number and len(set(answer)) == 1:
            found[column] = float(accuracy_score(wanted[column], [answer[0]] * len(wanted)))
            continue
        found[column] = max(
            float(
                measure(
                    wanted[column],
                    make_pipeline(StandardScaler(), model).fit(given, answer).predict(shown),
                )
            )
            for model in models
        )
    return found


def show() -> None:
    """Print one line per role and number of known records."""
    found = {row["view"]: row["read"] for row in _results.rows("reconstruction")}
    for columns in TARGETS.values():
        views = [v for v in VIEWS if v in found and columns[0] in found[v]["400"]]
        print(f"{'':<40}{'known':>6}" + "".join(f"{column:>16}" for column in columns))
        for view in views:
            for known, scores in sorted(found[view].items(), key=lambda item: int(item[0])):
                cells = "".join(f"{scores[column]:>16.2f}" for column in columns)
                print(f"{view:<40}{known:>6}{cells}")


def main() -> None:
    """Measure or show."""
    arguments = _commands.parser(__doc__, "run", "show", views=VIEWS).parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for view in arguments.views if arguments.action == "run" else ():
        if not _results.rows("reconstruction", view=view):
            _results.put("reconstruction", {"view": view, "read": VIEWS[view](records())})
    show()


if __name__ == "__main__":
    main()
