"""Which program a job has."""

from __future__ import annotations

from vflsynth import splitdefense
from vflsynth.exceptions import ParameterError
from vflsynth.federation.gan_program import GANProgram, SynthesizerProgram
from vflsynth.federation.job import Job
from vflsynth.federation.private_programs import PRIVATE_PROGRAMS, privacy_of
from vflsynth.federation.split_program import SplitProgram
from vflsynth.splitdefense import BaseSplitClassifier


def program_of(job: Job) -> SynthesizerProgram | SplitProgram:
    """Make the program of a job.

    Raises
    ------
    ParameterError
        If there is no such method.
    """
    if job.method == "VFLGANSynthesizer":
        privacy = privacy_of(job)
        if privacy is None:
            return GANProgram(job)
        program = PRIVATE_PROGRAMS.get(privacy.mechanism)
        if program is None:
            raise ParameterError(
                f"job: the mechanism {privacy.mechanism!r} is not available across processes; "
                f"there is {' and '.join(map(repr, PRIVATE_PROGRAMS))}. Or fit in one process"
            )
        return program(job, privacy)
    found = getattr(splitdefense, job.method, None) if job.method in splitdefense.__all__ else None
    if isinstance(found, type) and issubclass(found, BaseSplitClassifier):
        return SplitProgram(job)
    raise ParameterError(
        f"job: method must be 'VFLGANSynthesizer' or a classifier of vflsynth.splitdefense, got "
        f"{job.method!r}"
    )
