"""MNIST as tables of two parties, and judges of generated digits.

The judges are an autoencoder's latents and a classifier, trained here.

Source: the release of the VFLGAN paper describes both networks; two things are different. Targets
of the autoencoder lie in [0, 1], which a sigmoid can reach (the release's lie in [-1, 1]). The last
convolution before the latents is the only one with 16 channels, as there. So absolute distances
compare with each other, not with the paper's.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from safetensors.torch import load_file, save_file
from sklearn.base import clone
from torch import Tensor, nn

from benchmarks import _results
from benchmarks._data import load_mnist_halves
from benchmarks._runs import known
from vflsynth._random import secret_from
from vflsynth.columns import OutputSpan, Standardizer, TableTransformer
from vflsynth.columns.arrays import IntegerAxis
from vflsynth.columns.base import ColumnTransformer
from vflsynth.columns.numeric import IntegerTransformer
from vflsynth.exceptions import NoPrivacyWarning
from vflsynth.methods.gan.estimator import GANSynthesizer
from vflsynth.networks.layers import frechet_distance_of_moments
from vflsynth.run.local import LocalRun, Options
from vflsynth.run.loop import EpochState

Images = npt.NDArray[np.uint8]

LATENT_DIM, FLAT = 196, 784
BLOCK = 1000
N_PICTURED = 10
SEED = 0
PIXELS = {party: [f"{party}{i}" for i in range(14 * 28)] for party in ("A", "B")}
"""The columns of the upper and of the lower halves."""


class PixelColumn(IntegerTransformer):
    """A pixel: 0 to 255 as -1 to 1, whatever the values that occur."""

    def _fit(self, column: pd.Series[Any]) -> None:
        super()._fit(column)
        self.axis_ = IntegerAxis(0, 255, 1, unsigned=False)
        self.encoder_ = Standardizer().fit(np.array([0.0, 255.0]))
        self.encoder_.mean_ = self.encoder_.std_ = 127.5


class BoundedPixel(PixelColumn):
    """A pixel that generators draw by tanh, as those of the paper's code."""

    def _spans(self) -> tuple[OutputSpan, ...]:
        return tuple(replace(span, bound=1.0) for span in super()._spans())


class PixelTransformer(TableTransformer):
    """A table of pixels."""

    column: ClassVar[type[PixelColumn]] = PixelColumn

    def _transformer(self, kind: str, label: Any = None) -> ColumnTransformer:
        return self.column(spike_share=None)


class BoundedPixelTransformer(PixelTransformer):
    """A table of pixels that generators draw by tanh."""

    column = BoundedPixel


def add_options(parser: argparse.ArgumentParser, device: str) -> None:
    """Add the options that `run` and `run_watched` take."""
    parser.add_argument("--judge-epochs", type=int, default=2)
    parser.add_argument("--images", type=int, default=10_000, help="generated, for the judges")
    parser.add_argument("--device", default=device)


def run(
    results: str,
    models: Mapping[str, tuple[_results.Row, GANSynthesizer]],
    arguments: argparse.Namespace,
) -> None:
    """Train and judge the models whose rows are missing, and draw samples of each.

    `models` has by the names of pictures what is known of a model before it is trained, and the
    model; `arguments` are those of `add_options`.
    """
    key = _results.KEYS[results]
    models = {
        name: (row, model)
        for name, (row, model) in models.items()
        if not _results.rows(results, **{column: row[column] for column in key})
    }
    if not models:
        return
    frames, judges = load_digits(epochs=arguments.judge_epochs, device=arguments.device)
    for name, (row, model) in models.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoPrivacyWarning)
            model.set_params(device=arguments.device, random_state=SEED)
            seconds = _train(model, frames, _results.CACHE / results / name)
        images = images_of(model, arguments.images, SEED)
        ledger = model.privacy_ledger_
        row = {
            **row,
            "seed": SEED,
            "epsilon_spent": None if ledger is None else round(ledger.epsilon(), 6),
            "parameters": known(model),
            "device": model.device_,
            "training_seconds": round(seconds, 1),
            **judges.judge(images),
        }
        _results.put(results, row)
        draw(images, _results.RESULTS / results / f"{name}.png")
        print(f"{name}: FD {row['frechet_distance']}, {seconds:.0f} s", flush=True)


