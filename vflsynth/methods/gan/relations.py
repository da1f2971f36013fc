"""Generated columns get the records' relations to the party's earlier columns, after training.

Marginals that fit leave what a generator missed of how a party's columns depend on each other, and
trees tell it at once. So each column is mended given those before it. A tree divides records and
generated rows where the column differs most between them. In a leaf an increasing map gives numbers
the quantiles of the records there, and codes that are too frequent there make way for those that
are too rare. Order stays within a leaf, and with it most relations to other parties' columns.

A leaf has too few records to say how much a tail must be stretched, and the trees of a column would
multiply what each gets wrong. So beyond a leaf's outermost quantiles values keep their distance, up
to a bound, and in the end one map of all rows gives a column its tails.

Sees: one party's encoded records and generated rows. Sends: nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vflsynth.columns import OutputSpan
from vflsynth.methods.gan.calibration import check_maps, interpolated, places_of, quantile_maps
from vflsynth.methods.gan.sequential import turns_of

_Floats = npt.NDArray[np.float64]
_Rows = npt.NDArray[np.floating]
_Codes = npt.NDArray[np.int32]  # of all records in answer to all questions: the largest table

# Trees one after the other for a column, their depth, and the records and rows of a leaf.
_ROUNDS, _DEPTH, _FEWEST = 15, 6, 60

# What a tree asks a number: which of so many intervals it is in; what is asked of the number that
# is mended, in how many classes it falls.
_INTERVALS, _CLASSES = 32, 16

_AT_ONCE = 2048
"""Rows that are mended at once."""

_BY_CHANCE = 0.5
"""Bound of the probability that a node's rows are divided though they differ by chance."""

_PRIOR = 5.0
"""Records that a leaf's shares of codes count as known before."""

_REACH = 2.0
"""Bound of what is beyond a leaf's outermost mean, in standard deviations of what it is of."""


class _Question(NamedTuple):
    """Encoded columns that trees ask of, and the thresholds of a number."""

    columns: Sequence[int]
    thresholds: _Floats | None

    @property
    def n_codes(self) -> int:
        return len(self.columns) if self.thresholds is None else len(self.thresholds) + 1

    def codes(self, rows: _Rows) -> _Codes:
        if self.thresholds is None:
            return np.asarray(rows[:, self.columns[0] : self.columns[-1] + 1].argmax(1), np.int32)
        return np.asarray(np.searchsorted(self.thresholds, rows[:, self.columns[0]]), np.int32)

    def split(self, code: int) -> tuple[int, float]:
        """Return column and threshold of the rows above a code, or that have a category."""
        if self.thresholds is None:
            return self.columns[code], 0.5
        return self.columns[0], float(self.thresholds[code])


class _Sample(NamedTuple):
    """Some records or generated rows: places in a table of answers, and what is mended, as classes.

    The table, (row, question), is that of all of them, and has room for questions to come.
    """

    answers: _Codes
    places: npt.NDArray[np.intp]
    classes: _Codes

    def part(self, place: int, question: _Question, code: int, above: bool) -> _Sample:
        answers = self.answers[self.places, place]
        some = (answers == code if question.thresholds is None else answers > code) == above
        return _Sample(self.answers, self.places[some], self.classes[some])

    def counts(self, starts: npt.NDArray[np.intp], n_cells: int, n_classes: int) -> _Floats:
        """Count rows, (answer, class), the answers of all questions after each other."""
        answers = self.answers[self.places, : len(starts)]
        cells = (answers + starts) * n_classes + self.classes[:, None]
        found = np.bincount(cells.ravel(), minlength=n_cells * n_classes)
        return found.reshape(n_cells, n_classes).astype(np.float64)


