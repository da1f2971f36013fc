"""What a number means: `Metric` says it before any data is seen, `MetricResult` afterwards."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import pandas as pd

from vflsynth.exceptions import VFLSynthError
from vflsynth.reporting import number_text

Direction = Literal["lower", "higher", "baseline"]

_DIRECTIONS = {
    "lower": "lower is better",
    "higher": "higher is better",
    "baseline": "closest to the baseline is best",
}


class NotApplicableError(VFLSynthError, ValueError):
    """A number was asked of a metric that does not apply; the message says why."""


class Reading(NamedTuple):
    """One number with its interval and its two marks, as a row of a table shows it."""

    value: float | None
    interval: tuple[float, float] | None
    baseline: float | None
    naive: float | None

    def row(self) -> dict[str, float | None]:
        """Return `value`, `lower`, `upper`, `baseline` and `naive`."""
        lower, upper = self.interval or (None, None)
        marks = {"baseline": self.baseline, "naive": self.naive}
        return {"value": self.value, "lower": lower, "upper": upper} | marks


@dataclass(frozen=True)
class Metric:
    """The declaration of a metric.

    Parameters
    ----------
    name : str
        Identifier, as in `MetricResults.to_frame`.
    title : str
        Name in words.
    direction : {"lower", "higher", "baseline"}
        What is better.
    measures : str
        One plain sentence: what the number says.
    minimum, maximum : float, default 0 and 1
        Range; infinite where there is no bound.
    baseline : str, default "two random halves of the real table"
        How the baseline is measured: what real data score.
    naive : str, optional
        How the naive mark is measured: what a table scores that knows next to nothing. Where it is
        given, a value is read as a point on the ruler from naive to baseline.
    """

    name: str
    title: str
    direction: Direction
    measures: str
    minimum: float = 0.0
    maximum: float = 1.0
    baseline: str = "two random halves of the real table"
    naive: str | None = None

    @property
    def direction_in_words(self) -> str:
        """Such as "lower is better"."""
        return _DIRECTIONS[self.direction]

    def not_applicable(self, because: str) -> MetricResult:
        """Return a result without a value; `because` completes "not applicable, because ..."."""
        return MetricResult(metric=self, not_applicable=because)


@dataclass(frozen=True, eq=False)
class MetricResult:
    """A value with everything needed to read it. Never NaN.

    Parameters
    ----------
    metric : Metric
        What was measured.
    value : float, optional
        The value; None only together with `not_applicable`.
    interval : tuple of (float, float), optional
        95 % interval, inside the metric's range and around the value.
    interval_method : str
        How the interval was made, or why there is none.
    baseline : float, optional
        What real data score.
    naive : float, optional
        What a table scores that knows next to nothing.
    parts : DataFrame
        What the value is made of, one row per part.
    not_applicable : str, optional
        Completes "not applicable, because ...".
    notes : tuple of str
        What a careful reader should know, such as a sample that was taken.
    """

    metric: Metric
    value: float | None = None
    interval: tuple[float, float] | None = None
    interval_method: str = ""
    baseline: float | None = None
    naive: float | None = None
    parts: pd.DataFrame = field(default_factory=pd.DataFrame)
    not_applicable: str | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.value is None) != (self.not_applicable is not None):
            raise ValueError("a result has either a value or a reason why it has none")
        numbers = (self.value, self.baseline, self.naive, *(self.interval or ()))
        if any(number is not None and not math.isfinite(number) for number in numbers):
            raise ValueError(f"{self.metric.name} is not finite: {numbers}")

    def __float__(self) -> float:
        if self.value is None:
            raise NotApplicableError(str(self))
        return self.value

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.metric.title}: not applicable, because {self.not_applicable}"
        ends = ", ".join(map(number_text, self.interval or ()))
        interval = f" [{ends}]" if ends else ""
        marks = [self.metric.direction_in_words]
        if self.baseline is not None:
            marks.append(f"real data: {number_text(self.baseline)}")
        if self.naive is not None:
            marks.append(f"naive: {number_text(self.naive)}")
        return f"{self.metric.title} {number_text(self.value)}{interval} ({'; '.join(marks)})"

    @property
    def gap_closed(self) -> float | None:
        """Where the value lies between the naive mark (0) and real data (1), cut off at both ends.

        None where either mark is missing, or where they coincide so that there is no ruler.
        """
        if self.value is None or self.baseline is None or self.naive is None:
            return None
        length = self.baseline - self.naive
        signed = {"lower": -length, "higher": length, "baseline": abs(length)}
        if signed[self.metric.direction] <= 1e-9:
            return None
        return min(1.0, max(0.0, (self.value - self.naive) / length))

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists, numbers and strings; missing numbers are None."""
        metric = self.metric
        return {
            "name": metric.name,
            "title": metric.title,
            "value": self.value,
            "interval": None if self.interval is None else list(self.interval),
            "interval_method": self.interval_method,
            "baseline": self.baseline,
            "naive": self.naive,
            "gap_closed": self.gap_closed,
            "direction": metric.direction,
            "range": [_finite(metric.minimum), _finite(metric.maximum)],
            "measures": metric.measures,
            "baseline_is": metric.baseline,
            "naive_is": metric.naive,
            "not_applicable": self.not_applicable,
            "notes": list(self.notes),
            "parts": [
                {str(key): _plain(value) for key, value in row.items()}
                for row in self.parts.to_dict("records")
            ],
        }


