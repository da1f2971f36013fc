"""``vflsynth publish``: a study file -> a verified release, one resumable job."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import logging
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

from vflsynth import _artefacts as artefacts
from vflsynth._schema import read_toml
from vflsynth._signals import handling
from vflsynth._version import __version__
from vflsynth.cli.console import say, table
from vflsynth.cli.options import Option, check_folder, declare
from vflsynth.cli.study import Study
from vflsynth.cli.tables import check_target, match_on
from vflsynth.exceptions import ArtefactError, ContractError, VFLSynthError
from vflsynth.frames.io import kind_of_file
from vflsynth.frames.sources import records_of
from vflsynth.reporting import quiet

logger = logging.getLogger("vflsynth")

DESCRIPTION = """\
From tables to a release that others can check: contract, model, synthetic table, audit, verdict,
signature. Before it starts it says what it will do, by which method and why, how long it takes and
how much memory.

Every step is a command of its own, which is shown as it is run, and leaves its result in the folder
'output' of the study file. What was finished stays: after Ctrl-C, a crash or a change of the study
or the contract, the same command does what is left to do.
"""
EPILOG = """\
examples:
  vflsynth new lab=lab.csv clinic=clinic.csv --on patient_id
  vflsynth publish study.toml --plan
  vflsynth publish study.toml

The study file is that of 'vflsynth fit --config', with a table [publish] of its own: 'vflsynth new'
writes one, 'vflsynth schema study' explains its keys.

