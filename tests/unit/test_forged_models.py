"""Models that somebody changed, digests and all: they load and draw, or there is one error."""

import copy
import hashlib
import json
import warnings

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from sklearn.base import clone

from vflsynth import (
    AutoregressiveSynthesizer,
    GaussianCopulaSynthesizer,
    IndependentSynthesizer,
    VFLGANSynthesizer,
    load,
)
from vflsynth.contract import Contract, PartyContract
from vflsynth.datasets import make_party_frames
from vflsynth.exceptions import ArtefactError, VFLSynthError

pytestmark = pytest.mark.usefixtures("quick_contexts")

KEY = "record_id"
VALUES = [-1, 0, 1, 7, 10**20, 1e308, -1e308, None, True, "", "x", [], {}, [None], {"": None}]
MODELS = {
    "independent": IndependentSynthesizer(
        contract=Contract({"party_1": PartyContract({}, ["measure_1 >= -100"])}), random_state=0
    ),
    "copula": GaussianCopulaSynthesizer(random_state=0),
    "autoregressive": AutoregressiveSynthesizer(
        epochs=1, hidden=8, n_features=16, device="cpu", random_state=0
    ),
    "vflgan": VFLGANSynthesizer(
        epochs=1, batch_size=16, latent_dim=4, generator_hidden=[8], device="cpu", random_state=0
    ),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    frames = make_party_frames(60, 2, random_state=1)
    folder = tmp_path_factory.mktemp("models")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, synth in MODELS.items():
            synth.fit(frames, KEY).save(folder / name)
    return folder


def places(content, path=()):
    """Where there is anything in JSON values."""
    yield path
    if isinstance(content, dict | list):
        items = content.items() if isinstance(content, dict) else enumerate(content)
        for key, value in list(items)[:40]:
            yield from places(value, (*path, key))


def forge(content, rng):
    """Change, leave out or repeat one thing."""
    content = copy.deepcopy(content)
    found = [path for path in places(content) if path]
    *above, last = found[rng.integers(len(found))]
    owner = content
    for key in above:
        owner = owner[key]
    match rng.integers(4):
        case 0 if isinstance(owner, dict):
            del owner[last]
        case 1 if isinstance(owner, list):
            owner.append(owner[last])
        case _:
            owner[last] = VALUES[rng.integers(len(VALUES))]
    return content


@pytest.mark.parametrize("n_forgeries", [12, pytest.param(400, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", MODELS)
def test_a_forged_model_is_an_artefact_error_or_draws(saved, name, n_forgeries):
    """Of 1,500 forgeries, 38 ended in KeyError, TypeError, ValueError or OverflowError."""
    rng, root = np.random.default_rng(5), saved / name
    files = [p for p in root.rglob("*.json") if p.name != "manifest.json"]
    manifest = json.loads((root / "manifest.json").read_text())
    refused, raw = 0, []
    for _ in range(n_forgeries):
        file = files[rng.integers(len(files))]
        before = file.read_bytes()
        forged = json.dumps(forge(json.loads(before), rng)).encode()
        digest = hashlib.sha256(forged).hexdigest()
        said = copy.deepcopy(manifest)
        said["files"][file.relative_to(root).as_posix()] = digest
        file.write_bytes(forged)
        (root / "manifest.json").write_text(json.dumps(said))
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                load(root).sample(5, random_state=0)
        except ArtefactError:
            refused += 1
        except VFLSynthError:  # a parameter or rule of another value
            refused += 1
        except Exception as error:
            raw.append((file.name, repr(error)))
        finally:
            file.write_bytes(before)
    (root / "manifest.json").write_text(json.dumps(manifest))
    assert not raw
    assert refused
    assert len(load(root).sample(5)) == 5


@pytest.mark.parametrize("name", ["bias", "last"])
def test_halves_that_score_rows_differently_are_an_artefact_error(tmp_path, name):
    """One half's numbers of the classifier that all halves share were changed."""
    synth = clone(MODELS["vflgan"]).set_params(resample=2)
    synth.fit(make_party_frames(60, 2, random_state=1), KEY).save(tmp_path)
    file = tmp_path / "parties" / "party_1" / "sampler.safetensors"
    tensors = load_file(file)
    (key,) = (key for key in tensors if key == f"scores.{name}")
    save_file(tensors | {key: tensors[key] + 1.0}, file)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    manifest["files"][file.relative_to(tmp_path).as_posix()] = digest
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ArtefactError, match="different samples"):
        load(tmp_path).sample(5)
