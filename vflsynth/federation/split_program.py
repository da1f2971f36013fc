"""Split classifiers across processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from vflsynth import _artefacts as artefacts
from vflsynth import splitdefense
from vflsynth._validation import check_parameters
from vflsynth.columns import TableTransformer
from vflsynth.exceptions import ParameterError
from vflsynth.federation.job import Job
from vflsynth.federation.program import Agreed, Program, make_method
from vflsynth.federation.site import Site
from vflsynth.frames import KeyMinter
from vflsynth.parties import TrainableParty
from vflsynth.protocol.channel import Verb
from vflsynth.splitdefense import BaseSplitClassifier
from vflsynth.splitdefense.model import BottomModel
from vflsynth.splitdefense.passive import SplitParty
from vflsynth.splitdefense.settings import SplitSettings
from vflsynth.training import Plan


class SplitProgram(Program):
    """A split classifier, whose server is the active party.

    Parameters
    ----------
    job : Job
    """

    KIND = "vflsynth half of a split classifier"

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.classifier: BaseSplitClassifier = make_method(getattr(splitdefense, job.method), job)
        if self.classifier.monitor:
            raise ParameterError(
                "job: set monitor = false in parameters: nobody has what leakage is measured with "
                "when parties are in processes of their own"
            )
        check_parameters("job", self.classifier.get_params(deep=False), BaseSplitClassifier._rules)
        self.classifier.method().check()

    def make_party(self, name: str, frame: pd.DataFrame, site: Site, agreed: Agreed) -> SplitParty:
        """Make a passive party."""
        return SplitParty(name, frame, self.job.on, TableTransformer(kinds=dict(site.column_kinds)))

    def settings(self, n_records: int, widths: Mapping[str, int]) -> SplitSettings:
        """Fill in the batch size, and check that the method suits the networks."""
        settings = self.classifier.recipe().settings.for_records(n_records)
        self.classifier.method().objective.check_architecture(settings)
        return settings

    def plan(self, n_records: int, settings: SplitSettings) -> Plan:
        """Epochs and steps."""
        return Plan(self.classifier.epochs, -(-n_records // settings.batch_size))

    def steps(self, plan: Plan, done: int) -> dict[Verb, int]:
        """Every step once, and all outputs at the end."""
        return {
            Verb.BOTTOM_OUTPUT: plan.n_epochs * plan.steps_per_epoch,
            Verb.ALL_BOTTOM_OUTPUTS: plan.n_epochs + 1,
        }

    def multiply_adds(self, settings: SplitSettings, widths: Mapping[str, int]) -> float:
        """Split networks are small: one thread."""
        return 0.0

    def save_half(
        self, party: TrainableParty, settings: SplitSettings, minter: KeyMinter, path: Path
    ) -> None:
        """Write bottom model and encoding."""
        assert isinstance(party, SplitParty)
        with artefacts.new_directory(path, self.KIND) as root:
            artefacts.write_json(root / "settings.json", asdict(settings))
            BottomModel.of(party, 0, settings).write(root)