CAUTION: audit and release put the real rows of all parties side by side, in this process.
"""

STATE = "state.json"
_CHECKPOINT = "checkpoint"


OPTIONS = [
    Option("study STUDY", "TOML file, such as 'vflsynth new' writes"),
    Option("--plan", "say what would be done, and do nothing"),
]


def run(options: argparse.Namespace) -> int:
    """Do what is left to do; 1 if the release does not pass."""
    job = _Job(Study.read(options.study), quiet=options.quiet)
    check_folder("publish.output", job.out)
    with _ending_at_ctrl_c() as check:
        say(job.plan())
        check()
        if options.plan:
            return 0
        # Reports of real rows are in it: nobody else may look.
        job.out.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.name != "posix":
            return job.run(check)
        from vflsynth._locks import lock

        with lock(job.out / ".lock", "another 'vflsynth publish' is at work here; wait for it"):
            return job.run(check)


def publish(study: str | os.PathLike[str], *, quiet: bool = False) -> bool:
    """Do from Python what ``vflsynth publish`` does, with the same files.

    Parameters
    ----------
    study : path-like
        TOML file, such as ``vflsynth new`` writes.
    quiet : bool, default=False
        Print nothing.

    Returns
    -------
    bool
        Whether the release passes: then its folder ``release/public`` may be handed out.

    Raises
    ------
    VFLSynthError
        Of the step that failed. What was finished before is kept, and the same call goes on.
    """
    with contextlib.redirect_stdout(io.StringIO()) if quiet else contextlib.nullcontext():
        return run(argparse.Namespace(study=Path(study), plan=False, quiet=quiet)) == 0


def interrupted(options: argparse.Namespace) -> str:
    """Say what is left of a job that Ctrl-C ended."""
    return f"what was finished is kept; next: vflsynth publish {shlex.quote(str(options.study))}"


@contextlib.contextmanager
def _ending_at_ctrl_c() -> Iterator[Callable[[], None]]:
    """Yield what raises KeyboardInterrupt if there was a Ctrl-C: libraries lose it, or fail of it.

    That raised in the midst of an import, for one, may come out as an ImportError or not at all.
    """
    pressed: list[int] = []
    usual = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        usual(number, frame)  # type: ignore[operator, misc]

    def check() -> None:
        if pressed:
            raise KeyboardInterrupt

    with handling(signal.SIGINT, note) if callable(usual) else contextlib.nullcontext():
        try:
            yield check
        except Exception:
            check()
            raise


@dataclass(frozen=True)
class Step:
    """One command of the job.

    `does` says it in words, for the plan. `arguments` returns its command line, which may depend on
    what earlier steps left. `keeps` is where to keep what it prints.
    """

    name: str
    does: str
    arguments: Callable[[], Sequence[object]]
    inputs: tuple[Path, ...]
    outputs: tuple[Path, ...]
    keeps: Path | None = None


class _Job:
    """A study with what was done of it."""

    def __init__(self, study: Study, *, quiet: bool) -> None:
        from vflsynth._signatures import public_key

        self.study, self.quiet = study, quiet
        for party, path in study.held_out.items():  # which the last steps read, after training
            kind_of_file(path, party)
        if study.private_key is not None:
            public_key(study.private_key)
        self.out = study.path.parent / study.output
        self.contract = study.contract
        if self.contract is None and not study.is_private:
            self.contract = self.out / "contract.toml"
        tables = [*map("{0[0]}={0[1]}".format, study.parties.items())]
        keys = [part for text in study.on_options for part in _said("--on", text)]
        self._real = ["--real", *tables, *keys, *_said("--key-form", study.content.get("key_form"))]
        self.steps = tuple(self._steps())
        self.state: dict[str, Any] = {}

    # the steps

    def _steps(self) -> Iterable[Step]:
        study, out = self.study, self.out
        files, held_out = _with_records(study.parties), _with_records(study.held_out)
        model, synthetic, audit = out / "model", out / "synthetic.parquet", out / "audit.json"
        if self.contract is not None:
            given = study.contract is not None
            does = f"check {self.contract} against the tables"
            if not given:
                does = f"propose {self.contract}: read it, correct it, name it in the study"
            option = "--contract" if given else "--write-contract"
            command = [*self._real[1:], option, self.contract]
            inputs, outputs = ((*files, self.contract), ()) if given else (files, (self.contract,))
            kept = out / "tables.txt"
            yield Step("inspect", does, partial(list, command), inputs, outputs, kept)
        bound = () if self.contract is None else (self.contract,)
        yield Step("fit", ": ".join(study.choice), self._fit, files, (model,))
        rows = "as many rows as were matched" if study.rows is None else f"{study.rows:,} rows"
        yield Step("sample", f"draw {rows}", self._sample, (model,), (synthetic,))
        compared = (model, synthetic, *files, *held_out, *bound)
        page = out / "evaluation.html"
        does, kept = "compare the table with the real ones", out / "evaluation.txt"
        command = [*self._judged(), "--model", model, "-o", page]
        yield Step("evaluate", does, partial(list, command), compared, (page,), kept)
        if study.audits is not None:
            shown = out / "audit.html"
            yield Step("audit", study.audits, self._audit, (model, *files), (audit, shown), audit)
        audits = () if study.audits is None else (audit,)
        does, kept = "hold the table against the contract, write what goes out", out / "release.txt"
        signer = () if study.private_key is None else (study.private_key,)
        booked = () if study.account_file is None else (study.account_file,)
        inputs = (*compared, *audits, *signer, *booked)
        yield Step("release", does, self._release, inputs, (out / "release",), kept)
        if signer:
            public = out / "release" / "public"
            checked: list[object] = [public, "--public", out / "publisher.pub"]
            does, kept = "check the signature as a recipient would", out / "verify.txt"
            yield Step("verify", does, partial(list, checked), (out / "release", *signer), (), kept)

    def _fit(self) -> Sequence[object]:
        study, checkpoint = self.study, self.out / _CHECKPOINT
        return [
            *("--config", study.path),
            *_said("--method", None if "method" in study.content else study.method),
            *("--seed", study.seed, "--transcript", "--output", self.out / "model"),
            *_said("--account", study.account_file),
            *_said("--contract", self.contract if study.contract is None else None),
            *_said("--checkpoint", checkpoint if study.goes_on else None),
            *_said("--resume", checkpoint if study.goes_on and checkpoint.exists() else None),
        ]

    def _sample(self) -> Sequence[object]:
        n, model = self.study.rows, self.out / "model"
        if n is None:
            n = artefacts.read_json(model / "synthesizer.json")["alignment"]["n_matched"]
        return [model, "-n", n, "--seed", self.study.seed, "-o", self.out / "synthetic.parquet"]

    def _judged(self) -> list[object]:
        study = self.study
        command: list[object] = [*self._real, "--synthetic", self.out / "synthetic.parquet"]
        if study.held_out:
            command += ["--holdout", *map("{0[0]}={0[1]}".format, study.held_out.items())]
        return [*command, *_said("--target", study.target), *_said("--contract", self.contract)]

    def _audit(self) -> Sequence[object]:
        study, out = self.study, self.out
        command: list[object] = [out / "model", *self._real, "--json", "--seed", study.seed]
        if study.audit_minutes:
            command += ["--minutes", study.audit_minutes, "--jobs", -1]
            command += ["--cache", out / "audit-cache"]
        else:
            command.append("--questions")
        roles = study.roles(self.contract)
        sensitive = roles["sensitive"] or ([study.target] if study.target else [])
        known = [name for name in roles["quasi-identifier"] if name not in sensitive]
        for name in sensitive:
            command += _said("--sensitive", name)
        for name in known if sensitive else ():
            command += _said("--quasi-identifiers", name)
        return [*command, "-o", out / "audit.html"]

    def _release(self) -> Sequence[object]:
        study, out = self.study, self.out
        return [
            *(out / "model", *self._judged()),  # its seed goes out: not the fit's
            *_said("--audit", None if study.audits is None else out / "audit.json"),
            *_said("--title", study.title),
            *_said("--account", study.account_file),
            *_said("--key", study.private_key),
            *("-o", out / "release"),
        ]

    # what is done of them

    @property
    def again(self) -> str:
        """The command that goes on, as a shell takes it."""
        return f"vflsynth publish {shlex.quote(str(self.study.path))}"

    def plan(self) -> str:
        """Say what will be done, how long it takes and how much memory."""
        study = self.study
        self._read_state()
        rows: list[dict[str, str]] = []
        left = False
        for number, step in enumerate(self.steps, 1):
            left = left or not self._is_done(step)
            state = "" if left else "done"
            rows.append({"step": f"{number} {step.name}", "what": step.does, "state": state})
        lines = [f"{study.path}: {len(study.parties)} parties -> {self.out}", table(rows)]
        fit = next(step for step in self.steps if step.name == "fit")
        read = cache(study.read_tables)
        if study.target and not self._is_done(fit):
            check_target(read(), study.configuration.on, study.target)
        if study.held_out and study.configuration.max_records is None and not self._is_done(fit):
            from vflsynth.cli.judged import check_held_out

            with quiet(logging.ERROR):
                on = match_on(read(), study.configuration.on, study.configuration.key_form)
                check_held_out(read(), on, study.held_out)
        if not self.quiet and not self._is_done(fit):
            logger.info("%s", study.estimate(read, self.contract))
        if study.private_key is None:
            lines.append(
                "The release will not be signed, and nobody can verify it: key = FILE in [publish] "
                "changes that; 'vflsynth parties key FILE' makes one."
            )
        return "\n".join(lines)

    def run(self, check: Callable[[], None]) -> int:
        """Do what is left to do, and say what comes next; `check` is called after each step."""
        self._read_state()
        code = 0
        past: list[Step] = []
        for step in self.steps:
            if step.name == "verify" and code:
                break
            if step.name == "release":
                self._check_unchanged(past)
            past.append(step)
            if step.name == "fit" and self.study.is_private:
                self._notice_model(step)
            if self._is_done(step):
                code = self.state["steps"][step.name]["code"]
                continue
            try:
                code = self._do(step)
            except VFLSynthError as error:
                error.add_note(f"Next: {self.again}; what is done is kept")
                raise
            check()
            if code not in (0, 1):  # a training that Ctrl-C ended
                raise KeyboardInterrupt
        self._check_unchanged(past)
        for kept in ("release.txt", "verify.txt") if not code else ("release.txt",):
            if (self.out / kept).is_file():
                say((self.out / kept).read_text(encoding="utf-8").rstrip("\n"))
        say(f"\nnext: {self._next(code)}")
        return code

    def _check_unchanged(self, past: Sequence[Step]) -> None:
        """Refuse to go on if what earlier steps read or wrote is not what it was."""
        for step in past:
            if not self._is_done(step):
                raise ArtefactError(
                    f"what the step {step.name!r} read or wrote changed since, so that what comes "
                    f"after it is of other tables: hand out nothing of {self.out}. Fix: run "
                    f"'{self.again}' again, and change nothing meanwhile"
                )

    def _do(self, step: Step) -> int:
        """Run one command, and write down that it is done."""
        digest = self._inputs(step)
        if step.name == "fit" and self.state.get("began") != digest:
            # A checkpoint goes on only with what it began with.
            shutil.rmtree(self.out / _CHECKPOINT, ignore_errors=True)
            self._write_state(began=digest, before=_digest(self.out / "model"))
        if step.name == "verify" and self.study.private_key is not None:
            from vflsynth._signatures import public_key

            public = public_key(self.study.private_key) + "\n"
            artefacts.replace_text(self.out / "publisher.pub", public)
        last = self.state["steps"].get(step.name, {}).get("outputs", {})
        for path in step.outputs if step.name == "inspect" else ():
            if path.is_file() and last.get(path.name) == _digest(path):
                path.unlink()  # as it was proposed, of other tables
        if step.name == "sample" and last:  # the study's own, whatever became of it
            step.outputs[0].unlink(missing_ok=True)
        arguments = [str(part) for part in step.arguments()]
        logger.info("\n$ vflsynth %s %s", step.name, shlex.join(arguments))
        command = import_module(f"vflsynth.cli.{step.name}")
        parser = argparse.ArgumentParser()
        declare(parser, getattr(command, "OPTIONS", ()))
        own = argparse.Namespace(quiet=self.quiet, debug=False)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed if step.keeps is not None else sys.stdout):
            code = int(command.run(parser.parse_args(arguments, own)))
        if code in (0, 1):
            if step.keeps is not None:
                artefacts.replace_text(step.keeps, printed.getvalue())
            if step.name == "fit":
                shutil.rmtree(self.out / _CHECKPOINT, ignore_errors=True)
            self._write_done(step, digest, code)
            written = dict.fromkeys((*step.outputs, *([step.keeps] if step.keeps else [])))
            logger.info("-> %s", ", ".join(map(str, written)))
        elif step.name == "fit":  # of the epochs that were finished
            self._write_state(before=_digest(self.out / "model"))
        return code

    def _write_done(self, step: Step, inputs: str, code: int) -> None:
        outputs = {str(path.relative_to(self.out)): _digest(path) for path in step.outputs}
        done = {"inputs": inputs, "outputs": outputs, "code": code}
        self._write_state(steps={**self.state["steps"], step.name: done})

    def _notice_model(self, fit: Step) -> None:
        """Note that a private fit is done whose process was killed once its model was there.

        It would be paid for again.
        """
        inputs, model = self._inputs(fit), _digest(self.out / "model")
        is_new = model is not None and model != self.state.get("before", model)
        last = self.state["steps"].get(fit.name, {}).get("inputs")
        if self.state.get("began") == inputs != last and is_new:
            self._write_done(fit, inputs, 0)

    def _is_done(self, step: Step) -> bool:
        """Whether it was done with the same inputs, and left what is there."""
        done = self.state["steps"].get(step.name)
        if done is None or any(not path.exists() for path in step.inputs):
            return False
        return done["inputs"] == self._inputs(step) and all(
            _digest(self.out / name) == digest for name, digest in done["outputs"].items()
        )

    def _inputs(self, step: Step) -> str:
        said = {
            "version": __version__,
            "publish": self.study.said_of(step.name),
            "inputs": [[path.name, _digest(path)] for path in step.inputs],
        }
        if step.name == "fit" and self.contract is not None and self.contract.is_file():
            contract = read_toml(self.contract, ContractError)
            said["contract"] = contract | {"release": None}  # limits bind no model
        text = json.dumps(said, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    def _read_state(self) -> None:
        path = self.out / STATE
        self.state = artefacts.read_json(path) if path.is_file() else {}
        self.state.setdefault("steps", {})

    def _write_state(self, **changed: Any) -> None:
        self.state |= changed
        artefacts.replace_text(self.out / STATE, json.dumps(self.state, indent=1))

    def _next(self, code: int) -> str:
        out, study = self.out, self.study
        if code:
            internal = out / "release" / "internal" / "report.html"
            mended = " or ".join(str(path) for path in (self.contract, study.path) if path)
            return (
                f"look at {internal}; change {mended}, and run "
                f"'{self.again}' again: what stays the same is not done again"
            )
        public = out / "release" / "public"
        if study.private_key is None:
            return f"hand out {public}"
        key = (out / "publisher.pub").read_text(encoding="utf-8").strip()
        return f"hand out {public}; who gets it checks with 'vflsynth verify public --public {key}'"


def _said(option: str, value: object) -> list[object]:
    """Return an option with its value, which may begin with a dash; nothing without one."""
    return [f"{option}={value}"] if value else []


def _with_records(tables: Mapping[str, Path]) -> tuple[Path, ...]:
    """Return tables, and of those that are descriptions of a file that file, too."""
    return (*dict.fromkeys(path for own in tables.values() for path in (own, records_of(own))),)


def _digest(path: Path) -> str | None:
    """Return the digest of a file or folder; None if there is nothing."""
    return artefacts.file_digest(path) if path.exists() else None
