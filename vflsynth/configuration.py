"""What is to be fitted, in names and plain values: by command lines, TOML files and jobs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from vflsynth._schema import FileTable, Mistakes, Parsed, Says, checked, read_toml
from vflsynth.columns import PublicSchema
from vflsynth.exceptions import ParameterError, PrivacyParameterError, did_you_mean
from vflsynth.frames.io import infers_types
from vflsynth.registry import Members, Number, Optional, find

if TYPE_CHECKING:
    from vflsynth.columns import TableTransformer
    from vflsynth.contract import Contract
    from vflsynth.mechanisms import Mechanism
    from vflsynth.methods.synthesizer import BaseSynthesizer

METHODS = ("synthesizers", "classifiers")
"""Groups of the registry whose members a job may name as its method."""

DEFAULT_METHOD = "VFLGANSynthesizer"

Count = Annotated[int, Number(1, whole=True)]
FrameBytes = Annotated[int, Number(1 << 16, whole=True)]
_Seconds = Annotated[float, Number(0, closed=(False, True))]


def _kind(name: Any) -> str:
    find(name, "column_kinds")
    return str(name)


ColumnKind = Annotated[str, Parsed(_kind)]


@dataclass(kw_only=True)
class Public(FileTable):
    """What is public about columns.

    Parameters
    ----------
    bounds : dict of column to [low, high]
        Range of numbers or times, known without looking at the records.
    categories : dict of column to list
        Labels, known without looking at the records.
    dtypes : dict of column to str
        Types of all columns, the key's too, for tables in files that fix none.
    """

    bounds: dict[str, list[Any]] = field(default_factory=dict)
    categories: dict[str, list[Any]] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)

    def schema(self, where: str, label: Callable[[str], Hashable] = str) -> PublicSchema:
        """Make the schema; `label` turns the text that names a column into its label."""
        named = (self.bounds, self.categories, self.dtypes)
        try:
            return PublicSchema(*({label(c): said for c, said in own.items()} for own in named))
        except (AttributeError, TypeError, ValueError) as error:
            raise ParameterError(
                f"{where}: privacy needs bounds like age = [0, 120] and categories like "
                f'smoker = ["no", "yes"]: {error}'
            ) from error


@dataclass(frozen=True, kw_only=True)
class Publishing(FileTable):
    """What ``vflsynth publish`` does with a fit.

    Parameters
    ----------
    output : str, default="published"
        Folder for everything that is made.
    target : str, optional
        Column that models trained on the table would predict.
    key : str, optional
        File of the private key that signs the release; 'vflsynth parties key' makes one.
    title : str, optional
        Of the published table.
    account : str, optional
        File of the privacy account that a private study books every fit in, also one that is done
        again; 'vflsynth new' and 'vflsynth account --create' make one.
    rows : int, optional
        Default: as many as were matched; a private study has to say.
    audit_minutes : float, optional
        Time for attacks on memberships; 0: no attack, and the contract waives what they would
        measure. Default: one more model is asked whether records can be singled out, linked and
        inferred, and the contract waives membership.
    seed : int, default=0
    holdout : dict of party to file
        Tables of records that the model is not fitted on.
    """

    output: str = "published"
    target: str | None = None
    key: str | None = None
    title: str | None = None
    account: str | None = None
    rows: Annotated[int | None, Optional(Number(1, whole=True))] = None
    audit_minutes: Annotated[float | None, Optional(Number(0))] = None
    seed: Annotated[int, Number(0, whole=True)] = 0
    holdout: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RunFile(FileTable):
    """What is said alike of a fit in one process and of a job.

    Parameters
    ----------
    method : str, default="VFLGANSynthesizer"
        A synthesizer, of a job also a classifier; see 'vflsynth methods'.
    on : str or dict of party to str, optional
        Key column in every table, or each party's; a site file may name its own, `key`. Default:
        row i is the same record everywhere.
    key_form : str, default=""
        In which form keys are compared, see `vflsynth.MatchOn`.
    parameters : dict
        Of the method, see `make_estimator`; 'vflsynth methods' lists those of `privacy`.
    max_records : int, optional
        Of tables that need not fit into memory: in one process so many of the matched records are
        drawn, see `vflsynth.read_records`. Of a job every party keeps so many of its rows, the same
        as the others where all have them, and matches no others.
    checkpoint_every : int, default=10
        Epochs.
    exchange_timeout, setup_timeout : float
        Seconds, of a job; see `vflsynth.federation.limits.Limits`.
    max_frame_bytes : int, default=256 MiB
        The largest message of a job.
    restarts : int, optional
        How often a job begins again by itself, from the last common checkpoint, when a party or the
        server was lost. Default: 2; 0 under privacy, where all that is computed again is paid for
        again.
    most_hours : float, default=8
        How long training may take. A job whose messages travel longer, by the round trip that is
        measured as parties join, stops before it trains; one whose first steps tell that all take
        longer stops then. In one process there is no limit unless it is said.
    """

    method: str = DEFAULT_METHOD
    on: Annotated[
        str | dict[str, str] | None,
        Says("the name of the key column, or a table of parties and names"),
    ] = None
    key_form: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    max_records: Annotated[int | None, Optional(Number(1, whole=True))] = None
    checkpoint_every: Count = 10
    exchange_timeout: _Seconds = 60.0
    setup_timeout: _Seconds = 300.0
    max_frame_bytes: FrameBytes = 1 << 28
    restarts: Annotated[int | None, Optional(Number(0, whole=True))] = None
    most_hours: _Seconds = 8.0


@dataclass(frozen=True, kw_only=True)
class FitFile(RunFile):
    """A study, a job, or what ``vflsynth fit --config`` reads.

    Parameters
    ----------
    parties : list of str, or dict of party to file
        Tables by party, relative to this file; between organisations, names alone.
    contract : str or dict
        A file, one of each party, or what all parties share.
    column_kinds, device, privacy
        What site files say.
    name : str
        Of a job.
    publish : dict
        What 'vflsynth publish' does with it.
    """

    parties: Annotated[
        list[str] | dict[str, str], Says("a list of names, or a table of names and files")
    ] = field(default_factory=dict)
    contract: Annotated[
        str | dict[str, Any] | None,
        Says("a file, a table of parties and files, or a table of what all parties share"),
    ] = None
    column_kinds: dict[str, ColumnKind] = field(default_factory=dict)
    device: str = "auto"
    privacy: Public = field(default_factory=Public)
    name: str = ""
    publish: Publishing = field(default_factory=Publishing)


_ELSEWHERE = {
    "column_kinds": "is a table of its own, [column_kinds]; on the command line use --kind",
    "contract": "is a key of its own, contract = FILE; on the command line use --contract",
    "device": "is a key of its own, above all tables; on the command line use --device",
    "verbose": "is not for files; on the command line use --quiet",
}


class Configuration:
    """A fit in one process: what a job and site files say, all in one.

    Keys are those of a job, and of site files ``column_kinds``, ``device`` and the tables
    ``bounds`` and ``categories`` of ``privacy``; ``parties`` may map names to files, and
    ``contract`` is a file, or one per party, or a table of what all share.

    The parts say where something was said, for error messages, and what. Later ones override
    earlier ones, value by value; a mechanism is replaced with its parameters. Raises
    ParameterError, which names the part, the key, and what there is instead. Values of parameters
    are not checked before `make`. Parties are in the order of a job's list, if there is one.

    Examples
    --------
    >>> file = {"method": "DPLTSynthesizer", "parameters": {"privacy": {"epsilon": 3}}}
    >>> configuration = Configuration(
    ...     {"run.toml": file, "command line": {"parameters": {"privacy": {"delta": 1e-6}}}}
    ... )
    >>> configuration.make().privacy
    LatentTree(delta=1e-06, epsilon=3)
    """

    def __init__(self, parts: Mapping[str, Mapping[str, Any]]) -> None:
        content: Mapping[str, Any] = {}
        names: list[str] | None = None
        mistakes = Mistakes()
        for where, part in parts.items():
            with mistakes.kept():
                checked(FitFile, part, where)
        mistakes.check()
        for part in parts.values():
            if isinstance(part.get("parties"), list):
                names = part["parties"]
                part = {key: value for key, value in part.items() if key != "parties"}
            content = _overridden(content, part)
        self.where = " and ".join(parts)
        self.method: str = content.get("method", DEFAULT_METHOD)
        self.on: str | dict[str, str] | None = content.get("on")
        self.key_form: str = content.get("key_form", "")
        self.most_hours: float | None = content.get("most_hours")
        self.max_records: int | None = content.get("max_records")
        self.checkpoint_every: int = content.get("checkpoint_every", 10)
        files = {name: Path(file) for name, file in content.get("parties", {}).items()}
        if names is not None and sorted(files) != sorted(names):
            raise ParameterError(
                f"{self.where}: parties are {', '.join(names)}, and tables are given of "
                f"{', '.join(files) or 'none'}. Fix: give each of them as PARTY=FILE"
            )
        self.parties = files if names is None else {name: files[name] for name in names}
        self._content = content
        self._kind = _synthesizer(self.method, self.where)
        for where, part in parts.items():  # names of each part are compared with those of the whole
            self._check_names(part.get("parameters", {}), where, mistakes)
        mistakes.check()

    def make(self, label: Callable[[str], Hashable] = str) -> BaseSynthesizer:
        """Make the synthesizer; `label` turns the text that names a column into its label.

        Raises ParameterError if what is public about columns is malformed or has no effect.
        """
        from vflsynth.mechanisms import HistogramMechanism

        content, public = self._content, Public(**self._content.get("privacy", {}))
        given = content.get("parameters", {})
        synth: BaseSynthesizer = make_estimator(self.method, given, where=self.where)
        if "device" in content:
            _check_known("device", inspect.signature(self._kind).parameters, self._name(self.where))
            synth.set_params(device=content["device"])
        if content.get("column_kinds"):
            kinds = {label(column): kind for column, kind in content["column_kinds"].items()}
            synth.set_params(column_kinds=kinds)
        encoding = getattr(synth, "transformer", None)
        for name in ("encoders", "overrides"):
            if encoding is not None and (said := getattr(encoding, name)):
                encoding.set_params(**{name: {label(c): own for c, own in said.items()}})
        if content.get("contract"):
            synth.set_params(contract=self._contract(content["contract"], label))
        if public != Public():
            if not isinstance(synth.privacy, HistogramMechanism):
                has = "no privacy" if synth.privacy is None else type(synth.privacy).__name__
                raise ParameterError(
                    f"{self.where}: bounds and categories have no effect with {has}: it scales "
                    "columns by the records themselves. Fix: leave them out"
                )
            synth.privacy.set_params(public_schema=public.schema(self.where, label))
        return synth

    def _contract(self, said: Any, label: Callable[[str], Hashable]) -> Contract:
        """Read one contract; or what all share, as in a job, and what every party wrote."""
        from vflsynth.contract import Contract, contract_from, own_contract, read_contract

        if isinstance(said, str):
            return read_contract(said, label)
        files = {name: file for name, file in said.items() if isinstance(file, str)}
        shared = {name: value for name, value in said.items() if name not in files}
        for name in files:
            if name not in self.parties:
                raise ParameterError(
                    f"{self.where}: contract of {name!r}, and the parties are "
                    f"{', '.join(self.parties)}"
                )
        if not shared:
            return Contract.agreed({n: read_contract(file, label) for n, file in files.items()})
        whole = contract_from(shared, f"{self.where}: contract", label)
        if not files:
            return whole
        return Contract.agreed(
            {name: own_contract(file, name, whole, label) for name, file in files.items()}
        )

    def _check_names(self, parameters: Mapping[str, Any], where: str, mistakes: Mistakes) -> None:
        """Compare names that a part has with those of the whole's method and mechanism."""
        known = inspect.signature(self._kind).parameters
        for name in parameters:
            with mistakes.kept():
                if name in _ELSEWHERE:
                    raise ParameterError(f"{where}: parameters.{name} {_ELSEWHERE[name]}")
                _check_known(name, known, self._name(where))
        if isinstance(given := parameters.get("privacy"), Mapping):
            with mistakes.kept():
                whole = _table(self._content["parameters"]["privacy"], f"{self.where}: privacy")
                _mechanism_of(_default_mechanism(self._kind), whole, given, where)

    def _name(self, where: str) -> str:
        return f"{where}: {self._kind.__name__}"