class MetricResults(Mapping[str, MetricResult]):
    """Results by metric name, in the order in which they were computed.

    Parameters
    ----------
    results : iterable of MetricResult
    digests : mapping of column to str, optional
        Of the columns of both tables that they are of, where these were in memory.
    """

    def __init__(
        self, results: Iterable[MetricResult] = (), digests: Mapping[Hashable, str] | None = None
    ) -> None:
        self._results = {result.metric.name: result for result in results}
        self.digests = dict(digests or {})

    def __getitem__(self, name: str) -> MetricResult:
        return self._results[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    def __repr__(self) -> str:
        return "\n".join(str(result) for result in self._results.values())

    def _repr_html_(self) -> str:
        return self.to_frame().to_html(border=0, float_format="{:.4g}".format, na_rep="")

    @property
    def remarks(self) -> list[str]:
        """What goes with the results, each once: rows that were sampled, columns left out."""
        return list(dict.fromkeys(note for own in self._results.values() for note in own.notes))

    def to_frame(self) -> pd.DataFrame:
        """Return one row per metric, indexed by its name.

        Returns
        -------
        DataFrame
            Value, interval, baseline, naive mark, direction and range; `not_applicable` holds the
            reason where there is no value.
        """
        rows = [
            {"metric": result.metric.name}
            | Reading(result.value, result.interval, result.baseline, result.naive).row()
            | {
                "direction": result.metric.direction,
                "minimum": result.metric.minimum,
                "maximum": result.metric.maximum,
                "interval_method": result.interval_method,
                "not_applicable": result.not_applicable,
            }
            for result in self._results.values()
        ]
        return pd.DataFrame(rows).set_index("metric") if rows else pd.DataFrame()

    def to_json(self) -> str:
        """Return everything, parts included, as strict JSON by metric name: no NaN, no Infinity."""
        content = {name: result.to_dict() for name, result in self._results.items()}
        return json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False)


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _plain(value: Any) -> Any:
    """JSON has no NaN, NA or numpy numbers; column names may be anything."""
    if isinstance(value, str | bool) or value is None:
        return value
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if pd.isna(value):
        return None
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return _finite(value)
    return value if isinstance(value, int) else str(value)


FAILING = 0.1
"""A column or pair that is further off than this, beyond what halves of the real table are, fails.

No mean hides it: the answer of its card is at most "part of the way".
"""

_CHANCE = 3.0  # times the mean error of halves: what the worst of many pairs has by chance


class Part(NamedTuple):
    """A column, or a pair of columns by their labels.

    How far it is off, and how much of this two halves of the real table are not (`beyond`).
    """

    name: Hashable
    value: float
    beyond: float

    @property
    def words(self) -> str:
        """The label, or both with "and" between them."""
        return " and ".join(map(str, self.name)) if isinstance(self.name, tuple) else str(self.name)


def by_part(result: MetricResult) -> list[Part]:
    """Return the columns of `marginal_distance`, or the pairs of `association_errors`; worst first.

    Other results have no parts of this kind: an empty list.
    """
    parts = result.parts
    if result.metric.name == "marginal_distance":
        names: list[Hashable] = parts["column"].tolist()
        values = parts["value"].astype(float)
        usual = parts["baseline"].astype(float).fillna(0.0)
    elif result.metric.name.startswith("association_error") and len(parts):
        parts = parts.dropna(subset=["error"])
        names = list(zip(parts["column_a"], parts["column_b"]))
        values = parts["error"].astype(float)
        usual = pd.Series(_CHANCE * (result.baseline or 0.0), index=values.index)
    else:
        return []
    found = [Part(*each) for each in zip(names, values.tolist(), (values - usual).tolist())]
    return sorted(found, key=lambda part: -part.beyond)