def run_watched(
    results: str,
    models: Mapping[str, tuple[_results.Row, GANSynthesizer]],
    arguments: argparse.Namespace,
) -> None:
    """Train the missing seeds of each model at once, and judge them every few epochs on the way.

    A run that was stopped goes on from its last checkpoint. The arguments are as of `run`, and have
    `seeds` and `every` besides.
    """
    for name, (row, template) in models.items():
        seeds = _results.missing(results, arguments.seeds, **row)
        if not seeds:
            continue
        frames, judges = load_digits(epochs=arguments.judge_epochs, device=arguments.device)
        template = clone(template).set_params(device=arguments.device)
        folder = _results.CACHE / results / f"{name}.{'-'.join(map(str, seeds))}"
        folder.mkdir(parents=True, exist_ok=True)
        checkpoint = folder / "checkpoint"
        watch = _Watch(template, seeds, judges, arguments, folder / "watched.json")
        run = template._local_run(
            template.method(),
            frames,
            None,
            Options(
                callbacks=[watch],
                checkpoint=checkpoint,
                checkpoint_every=arguments.every,
                resume=checkpoint if checkpoint.exists() else None,
            ),
            [secret_from(seed) for seed in seeds],
        )
        watch.run = run
        run.run()
        images = watch.images_now()
        for k, seed in enumerate(seeds):
            curve = {label: values[k] for label, values in watch.judged.items()}
            found = {
                **row,
                "seed": seed,
                "epsilon_spent": None,
                "parameters": run.method.reported(run.settings, run.duration),
                "device": str(run.device),
                "training_seconds": round(watch.seconds, 1),
                "models_at_once": len(seeds),
                "every": arguments.every,
                "curve": curve,
                **judges.judge(images[k]),
            }
            _results.put(results, found)
            print(f"{name} {seed}: FD {found['frechet_distance']}", flush=True)
        draw(images[0], _results.RESULTS / results / f"{name}.png")