def read_configuration(path: Path) -> dict[str, Any]:
    """Read a TOML file for `Configuration`; paths of tables in it are relative to its folder."""
    content = read_toml(path)
    checked(FitFile, content, str(path))

    def relative(said: Any) -> Any:
        if isinstance(said, Mapping):
            return {k: relative(v) if isinstance(v, str) else v for k, v in said.items()}
        return str(path.parent / said) if isinstance(said, str) and said else said

    return content | {k: relative(content[k]) for k in ("parties", "contract") if k in content}


def schema_of_files(schema: PublicSchema | None, files: Mapping[str, Path]) -> PublicSchema:
    """Complete a schema by the types that files fix; refuse files that fix none.

    `files` holds the tables of a private fit by what error messages begin with. Types that are
    "given" do not help: it is this program that would infer them from the records.
    """
    schema = schema or PublicSchema()
    if isinstance(schema.dtypes, Mapping) and schema.dtypes:
        return schema
    for whose, path in files.items():
        if infers_types(path):
            raise ParameterError(
                f"{whose} is private and takes the types of columns as public, but those of "
                f"{str(path)!r} would be read off its records: in a csv file one record can change "
                "them. Fix: store the table as parquet, with types that are fixed beforehand, for "
                "example with vflsynth.frames.write_table; or state all types, the key's too, in "
                'a table dtypes of privacy, like age = "Int64"'
            )
    return replace(schema, dtypes="given")


