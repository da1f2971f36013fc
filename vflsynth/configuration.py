"""What is to be fitted, in names and plain values: by command lines, TOML files and jobs."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflsynth._validation import did_you_mean
from vflsynth.columns import PublicSchema
from vflsynth.exceptions import ParameterError, PrivacyParameterError
from vflsynth.frames import infers_types
from vflsynth.registry import Members

if TYPE_CHECKING:
    from vflsynth.columns import TableTransformer
    from vflsynth.contract import Contract
    from vflsynth.mechanisms import Mechanism
    from vflsynth.methods.synthesizer import BaseSynthesizer

METHODS = ("synthesizers", "classifiers", "regressors")
"""Groups of the registry whose members a job may name as its method."""

DEFAULT_METHOD = "VFLGANSynthesizer"

_KEYS: dict[str, type | tuple[type, ...]] = {
    "method": str,
    "on": (str, dict),
    "parties": (list, dict),
    "parameters": dict,
    "column_kinds": dict,
    "contract": (str, dict),
    "device": str,
    "key_form": str,
    "privacy": dict,
    "checkpoint_every": int,
    # Of a job; they say nothing about a fit in one process.
    "name": str,
    "exchange_timeout": (int, float),
    "setup_timeout": (int, float),
    "max_frame_bytes": int,
    "restarts": (int, type(None)),
    "publish": dict,  # of a study, see `vflsynth.cli.study`
}
_WORDS = {str: "text", int: "a whole number", dict: "a table of names and values"}
_ELSEWHERE = {
    "column_kinds": "is a table of its own, [column_kinds]; on the command line use --kind",
    "contract": "is a key of its own, contract = FILE; on the command line use --contract",
    "device": "is a key of its own, above all tables; on the command line use --device",
    "verbose": "is not for files; on the command line use --quiet",
}
_BUDGET = (
    "is what a site agrees to spend, in a site file. Fix: what a fit promises is among "
    "[parameters.privacy], or use --privacy"
)


class Configuration:
    """A fit in one process: what a job and site files say, all in one.

    Keys are those of a job, and of site files ``column_kinds``, ``device`` and the tables
    ``bounds`` and ``categories`` of ``privacy``; ``parties`` may map names to files, and
    ``contract`` is a file, or one per party, or a table of what all share.

    Parameters
    ----------
    parts : mapping of str to mapping
        Where something was said, for error messages, to what was said. Later parts override
        earlier ones, value by value; a mechanism is replaced with its parameters.

    Attributes
    ----------
    where : str
        All parts.
    method : str
    on : str, dict of party to str, or None
    key_form : str
    parties : dict of str to Path
        In the order of a job's list of parties if there is one.
    checkpoint_every : int

    Raises
    ------
    ParameterError
        Naming the part, the key, and what there is instead. Values of parameters are not checked
        before `make`.

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
        for where, part in parts.items():
            _check_keys(part, where)
            if isinstance(part.get("parties"), list):
                names = part["parties"]
                part = {key: value for key, value in part.items() if key != "parties"}
            content = _overridden(content, part)
        self.where = " and ".join(parts)
        self.method: str = content.get("method", DEFAULT_METHOD)
        self.on: str | dict[str, str] | None = content.get("on")
        self.key_form: str = content.get("key_form", "")
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
            self._check_names(part.get("parameters", {}), where)

    def make(self, label: Callable[[str], Hashable] = str) -> BaseSynthesizer:
        """Make the synthesizer; `label` turns the text that names a column into its label.

        Raises
        ------
        ParameterError
            If what is public about columns is malformed or has no effect.
        """
        from vflsynth.mechanisms import HistogramMechanism

        content, public = self._content, self._content.get("privacy", {})
        synth: BaseSynthesizer = make_estimator(
            self.method, content.get("parameters", {}), where=self.where, refused=_ELSEWHERE
        )
        if "device" in content:
            _check_known("device", inspect.signature(self._kind).parameters, self._name(self.where))
            synth.set_params(device=content["device"])
        if content.get("column_kinds"):
            kinds = {label(column): kind for column, kind in content["column_kinds"].items()}
            synth.set_params(column_kinds=kinds)
        encoding = getattr(synth, "transformer", None)
        if encoding is not None and encoding.encoders:
            encoding.set_params(encoders={label(c): e for c, e in encoding.encoders.items()})
        if content.get("contract"):
            synth.set_params(contract=self._contract(content["contract"], label))
        if any(public.values()):
            if not isinstance(synth.privacy, HistogramMechanism):
                has = "no privacy" if synth.privacy is None else type(synth.privacy).__name__
                raise ParameterError(
                    f"{self.where}: bounds and categories have no effect with {has}: it scales "
                    "columns by the records themselves. Fix: leave them out"
                )
            synth.privacy.set_params(public_schema=public_schema(public, self.where, label))
        return synth

    def _contract(self, said: Any, label: Callable[[str], Hashable]) -> Contract:
        """Read one contract; or what all share, as in a job, and what every party wrote."""
        from vflsynth.contract import Contract, contract_from_content, own_contract, read_contract

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
        whole = contract_from_content(shared, f"{self.where}: contract", label)
        if not files:
            return whole
        return Contract.agreed(
            {name: own_contract(file, name, whole, label) for name, file in files.items()}
        )

    def _check_names(self, parameters: Mapping[str, Any], where: str) -> None:
        """Compare names that a part has with those of the whole's method and mechanism."""
        for name in parameters:
            if name in _ELSEWHERE:
                raise ParameterError(f"{where}: parameters.{name} {_ELSEWHERE[name]}")
            _check_known(name, inspect.signature(self._kind).parameters, self._name(where))
        if isinstance(given := parameters.get("privacy"), Mapping):
            whole = self._content["parameters"]["privacy"]
            _mechanism_of(_default_mechanism(self._kind), whole, given, where)

    def _name(self, where: str) -> str:
        return f"{where}: {self._kind.__name__}"


