"""Metrics for images: Fréchet distance in an autoencoder's latent space, and the inception score.

Pixels mean little one by one; both metrics look through a small network that is trained here, on
real images. Values are comparable only through the same trained network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from vflsynth.evaluation.columns import Floats
from vflsynth.evaluation.frechet import read_distance
from vflsynth.evaluation.intervals import (
    BOOTSTRAP,
    GroupedSums,
    around,
    bootstrap_deviation,
    generator,
    jackknifed,
    random_groups,
)
from vflsynth.evaluation.metric import Metric, MetricResult
from vflsynth.exceptions import ParameterError

Images = NDArray[Any]
Model = TypeVar("Model", bound=nn.Module)

IMAGE_FRECHET_DISTANCE = Metric(
    name="image_frechet_distance",
    title="Fréchet distance of images",
    direction="lower",
    maximum=np.inf,
    measures="How far apart real and synthetic images are in means, spreads and linear relations "
    "of what an autoencoder sees in them; comparable only with the same autoencoder.",
    baseline="two random halves of the real images",
    naive="latent features of the right kind without any relation between them",
)
INCEPTION_SCORE = Metric(
    name="inception_score",
    title="Inception score",
    direction="higher",
    minimum=1.0,
    maximum=np.inf,
    measures="How sure a classifier is about each synthetic image, and how evenly all classes "
    "occur: 1 is worst, the number of classes best.",
    baseline="the score of real images",
    naive="images that tell the classifier nothing",
)

BATCH = 1024
"""Images encoded at a time."""


class _Trunk(nn.Sequential):
    """Four convolutions that turn an image into 16 maps of a quarter of its height and width."""

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        for wide_in, wide_out, stride in ((1, 16, 1), (16, 64, 2), (64, 256, 2), (256, 16, 1)):
            layers += [
                nn.Conv2d(wide_in, wide_out, 3, stride=stride, padding=1),
                nn.BatchNorm2d(wide_out),
                nn.ReLU(),
            ]
        super().__init__(*layers, nn.Flatten())


class ImageAutoencoder(nn.Module):
    """Autoencoder whose latent space the Fréchet distance looks at.

    Parameters
    ----------
    height, width : int, default 28
        Of the images, multiples of 4 and at least 8. The latent dimension is a quarter of their
        area: 196.

    Notes
    -----
    ----- Source: the VFLGAN release's autoencoder, layer by layer. Departs from it in the targets
    of the reconstruction: its decoder ends in a sigmoid but is asked for pixels in [-1, 1], which
    it cannot produce; ours is asked for pixels in [0, 1].
    """

    def __init__(self, height: int = 28, width: int = 28) -> None:
        super().__init__()
        self.maps = (16, height // 4, width // 4)
        flat = height * width
        self.encoder = nn.Sequential(_Trunk(), nn.Dropout(0.5), nn.Linear(flat, flat // 4))
        self.decoder = nn.Sequential(
            nn.Linear(flat // 4, flat),
            nn.Unflatten(1, self.maps),
            nn.ConvTranspose2d(16, 16, 2, stride=2),
            nn.ReLU(),
            nn.ConvTranspose2d(16, 1, 2, stride=2),
            nn.Sigmoid(),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Reconstruct images, shape (image, 1, height, width)."""
        return cast(Tensor, self.decoder(self.encoder(images)))