@dataclass(frozen=True)
class Tree:
    """Where rows go: `columns` and `thresholds` of nodes, and the next node up to them and above.

    `children`, (node, 2), of a leaf are the leaf.
    """

    columns: Tensor
    thresholds: Tensor
    children: Tensor

    @classmethod
    def grown(
        cls, questions: Sequence[_Question], ours: _Sample, theirs: _Sample, n_classes: int
    ) -> Self:
        """Divide rows where the classes of generated rows and of records differ most."""
        nodes: list[tuple[int, float, int, int]] = []
        sizes = np.array([question.n_codes for question in questions])
        starts = np.concatenate([[0], sizes.cumsum()[:-1]])

        def grow(ours: _Sample, theirs: _Sample, depth: int) -> int:
            own = len(nodes)
            nodes.append((0, 0.0, own, own))
            found = _best_split(questions, starts, ours, theirs, n_classes) if depth else None
            if found is None:
                return own
            place, code = found
            question = questions[place]
            column, threshold = question.split(code)
            children = []
            for above in (False, True):
                parts = [rows.part(place, question, code, above) for rows in (ours, theirs)]
                children.append(grow(parts[0], parts[1], depth - 1))
            nodes[own] = (column, threshold, children[0], children[1])
            return own

        grow(ours, theirs, _DEPTH)
        columns, thresholds, lower, upper = zip(*nodes)
        return cls(
            torch.tensor(columns),
            torch.tensor(thresholds, dtype=torch.float32),
            torch.tensor([lower, upper]).T.contiguous(),
        )

    def leaves(self, rows: Tensor) -> Tensor:
        """Return the node where every row, (row, encoded), ends."""
        nodes = torch.zeros(len(rows), dtype=torch.int64, device=rows.device)
        for _ in range(_DEPTH):
            values = rows.gather(1, self.columns[nodes].unsqueeze(1)).squeeze(1)
            nodes = self.children[nodes, (values > self.thresholds[nodes]).long()]
        return nodes

    def check(self, first: int) -> None:
        """Raise ValueError unless it asks columns before `first`, and goes on to later nodes."""
        n, own = len(self.columns), torch.arange(len(self.columns)).unsqueeze(1)
        children = self.children.cpu()
        if self.thresholds.shape != (n,) or children.shape != (n, 2) or not n:
            raise ValueError("a tree needs a column, a threshold and two children for every node")
        if ((self.columns < 0) | (self.columns >= first)).any():
            raise ValueError("a tree can only ask columns before the one that it is for")
        leaf = (children == own).all(1, keepdim=True)
        if not (((children > own) & (children < n)) | leaf).all():
            raise ValueError("a tree must go on to later nodes, or end")


def _best_split(
    questions: Sequence[_Question],
    starts: npt.NDArray[np.intp],
    ours: _Sample,
    theirs: _Sample,
    n_classes: int,
) -> tuple[int, int] | None:
    """Find question and code where both parts differ most, or None where chance explains it.

    The gain is the chi-squared statistic of two samples, of both parts less that of all.
    """
    n_cells = int(starts[-1]) + questions[-1].n_codes
    counts = np.stack([rows.counts(starts, n_cells, n_classes) for rows in (ours, theirs)])
    total = counts[:, : questions[0].n_codes].sum(1, keepdims=True)
    possible = np.ones(n_cells, np.bool_)
    for start, question in zip(starts, questions):
        if question.thresholds is not None:
            own = slice(start, start + question.n_codes)
            counts[:, own] = counts[:, own].cumsum(1)
            possible[own.stop - 1] = False
    possible &= np.minimum(counts.sum(-1), (total - counts).sum(-1)).min(0) >= _FEWEST
    if not possible.any():
        return None
    gains = _differences(counts) + _differences(total - counts) - _differences(total)
    best = int(np.where(possible, gains, -np.inf).argmax())
    # A bound of chi-squared's tail (Laurent and Massart 2000), for the most of so many.
    free, rare = n_classes - 1, math.log(possible.sum() / _BY_CHANCE)
    if gains[best] < free + 2.0 * math.sqrt(free * rare) + 2.0 * rare:
        return None
    place = int(np.searchsorted(starts, best, side="right")) - 1
    return place, best - int(starts[place])


def _differences(counts: _Floats) -> _Floats:
    """Return the chi-squared statistics of two samples' counts, (2, ..., class)."""
    sizes = counts.sum(-1, keepdims=True)
    shares = counts / np.maximum(sizes, 1.0)
    of_both = counts.sum(0) / np.maximum(sizes.sum(0), 1.0)
    weight = sizes.prod(0)[..., 0] / np.maximum(sizes.sum(0)[..., 0], 1.0)
    squared = (shares[0] - shares[1]) ** 2 / np.where(of_both > 0.0, of_both, 1.0)
    found: _Floats = weight * squared.sum(-1)
    return found