def make_estimator(method: str, parameters: Mapping[str, Any], *, where: str) -> Any:
    """Make a synthesizer or a split classifier, by the name of a registered class.

    ``privacy`` is a table with ``mechanism`` and that mechanism's parameters, ``transformer`` one
    with those of `TableTransformer`; other objects are tables with ``class``, the name of a
    registered protection, encoder or other object, and its parameters. `where` is what error
    messages begin with.
    """
    kind = find(method, *METHODS, where=f"{where}: method")
    values = {}
    for name, value in parameters.items():
        _check_known(name, inspect.signature(kind).parameters, f"{where}: {kind.__name__}")
        inside = f"{where}: {name}"
        if name == "privacy" and value is not None:
            values[name] = make_mechanism(value, where=inside, default=_default_mechanism(kind))
        elif name == "transformer" and value is not None:
            if "kinds" in _table(value, inside):
                raise ParameterError(
                    f"{where}: kinds of transformer belongs into the site files of a job, and into "
                    "the table [column_kinds], or --kind, of a fit in one process"
                )
            values[name] = make_transformer(value, inside)
        else:
            values[name] = _object(value, ("protections", "parameters"), inside)
    return kind(**values)


def make_transformer(content: Any, where: str) -> TableTransformer:
    """Make the encoding of tables of its parameters; an encoder is a name or a table."""
    from vflsynth.columns import TableTransformer

    given = dict(_table(content, where))
    if "continuous" in given:
        given["continuous"] = _object(given["continuous"], ("encoders",), f"{where}.continuous")
    if given.get("encoders") is not None:
        given["encoders"] = {
            column: _object(encoder, ("encoders",), f"{where}.encoders.{column}")
            for column, encoder in _table(given["encoders"], f"{where}.encoders").items()
        }
    made: TableTransformer = _made(TableTransformer, given, where)
    return made