class ImageClassifier(nn.Module):
    """Classifier behind the inception score: the release's code, where the paper says MLP.

    Parameters
    ----------
    n_classes : int, default 10
    height, width : int, default 28
        Of the images, multiples of 4 and at least 8.

    Attributes
    ----------
    accuracy_ : float
        On the test images of :func:`train_classifier`; NaN without any.
    """

    def __init__(self, n_classes: int = 10, height: int = 28, width: int = 28) -> None:
        super().__init__()
        flat = height * width
        self.layers = nn.Sequential(
            _Trunk(),
            nn.Linear(flat, flat // 4),
            nn.Dropout(0.5),
            nn.ReLU(),
            nn.Linear(flat // 4, n_classes),
        )
        self.accuracy_ = float("nan")

    def forward(self, images: Tensor) -> Tensor:
        """Return logits, shape (image, class)."""
        return cast(Tensor, self.layers(images))


def train_autoencoder(
    images: Images,
    *,
    n_epochs: int = 30,
    batch_size: int = 64,
    learning_rate: float = 1e-3,
    device: str = "cpu",
    random_state: int = 0,
) -> ImageAutoencoder:
    """Train an autoencoder to reconstruct images.

    Parameters
    ----------
    images : ndarray, shape (image, height, width)
        Real ones, uint8 in 0..255 or floating point in [0, 1]; height and width multiples of 4.
    n_epochs, batch_size, learning_rate
        As in the release: 30 epochs of Adam at 1e-3 in batches of 64, mean squared error.
    device : str, default "cpu"
    random_state : int, default 0

    Returns
    -------
    ImageAutoencoder
        In evaluation mode.

    Raises
    ------
    ParameterError
        If `images` are not as above.
    """
    images = _checked(images)

    return _train(
        lambda: ImageAutoencoder(*images.shape[1:]),
        lambda model, batch, _: functional.mse_loss(model(batch), batch),
        images,
        np.zeros(len(images), np.int64),
        (n_epochs, batch_size, learning_rate, device, random_state),
    )


def train_classifier(
    images: Images,
    labels: NDArray[Any],
    *,
    test_images: Images | None = None,
    test_labels: NDArray[Any] | None = None,
    n_epochs: int = 20,
    batch_size: int = 64,
    learning_rate: float = 1e-3,
    device: str = "cpu",
    random_state: int = 0,
) -> ImageClassifier:
    """Train the classifier behind the inception score, and record how accurate it is.

    Parameters
    ----------
    images, n_epochs, batch_size, learning_rate, device, random_state
        As in :func:`train_autoencoder`; the release's checkpoint is of epoch 19.
    labels : ndarray of int, shape (image,)
        Classes 0, 1, ...
    test_images, test_labels : ndarray, optional
        Images that it does not learn from, to measure ``accuracy_``.

    Returns
    -------
    ImageClassifier
        In evaluation mode.

    Raises
    ------
    ParameterError
        If images are not as above, or `labels` not one class per image.
    """
    images, labels = _checked(images), np.asarray(labels, dtype=np.int64)
    if labels.shape != (len(images),) or labels.min() < 0:
        raise ParameterError(f"labels must be {len(images)} whole numbers from 0, one per image")

    model = _train(
        lambda: ImageClassifier(int(labels.max()) + 1, *images.shape[1:]),
        lambda model, batch, classes: functional.cross_entropy(model(batch), classes),
        images,
        labels,
        (n_epochs, batch_size, learning_rate, device, random_state),
    )
    if test_images is not None and test_labels is not None:
        guesses = [logits.argmax(1) for logits in _outputs(model, model, _checked(test_images))]
        model.accuracy_ = float((np.concatenate(guesses) == np.asarray(test_labels)).mean())
    return model


def image_frechet_distance(
    real: Images, synthetic: Images, autoencoder: ImageAutoencoder, *, random_state: int = 0
) -> MetricResult:
    """Compare two sets of images by their latent features.

    Parameters
    ----------
    real, synthetic : ndarray, shape (image, height, width)
        As in :func:`train_autoencoder`.
    autoencoder : ImageAutoencoder
        Trained on real images.
    random_state : int, default 0
        For the groups of images behind the interval and the baseline.

    Notes
    -----
    Source: VFLGAN §5.1.3: Eq. 23 on latent features, which are not standardised.
    """
    rng = generator(random_state, IMAGE_FRECHET_DISTANCE.name)
    sums = []
    for images in (_checked(real), _checked(synthetic)):
        groups = random_groups(len(images), rng)
        groups = np.zeros(len(images), np.int64) if groups is None else groups
        features = _outputs(autoencoder, autoencoder.encoder, images)
        sums.append(GroupedSums.of_chunks(features, groups))
    reading = read_distance(sums[0], sums[1])
    parts = pd.DataFrame([{"part": "latent features"} | reading.row()])
    return jackknifed(IMAGE_FRECHET_DISTANCE, reading, parts)


def inception_score(
    synthetic: Images,
    classifier: ImageClassifier,
    *,
    real: Images | None = None,
    random_state: int = 0,
) -> MetricResult:
    """Score images by how sure and how varied a classifier finds them.

    Parameters
    ----------
    synthetic : ndarray, shape (image, height, width)
        As in :func:`train_autoencoder`.
    classifier : ImageClassifier
        From :func:`train_classifier` on real images.
    real : ndarray, shape (other_image, height, width), optional
        Real images, preferably not trained on: what a perfect generator would score.
    random_state : int, default 0
        For the bootstrap draws.

    Returns
    -------
    MetricResult
        ``parts`` has one row per class: its mean probability among `synthetic` and `real`.

    Notes
    -----
    Source: VFLGAN §5.1.3: the exponential of the mean Kullback-Leibler divergence of
    p(class | image) from p(class).
    """
    probabilities = _probabilities(classifier, _checked(synthetic))
    rng = generator(random_state, INCEPTION_SCORE.name)
    value = _score(probabilities)
    deviation = bootstrap_deviation(
        lambda rows: _score(probabilities[rows]), len(probabilities), rng
    )
    parts = pd.DataFrame(
        {"class": range(probabilities.shape[1]), "synthetic": probabilities.mean(0)}
    )
    baseline = None
    if real is not None:
        of_real = _probabilities(classifier, _checked(real))
        parts["real"] = of_real.mean(0)
        baseline = _score(of_real)
    accuracy = classifier.accuracy_
    known = f"the classifier is right for {accuracy:.2%} of the test images"
    return MetricResult(
        metric=INCEPTION_SCORE,
        value=value,
        interval=around(value, deviation, 1.0, probabilities.shape[1]),
        interval_method=f"{BOOTSTRAP} of images",
        baseline=baseline,
        naive=1.0,
        parts=parts,
        notes=(known,) if accuracy == accuracy else (),
    )


def _score(probabilities: Floats) -> float:
    """Inception score of class probabilities, shape (image, class)."""
    tiny = 1e-16
    divergence = probabilities * (
        np.log(probabilities + tiny) - np.log(probabilities.mean(axis=0) + tiny)
    )
    # Equal rows give exactly 1 but for round-off.
    return max(1.0, float(np.exp(divergence.sum(axis=1).mean())))


def _probabilities(classifier: ImageClassifier, images: Floats) -> Floats:
    logits = torch.tensor(np.concatenate(list(_outputs(classifier, classifier, images))))
    return logits.softmax(dim=1).numpy()


def _outputs(model: nn.Module, part: nn.Module, images: Floats) -> Iterator[Floats]:
    """Yield a model's outputs in float64, in batches."""
    device = next(model.parameters()).device
    model.eval()
    for start in range(0, len(images), BATCH):
        with torch.inference_mode():
            yield part(_tensor(images[start : start + BATCH], device)).double().cpu().numpy()


def _train(
    make: Callable[[], Model],
    loss: Callable[[Model, Tensor, Tensor], Tensor],
    images: Floats,
    labels: NDArray[np.int64],
    settings: tuple[int, int, float, str, int],
) -> Model:
    """Train a model with Adam; the caller's random state is left as it was."""
    n_epochs, batch_size, learning_rate, device, random_state = settings
    rng = generator(random_state, "batches")
    # Initialisation and dropout draw from torch's global state: borrow it, and give it back.
    with torch.random.fork_rng(devices=[device] if device.startswith("cuda") else []):
        torch.manual_seed(random_state)
        model = make().to(device)
        optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
        model.train()
        for _ in range(n_epochs):
            order = rng.permutation(len(images))
            for start in range(0, len(order), batch_size):
                rows = order[start : start + batch_size]
                batch = _tensor(images[rows], torch.device(device))
                optimiser.zero_grad(set_to_none=True)
                classes = torch.tensor(labels[rows]).to(device)
                torch.autograd.backward(loss(model, batch, classes))
                optimiser.step()
    return model.eval()


def _tensor(images: Images, device: torch.device) -> Tensor:
    """Return images as the networks want them, shape (image, 1, height, width), in [0, 1]."""
    scaled = images / np.float32(255) if images.dtype == np.uint8 else images
    return torch.tensor(np.ascontiguousarray(scaled, dtype=np.float32))[:, None].to(device)


def _checked(images: Images) -> Images:
    images = np.asarray(images)
    sizes = images.shape[1:]
    if images.ndim != 3 or len(images) < 2 or any(size % 4 or size < 8 for size in sizes):
        raise ParameterError(
            "images must have shape (image, height, width), at least 2 of them, with height and "
            f"width multiples of 4 and at least 8; got {images.shape}"
        )
    if images.dtype != np.uint8 and not (images.min() >= 0.0 and images.max() <= 1.0):
        raise ParameterError("images must be uint8, or floating point within [0, 1]; rescale them")
    return images