@dataclass(frozen=True)
class NumberMend:
    """Increasing maps of a number, by leaf: `before` and `after`, (node, knot), with `slopes`.

    What is below the first knot or above the last is first drawn in, to less than `reach`,
    (node, 2), from it.
    """

    span: OutputSpan
    tree: Tree
    before: Tensor
    after: Tensor
    slopes: Tensor
    reach: Tensor

    def apply(self, rows: Tensor, uniform: Tensor) -> None:
        """Change rows, (row, encoded), in place; with no randomness."""
        leaves, column = self.tree.leaves(rows), self.span.start
        values = rows[:, column : column + 1]
        maps = (own[leaves] for own in (self.before, self.after, self.slopes, self.reach))
        mapped = interpolated(values, *maps)
        if self.span.gate is not None:
            mapped = torch.where(rows[:, self.span.gate : self.span.gate + 1] > 0.0, mapped, values)
        rows[:, column : column + 1] = mapped

    def check(self) -> None:
        """Raise ValueError unless maps rise."""
        n = len(self.tree.columns)
        check_maps(n, self.before, self.after, self.slopes)
        if self.reach.shape != (n, 2) or not (self.reach > 0).all():
            raise ValueError("every leaf needs a reach")


@dataclass(frozen=True)
class CodeMend:
    """By leaf, how often a code is kept, and what takes its place, each (node, code).

    `numbers` are what the span's states gate, and values that appear with their state are drawn
    from `quantiles`, (number, knot), of the records.
    """

    span: OutputSpan
    tree: Tree
    keep: Tensor
    instead: Tensor
    numbers: tuple[OutputSpan, ...]
    quantiles: Tensor

    def apply(self, rows: Tensor, uniform: Tensor) -> None:
        """Change rows, (row, encoded), in place, by two uniform numbers for each, (row, 2)."""
        leaves, span = self.tree.leaves(rows), self.span
        codes = rows[:, span.start : span.stop].argmax(1)
        keep, drawn = self.keep[leaves, codes], uniform[:, 0]
        inside = ((drawn - keep) / (1.0 - keep).clamp_min(1e-12)).unsqueeze(1)
        other = torch.searchsorted(self.instead[leaves].cumsum(1), inside).squeeze(1)
        other = torch.where(drawn < keep, codes, other.clamp_max(span.width - 1))
        before = [_present(rows, number.gate) for number in self.numbers]
        rows[:, span.start : span.stop] = torch.nn.functional.one_hot(other, span.width)
        for number, quantiles, was in zip(self.numbers, self.quantiles, before):
            place = uniform[:, 1] * (len(quantiles) - 1)
            left = place.long().clamp_max(len(quantiles) - 2)
            fresh = torch.lerp(quantiles[left], quantiles[left + 1], place - left)
            own = torch.where(was, rows[:, number.start], fresh)
            rows[:, number.start] = torch.where(_present(rows, number.gate), own, 0.0)

    def check(self) -> None:
        """Raise ValueError unless all are probabilities."""
        shape = (len(self.tree.columns), self.span.width)
        if self.keep.shape != shape or self.instead.shape != shape:
            raise ValueError("every leaf needs a probability of every code")
        if any(((p < 0.0) | (p > 1.0)).any() for p in (self.keep, self.instead)):
            raise ValueError("shares of codes must be between 0 and 1")
        if self.quantiles.dim() != 2 or len(self.quantiles) != len(self.numbers):
            raise ValueError("every number with a state needs quantiles")