def make_mechanism(
    content: Any, *, where: str, default: type[Mechanism] | None = None
) -> Mechanism:
    """Make a mechanism of a table with ``mechanism`` and that mechanism's own parameters.

    `where` begins error messages; `default` is the mechanism if none is named. Values are checked
    when they are used.
    """
    given = _table(content, where)
    kind = _mechanism_of(default, given, given, where)
    made: Mechanism = _made(kind, {k: v for k, v in given.items() if k != "mechanism"}, where)
    return made


def _overridden(content: Any, part: Any) -> Any:
    """Return nested tables with the values of others in their place."""
    if not isinstance(content, Mapping) or not isinstance(part, Mapping):
        return part
    new = {
        key: value
        if key == "privacy" and isinstance(value, Mapping) and "mechanism" in value
        else _overridden(content.get(key), value)
        for key, value in part.items()
    }
    return {**content, **new}


def _synthesizer(name: str, where: str) -> type[BaseSynthesizer]:
    if name not in Members("synthesizers") and name in Members("classifiers"):
        raise ParameterError(
            f"{where}: {name} is a classifier, and this command fits synthesizers. Fix: fit it in "
            "Python, or between parties with 'vflsynth parties'"
        )
    return find(name, "synthesizers", where=f"{where}: method")


def _default_mechanism(kind: type[Any]) -> type[Mechanism] | None:
    """Return the first that a method can have."""
    return next((each for each in getattr(kind, "methods", ()) if each is not None), None)


