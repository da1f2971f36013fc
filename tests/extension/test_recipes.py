"""CONTRIBUTING's recipes, followed to the letter: their code is a module of somebody's package."""

import re
from pathlib import Path

import pytest

import vflsynth
from tests.extension.fresh import run_python
from vflsynth.registry import OWN_MODULES

ROOT = Path(vflsynth.__file__).parents[1]
CODE = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.S)

ENCODER = """
import numpy as np, pandas as pd
import root
from vflsynth import TableTransformer
from vflsynth.columns import PublicSchema
from vflsynth.configuration import Configuration
from vflsynth.testing import encoder_checks

for check in encoder_checks(root.Root(), np.random.default_rng(0).lognormal(5, 1, 300)):
    check()
frame = pd.DataFrame({"income": [0.25, 4.0, 100.0, 2500.0], "age": [20.5, 30.5, 40.25, 80.5]})
table = TableTransformer(encoders={"income": "root"}, continuous="standard").fit(frame)
scaled = table.transform(frame)
roots = np.sqrt(frame["income"])
np.testing.assert_allclose(scaled[:, 0], (roots - roots.mean()) / roots.std(), rtol=1e-6)
pd.testing.assert_frame_equal(table.inverse_transform(scaled), frame)
said = {"parameters": {"transformer": {"encoders": {"income": "root"}}}}
print(Configuration({"job": said}).make().transformer)
"""

MECHANISM = """
import histograms
from vflsynth.datasets import make_party_frames
from vflsynth.loading import load
from vflsynth.mechanisms import Asked, Discriminators
from vflsynth.privacy import PublicSchema
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.testing import mechanism_checks

columns = {"lab": ColumnCounts(3), "clinic": ColumnCounts(2, 1)}
asked = Asked(n_records=1000, owners=Discriminators.PRIVATE)
mechanism = histograms.NoisyHistograms(epsilon=8.0, delta=1e-5)
for check in mechanism_checks(mechanism, lambda each: each.plan(columns, asked)):
    check()
frames = make_party_frames(3000, 2, random_state=0)
mechanism.set_params(public_schema=PublicSchema(dtypes="given"))
synth = histograms.NoisyIndependentSynthesizer(privacy=mechanism, random_state=0)
synth.fit(frames, on="record_id").save("model")
assert synth.privacy_ledger_.epsilon() <= 8.0
drawn = load("model").sample(500)
assert list(drawn) == [c for frame in frames.values() for c in frame if c != "record_id"]
real = frames["party_1"]["measure_1"]
assert abs(drawn["measure_1"].mean() - real.mean()) < real.std() / 2
print("fitted")
"""


@pytest.mark.parametrize(
    ("base", "module", "use", "says"),
    [
        ("Curve", "root", ENCODER, "encoders={'income': 'root'}"),
        ("HistogramMechanism", "histograms", MECHANISM, "fitted"),
    ],
)
def test_a_recipe_s_code_obeys_the_laws_and_is_found_by_name(tmp_path, base, module, use, says):
    (code,) = [block for block in CODE if f"({base})" in block]
    assert "vflsynth._" not in code
    (tmp_path / f"{module}.py").write_text(code)
    code, said = run_python(("-c", use), [str(tmp_path), str(ROOT)], tmp_path)
    assert code == 0, said
    assert says in said


def test_the_example_package_needs_no_private_name():
    package = Path(__file__).parent / "package"
    assert not [file for file in package.rglob("*.py") if "vflsynth._" in file.read_text()]


def test_every_group_of_entry_points_is_named():
    page = (ROOT / "docs" / "how-to" / "extend" / "index.md").read_text()
    assert [group for group in OWN_MODULES if not re.search(rf"[`.]{group}[`\"]", page)] == []