@dataclass(frozen=True)
class Relations:
    """What is mended of a party's rows, column after column, in this order."""

    mends: tuple[NumberMend | CodeMend, ...]

    @classmethod
    def fit(
        cls, spans: Sequence[OutputSpan], rows: Tensor, records: Tensor, uniform: Tensor
    ) -> Self:
        """Learn them from generated rows and records, (n, encoded).

        `uniform` numbers, (row, 2), are for the codes.
        """
        device, records, uniform = rows.device, records.cpu(), uniform.cpu()
        rows = rows.to("cpu", copy=True)
        theirs = records.double().numpy()
        mends: list[NumberMend | CodeMend] = []
        places = places_of(spans)
        in_parts = {s.start for s in places} | {s.start - len(s.within or ()) for s in places}
        asked, answers = (np.empty((len(own), len(spans)), np.int32) for own in (rows, records))
        questions: list[_Question] = []
        left = list(spans)
        for turn in turns_of(spans):
            while left[0].start < turn[0].start:
                question = _question(left.pop(0), theirs)
                if question.n_codes > 1:
                    asked[:, len(questions)] = question.codes(rows.numpy())
                    answers[:, len(questions)] = question.codes(theirs)
                    questions.append(question)
            if not questions:
                continue
            for span in sorted(turn, key=lambda span: span.activation != "softmax"):
                # A bound is exact, and so are the places that a group has.
                fixed = span.bound is not None or span.start in in_parts
                for _ in range(0 if fixed else _ROUNDS):
                    mend = _mend(span, turn, questions, (rows, asked), (records, answers))
                    if mend is None:
                        break
                    # Of a second round other numbers than of the first.
                    uniform = (uniform + 0.618034) % 1.0
                    _apply(mend, rows, uniform)
                    mends.append(mend)
                if mends and mends[-1].span == span and span.activation == "identity":
                    root = Tree(torch.tensor([0]), torch.zeros(1), torch.tensor([[0, 0]]))
                    mend = _mapped(span, root, rows, records)
                    mends.append(replace(mend, reach=torch.full_like(mend.reach, torch.inf)))
                    _apply(mends[-1], rows, uniform)
        found = cls(tuple(mends)).tensors()
        return cls.restore({name: value.to(device) for name, value in found.items()}, spans)

    @property
    def n_uniform(self) -> int:
        """Uniform numbers that a row takes."""
        return 2 * sum(isinstance(mend, CodeMend) for mend in self.mends)

    def apply(self, rows: Tensor, uniform: Tensor) -> Tensor:
        """Mend rows, (row, encoded), by uniform numbers, (row, n_uniform)."""
        rows = rows.clone()
        for mend in self.mends:
            _apply(mend, rows, uniform)
            uniform = uniform[:, 2 * isinstance(mend, CodeMend) :]
        return rows

    def tensors(self) -> dict[str, Tensor]:
        """Return what has to be saved besides the spans."""
        found: dict[str, Tensor] = {}
        for i, mend in enumerate(self.mends):
            parts = {"start": torch.tensor(mend.span.start), **vars(mend.tree)}
            parts |= {k: v for k, v in vars(mend).items() if isinstance(v, Tensor)}
            found |= {f"{i}.{name}": value for name, value in parts.items()}
        return found

    @classmethod
    def restore(cls, tensors: Mapping[str, Tensor], spans: Sequence[OutputSpan]) -> Self:
        """Undo `tensors`; ValueError if they are not of encoded rows of these spans."""
        at = {span.start: (span, turn) for turn in turns_of(spans) for span in turn}
        mends: list[NumberMend | CodeMend] = []
        for i in range(sum(name.endswith(".start") for name in tensors)):
            own = {k.partition(".")[2]: v for k, v in tensors.items() if k.startswith(f"{i}.")}
            start = int(own.pop("start"))
            if start not in at:
                raise ValueError(f"no column begins at {start}")
            span, turn = at[start]
            tree = Tree(*(own.pop(name) for name in ("columns", "thresholds", "children")))
            tree.check(turn[0].start)
            mend: NumberMend | CodeMend
            if span.activation == "softmax":
                mend = CodeMend(span, tree, numbers=_gated(span, turn), **own)
            else:
                mend = NumberMend(span, tree, **own)
            mend.check()
            mends.append(mend)
        return cls(tuple(mends))


def _apply(mend: NumberMend | CodeMend, rows: Tensor, uniform: Tensor) -> None:
    """Mend rows in place, some at a time.

    Large tables that come and go between what stays of each mend leave holes in the memory.
    """
    for some, own in zip(*(torch.split(table, _AT_ONCE) for table in (rows, uniform))):
        mend.apply(some, own)