def _mechanism_of(
    default: type[Mechanism] | None, whole: Any, given: Mapping[str, Any], where: str
) -> type[Mechanism]:
    """Find a mechanism, and compare the names of parameters that are given with its own."""
    named = whole.get("mechanism", None if default is None else default.name)
    kind = find(named, "mechanisms", where=f"{where}: mechanism")
    known = inspect.signature(kind).parameters
    for name in given:
        if name == "public_schema":
            raise PrivacyParameterError(
                f"{where}: {name}",
                given[name],
                "left out: what is public about columns is in the tables [privacy.bounds] and "
                "[privacy.categories], of site files where there are any, or --bounds and "
                "--categories",
            )
        if name != "mechanism" and name not in known:
            homes = [
                other.name
                for other in Members("mechanisms").values()
                if name in inspect.signature(other).parameters
            ]
            having = f", which is for {' and '.join(homes)}" if homes else ""
            _check_known(name, known, f"{where}: {kind.name}", having)
    return kind


def _made(kind: type[Any], given: Mapping[str, Any], where: str) -> Any:
    """Make an object of plain values."""
    for name in given:
        _check_known(name, inspect.signature(kind).parameters, f"{where}: {kind.__name__}")
    return kind(**{name: _plain(value) for name, value in given.items()})


def _object(value: Any, groups: Collection[str], where: str) -> Any:
    """Make an object of a table with ``class``; return other values as `_plain` does."""
    if not isinstance(value, Mapping) or "class" not in value:
        return _plain(value)
    own = {key: item for key, item in value.items() if key != "class"}
    return _made(find(value["class"], *groups, where=where), own, where)


def _check_known(name: str, known: Collection[str], where: str, having: str = "") -> None:
    if name not in known:
        raise ParameterError(
            f"{where} has no {name!r}{having}; there are {', '.join(known)}"
            + did_you_mean(name, known)
        )


def _table(content: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(content, Mapping):
        raise ParameterError(f"{where} must be a table of names and values, got {content!r}")
    return content


def _plain(value: Any) -> Any:
    """Return lists as the tuples that parameters are."""
    return tuple(value) if isinstance(value, list) else value