def read_configuration(path: Path) -> dict[str, Any]:
    """Read a TOML file for `Configuration`; paths of tables in it are relative to its folder."""
    content = read_toml(path)
    if isinstance(files := content.get("parties"), dict):
        for name, file in files.items():
            if not isinstance(file, str):
                raise ParameterError(f"{path}: parties.{name} must be a file, got {file!r}")
    for key in ("parties", "contract"):
        if isinstance(said := content.get(key), dict):
            content[key] = {
                name: str(path.parent / file) if isinstance(file, str) else file
                for name, file in said.items()
            }
    if isinstance(file := content.get("contract"), str) and file:
        content["contract"] = str(path.parent / file)
    return content


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ParameterError(f"{path} cannot be read: {error}") from error


def known_keys(content: Mapping[str, Any], names: Collection[str], where: str) -> None:
    """Refuse what no file of this kind has."""
    for name in content:
        if name not in names:
            raise ParameterError(
                f"{where}: unknown {name!r}; there are {', '.join(names)}"
                + did_you_mean(name, names)
            )


def public_schema(
    content: Mapping[str, Any], where: str, label: Callable[[str], Hashable] = str
) -> PublicSchema:
    """Make a schema of tables ``bounds``, ``categories`` and ``dtypes``, as site files have."""
    try:
        return PublicSchema(
            *(
                {label(column): values for column, values in content.get(name, {}).items()}
                for name in ("bounds", "categories", "dtypes")
            )
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise ParameterError(
            f"{where}: privacy needs bounds like age = [0, 120] and categories like "
            f'smoker = ["no", "yes"]: {error}'
        ) from error


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


def make_estimator(
    method: str,
    parameters: Mapping[str, Any],
    *,
    where: str,
    refused: Mapping[str, str] | None = None,
) -> Any:
    """Make a synthesizer or a split classifier.

    Parameters
    ----------
    method : str
        Short or full name of a registered class, such as ``"VFLGANSynthesizer"``.
    parameters : mapping of str to JSON or TOML values
        ``privacy`` is a table with ``mechanism`` and that mechanism's parameters, ``transformer``
        one with those of `TableTransformer`; other objects are tables with ``class``, the name of
        a registered protection, encoder or other object, and its parameters.
    where : str
        What error messages begin with.
    refused : mapping of str to str, optional
        Parameters that may not be given here, and where they belong.

    Returns
    -------
    BaseSynthesizer or BaseSplitEstimator

    Raises
    ------
    ParameterError
        Naming what there is instead.
    """
    kind = _registered(method, METHODS, f"{where}: method")
    values = {}
    for name, value in parameters.items():
        if name in (refused or {}):
            raise ParameterError(f"{where}: {name} {(refused or {})[name]}")
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
    """Make the encoding of tables of its parameters; an encoder is a name or a table.

    Raises
    ------
    ParameterError
        If the name of a parameter or of an encoder is unknown.
    """
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


def _check_keys(part: Mapping[str, Any], where: str) -> None:
    """Check the shape of what a file or a command line says."""
    known_keys(part, _KEYS, where)
    for name, value in part.items():
        kind = _KEYS[name]
        if not isinstance(value, kind) or isinstance(value, bool):
            kinds = kind if isinstance(kind, tuple) else (kind,)
            word = " or ".join(_WORDS.get(own, "a number") for own in kinds)
            if name == "parties":
                word = "a list of names, or a table of names and files"
            raise ParameterError(f"{where}: {name} must be {word}, got {value!r}")
    public = part.get("privacy", {})
    for name in ("epsilon", "delta"):
        if name in public:
            raise ParameterError(f"{where}: privacy.{name} {_BUDGET}")
    known_keys(public, ("bounds", "categories", "dtypes"), f"{where}: privacy")
    for column, kind in part.get("column_kinds", {}).items():
        _registered(kind, ("column_kinds",), f"{where}: column_kinds.{column}")


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
    for group in ("classifiers", "regressors"):
        if name not in Members("synthesizers") and name in Members(group):
            raise ParameterError(
                f"{where}: {name} is a {group[:-1]}, and this command fits synthesizers. Fix: fit "
                "it in Python, or between parties with 'vflsynth parties'"
            )
    return _registered(name, ("synthesizers",), f"{where}: method")


def _registered(name: Any, groups: Collection[str], where: str) -> type[Any]:
    """Find a class by its name."""
    known = [Members(group) for group in groups]
    for members in known:
        if name in members:
            return members[name]
    nouns = " or ".join(group.replace("_", " ") for group in groups)
    names = ", ".join(name for members in known for name in members)
    near = did_you_mean(name, (name for members in known for name in members))
    raise ParameterError(
        f"{where}: there is no {name!r} among the {nouns}; there are {names}{near}"
    )


def _default_mechanism(kind: type[Any]) -> type[Mechanism] | None:
    """Return the first that a method can have."""
    return next((each for each in getattr(kind, "methods", ()) if each is not None), None)


def _mechanism_of(
    default: type[Mechanism] | None, whole: Any, given: Mapping[str, Any], where: str
) -> type[Mechanism]:
    """Find a mechanism, and compare the names of parameters that are given with its own."""
    named = whole.get("mechanism", None if default is None else default.name)
    kind = _registered(named, ("mechanisms",), f"{where}: mechanism")
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
    return _made(_registered(value["class"], groups, where), own, where)


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