def _question(span: OutputSpan, records: _Floats) -> _Question:
    if span.activation == "softmax":
        return _Question(range(span.start, span.stop), None)
    inner = np.linspace(0.0, 1.0, _INTERVALS + 1)[1:-1]
    # As rows have it, which are compared with it.
    thresholds = np.quantile(records[:, span.start], inner).astype(np.float32)
    return _Question([span.start], np.unique(thresholds).astype(np.float64))


def _gated(span: OutputSpan, turn: Sequence[OutputSpan]) -> tuple[OutputSpan, ...]:
    """Return the numbers that are there with a state of the span."""
    return tuple(s for s in turn if s.gate is not None and span.start <= s.gate < span.stop)


def _mend(
    span: OutputSpan,
    turn: Sequence[OutputSpan],
    questions: Sequence[_Question],
    generated: tuple[Tensor, _Codes],
    recorded: tuple[Tensor, _Codes],
) -> NumberMend | CodeMend | None:
    """Mend one span of a turn by one tree, or return None if there is nothing to mend."""
    (rows, asked), (records, answers) = generated, recorded
    there, known = (_present(r, span.gate) for r in (rows, records))
    drawn, real = (r[own, span.start : span.stop] for r, own in ((rows, there), (records, known)))
    if min(len(drawn), len(real)) < 2 * _FEWEST:
        return None
    if span.activation == "softmax":
        ours, theirs, n_classes = drawn.argmax(1).numpy(), real.argmax(1).numpy(), span.width
    else:
        values = real[:, 0].numpy()
        edges = np.unique(np.quantile(values, np.linspace(0.0, 1.0, _CLASSES + 1)[1:-1]))
        ours = np.searchsorted(edges, drawn[:, 0].numpy())
        theirs, n_classes = np.searchsorted(edges, values), len(edges) + 1
    if n_classes < 2:
        return None
    sample = _Sample(asked, np.flatnonzero(there), ours.astype(np.int32))
    recorded_sample = _Sample(answers, np.flatnonzero(known), theirs.astype(np.int32))
    tree = Tree.grown(questions, sample, recorded_sample, n_classes)
    n_nodes = len(tree.columns)
    if n_nodes == 1:
        return None
    if span.activation == "identity":
        mend = _mapped(span, tree, rows, records)
        return replace(mend, slopes=torch.ones_like(mend.slopes))
    had, wanted = torch.zeros(2, n_nodes, span.width, dtype=rows.dtype)
    had.index_add_(0, tree.leaves(rows), drawn)
    wanted.index_add_(0, tree.leaves(records), real)
    wanted += _PRIOR * real.mean(0)
    had, wanted = (t / t.sum(1, keepdim=True).clamp_min(1.0) for t in (had, wanted))
    missing = (wanted - had).clamp_min_(0.0)
    keep = torch.where(had > 0.0, (wanted / had.clamp_min(1e-12)).clamp_max(1.0), 1.0)
    instead = missing / missing.sum(1, keepdim=True).clamp_min(1e-12)
    numbers = _gated(span, turn)
    pairs = [(own, own) for own in (records[records[:, s.gate] > 0.0, s.start] for s in numbers)]
    quantiles = quantile_maps(pairs)[1].to(rows.dtype)
    return CodeMend(span, tree, keep, instead, numbers, quantiles)


def _present(rows: Tensor, gate: int | None) -> Tensor:
    """Tell which rows have a value."""
    return torch.ones(len(rows), dtype=torch.bool) if gate is None else rows[:, gate] > 0.0


def _mapped(span: OutputSpan, tree: Tree, rows: Tensor, records: Tensor) -> NumberMend:
    """Give a number the records' quantiles in every leaf."""
    found = []
    for own in (rows, records):
        there = _present(own, span.gate)
        found.append((tree.leaves(own)[there], own[there, span.start]))
    pairs: list[Any] = [
        tuple(values[leaf_of == node] for leaf_of, values in found)
        for node in range(len(tree.columns))
    ]
    before, after, slopes, spread = (table.to(rows.dtype) for table in quantile_maps(pairs))
    return NumberMend(span, tree, before, after, slopes, _REACH * spread.clamp_min(1e-6))