@dataclass
class _Watch:
    """A callback that has the judges see what a run's generators draw."""

    template: GANSynthesizer
    seeds: Sequence[int]
    judges: Judges
    arguments: argparse.Namespace
    path: Path
    run: LocalRun = field(init=False)

    def __post_init__(self) -> None:
        self._resumed = time.perf_counter()
        kept = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.judged: dict[str, list[list[float]]] = kept.get("judged", {})
        self.seconds: float = kept.get("seconds", 0.0)

    def on_epoch_end(self, state: EpochState) -> None:
        """Judge the generators as they are, and write it down; judging takes no training time."""
        every = self.arguments.every
        if state.epoch % every and state.epoch != state.n_epochs:
            return
        self.seconds += time.perf_counter() - self._resumed
        self.run.algorithm.end(state.epoch)  # keeps the generators, as at the end
        images, place = self.images_now(), -(-state.epoch // every) - 1
        for k, own in enumerate(images):
            for label, value in self.judges.distance_and_score(own).items():
                of_models = self.judged.setdefault(label, [[] for _ in images])
                of_models[k][place:] = [value]
        kept = {"judged": self.judged, "seconds": self.seconds}
        self.path.write_text(json.dumps(kept))
        draw(images[0], self.path.with_suffix(".png"))
        self._resumed = time.perf_counter()

    def images_now(self) -> list[Images]:
        """Draw images from the generators that are kept, of every seed."""
        halves, images = self.run.halves(), []
        for k, seed in enumerate(self.seeds):
            model = clone(self.template)
            model.parties_ = {party: found[k] for party, found in halves.items()}
            images.append(images_of(model, self.arguments.images, seed))
        return images


def images_of(model: GANSynthesizer, n: int, random_state: int) -> Images:
    """Draw images from a model of halves."""
    table = model.sample(n, random_state=random_state)
    return table.to_numpy(dtype=np.uint8).reshape(-1, 28, 28)


class Clock:
    """Seconds of training, kept beside the checkpoint so that a resumed run counts all of them."""

    def __init__(self, path: Path, *, resumed: bool) -> None:
        self._path = path
        self._before = float(path.read_text()) if resumed else 0.0
        self._started = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Of this run and of those that it continues."""
        return self._before + time.perf_counter() - self._started

    def on_epoch_end(self, state: EpochState) -> None:
        """Write them down; those of epochs after the last checkpoint count, too."""
        self._path.write_text(f"{self.seconds:.1f}")


def _train(model: GANSynthesizer, frames: Mapping[str, pd.DataFrame], folder: Path) -> float:
    """Train, and return the seconds; a run without privacy continues from what is in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = folder / "checkpoint" if model.privacy is None else None
    resume = checkpoint if checkpoint is not None and checkpoint.exists() else None
    clock = Clock(folder / "seconds.txt", resumed=resume is not None)
    model.fit(frames, callbacks=[clock], checkpoint=checkpoint, resume=resume)
    return clock.seconds


def load_digits(*, epochs: int, device: str) -> tuple[dict[str, pd.DataFrame], Judges]:
    """Return upper and lower halves as tables of a column per pixel, and trained judges."""
    halves, digits = load_mnist_halves()
    test_halves, test_digits = load_mnist_halves("t10k")
    real, held_out = (np.concatenate([h["A"], h["B"]], 1) for h in (halves, test_halves))
    judges = Judges(
        _results.CACHE / "mnist",
        real,
        digits,
        held_out,
        test_digits,
        epochs=epochs,
        device="cuda" if device == "cuda" else "cpu",
    )
    frames = {
        party: pd.DataFrame(
            half.reshape(len(half), -1),
            columns=PIXELS[party],
            index=pd.RangeIndex(len(half), name="image"),
        )
        for party, half in halves.items()
    }
    return frames, judges


def show_judges(result: Mapping[str, Any]) -> None:
    """Print what the judges say of held-out images, which is alike in all results."""
    print(f"held-out real images: {result['of_held_out_images']}; judges: {result['judges']}")


def draw(images: Images, path: Path) -> None:
    """Write a square of the first images."""
    some = images[: N_PICTURED**2]
    rows = some.reshape(N_PICTURED, N_PICTURED, 28, 28).transpose(0, 2, 1, 3)
    figure = Figure(figsize=(3, 3))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.imshow(rows.reshape(N_PICTURED * 28, -1), cmap="gray_r")
    axes.set_axis_off()
    figure.savefig(path, dpi=100)


def trunk() -> nn.Sequential:
    """Make the convolutions that both networks start with: (image, 1, 28, 28) to (image, 784)."""
    layers: list[nn.Module] = []
    for inputs, outputs, stride in ((1, 16, 1), (16, 64, 2), (64, 256, 2), (256, 16, 1)):
        layers += [
            nn.Conv2d(inputs, outputs, 3, stride, padding=1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers, nn.Flatten())


class Autoencoder(nn.Module):
    """Convolutional autoencoder with a latent of 196 numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(trunk(), nn.Dropout(0.5), nn.Linear(FLAT, LATENT_DIM))
        self.decoder = nn.Sequential(
            nn.Linear(LATENT_DIM, FLAT),
            nn.Unflatten(1, (16, 7, 7)),
            nn.ConvTranspose2d(16, 16, 2, stride=2),
            nn.ReLU(),
            nn.ConvTranspose2d(16, 1, 2, stride=2),
            nn.Sigmoid(),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Reconstruct images of shape (image, 1, 28, 28)."""
        return self.decoder(self.encoder(images))


class Judges:
    """Both networks, trained once and kept in a folder: what is there is used.

    Images have shape (image, 28, 28), digits (image,); those of the test are for `accuracy` and
    `reconstruction_error`.
    """

    def __init__(
        self,
        folder: Path,
        images: Images,
        digits: npt.NDArray[np.uint8],
        test_images: Images,
        test_digits: npt.NDArray[np.uint8],
        *,
        epochs: int,
        device: str,
    ) -> None:
        self.device = device
        with torch.random.fork_rng():  # torch's layers know no other source of randomness
            torch.manual_seed(0)
            self.autoencoder = Autoencoder().to(device)
            logits = nn.Sequential(
                trunk(),
                nn.Linear(FLAT, LATENT_DIM),
                nn.Dropout(0.5),
                nn.ReLU(),
                nn.Linear(LATENT_DIM, 10),
            )
            self.classifier = logits.to(device)
            judges = {"autoencoder": self.autoencoder, "classifier": self.classifier}
            for name, network in judges.items():
                path = folder / f"{name}-{epochs}.safetensors"
                if path.exists():
                    network.load_state_dict(load_file(path, device=device))
                else:
                    self._train(network, images, digits, epochs)
                    folder.mkdir(parents=True, exist_ok=True)
                    save_file(network.state_dict(), path)
                network.eval()
        self.epochs = epochs
        guesses = self._apply(self.classifier, test_images).argmax(1).cpu().numpy()
        self.accuracy = float((guesses == test_digits).mean())
        rebuilt = self._apply(self.autoencoder, test_images).cpu()
        self.reconstruction_error = float(F.mse_loss(rebuilt, _scaled(test_images)))
        self._real_moments = self._moments(images)
        self.of_held_out_images = self.distance_and_score(test_images)

    def judge(self, images: Images) -> dict[str, Any]:
        """Return distance and score of generated images, those of held-out ones beside them."""
        return self.distance_and_score(images) | {
            "n_images": len(images),
            "of_held_out_images": self.of_held_out_images,
            "judges": {
                "epochs": self.epochs,
                "accuracy": round(self.accuracy, 4),
                "reconstruction_error": round(self.reconstruction_error, 5),
            },
        }

    def distance_and_score(self, images: Images) -> dict[str, float]:
        """Return both numbers of some images."""
        return {
            "frechet_distance": round(self.frechet_distance(images), 3),
            "inception_score": round(self.inception_score(images), 3),
        }

    def frechet_distance(self, images: Images) -> float:
        """Fréchet distance to the training images between latents of the autoencoder."""
        return float(frechet_distance_of_moments(*self._real_moments, *self._moments(images)))

    def inception_score(self, images: Images) -> float:
        """``exp(E KL(p(y|x) || p(y)))`` of the classifier; 1 to 10."""
        p = torch.softmax(self._apply(self.classifier, images).double(), 1)
        divergence = (p * ((p + 1e-16).log() - (p.mean(0) + 1e-16).log())).sum(1)
        return float(divergence.mean().exp())

    def _moments(self, images: Images) -> tuple[Tensor, Tensor]:
        latents = self._apply(self.autoencoder.encoder, images).double()
        return latents.mean(0), torch.cov(latents.T)

    @torch.no_grad()
    def _apply(self, network: nn.Module, images: Images) -> Tensor:
        parts = [_scaled(images[i : i + BLOCK]) for i in range(0, len(images), BLOCK)]
        return torch.cat([network(part.to(self.device)) for part in parts])

    def _train(
        self, network: nn.Module, images: Images, digits: npt.NDArray[np.uint8], epochs: int
    ) -> None:
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
        rng = np.random.default_rng(0)
        for _ in range(epochs):
            for rows in np.array_split(rng.permutation(len(images)), len(images) // 64):
                batch = _scaled(images[rows]).to(self.device)
                if isinstance(network, Autoencoder):
                    loss = F.mse_loss(network(batch), batch)
                else:
                    labels = torch.from_numpy(digits[rows].astype(np.int64)).to(self.device)
                    loss = F.cross_entropy(network(batch), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()


def _scaled(images: Images) -> Tensor:
    return torch.from_numpy(images).unsqueeze(1).float() / 255.0
