import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from vflsynth.evaluation.images import (
    ImageAutoencoder,
    ImageClassifier,
    _score,
    image_frechet_distance,
    inception_score,
    train_autoencoder,
    train_classifier,
)
from vflsynth.exceptions import ParameterError


@pytest.fixture(scope="module")
def digits():
    """1,797 hand-written digits of 8 x 8 pixels, in [0, 1]."""
    images, labels = load_digits(return_X_y=True)
    return images.reshape(-1, 8, 8) / 16.0, labels


@pytest.fixture(scope="module")
def autoencoder(digits):
    return train_autoencoder(digits[0][:1000], n_epochs=3)


@pytest.fixture(scope="module")
def classifier(digits):
    images, labels = digits
    return train_classifier(
        images[:1200],
        labels[:1200],
        test_images=images[1200:],
        test_labels=labels[1200:],
        n_epochs=15,
    )


@pytest.fixture(scope="module")
def noise():
    return np.random.default_rng(0).random((500, 8, 8))


def test_networks_have_the_papers_sizes():
    images = torch.zeros(2, 1, 28, 28)
    autoencoder, classifier = ImageAutoencoder().eval(), ImageClassifier().eval()
    assert autoencoder.encoder(images).shape == (2, 196)
    assert autoencoder(images).shape == images.shape
    assert classifier(images).shape == (2, 10)
    widths = [layer.weight.shape[0] for layer in classifier.layers[0] if hasattr(layer, "stride")]
    assert widths == [16, 64, 256, 16]


def test_distance_orders_real_noisy_and_noise(digits, autoencoder, noise):
    images = digits[0]
    rng = np.random.default_rng(0)
    fresh = image_frechet_distance(images[:900], images[900:], autoencoder)
    noisy = np.clip(images[900:] + rng.normal(0, 0.3, images[900:].shape), 0, 1)
    worse = image_frechet_distance(images[:900], noisy, autoencoder)
    worst = image_frechet_distance(images[:900], noise, autoencoder)
    assert fresh.value < worse.value < worst.value
    assert fresh.value < 3 * fresh.baseline
    same = image_frechet_distance(images, images[::-1], autoencoder)
    assert same.value == pytest.approx(0.0, abs=1e-4 * fresh.naive)


def test_pixels_may_be_bytes(digits, autoencoder):
    as_bytes = np.round(digits[0] * 255).astype(np.uint8)
    as_floats = as_bytes / 255.0
    first = image_frechet_distance(as_bytes[:500], as_bytes[500:], autoencoder)
    second = image_frechet_distance(as_floats[:500], as_floats[500:], autoencoder)
    assert first.value == pytest.approx(second.value, rel=1e-4)


def test_score_by_hand():
    assert _score(np.full((5, 4), 0.25)) == 1.0
    assert _score(np.eye(4)) == pytest.approx(4.0)
    assert _score(np.eye(4)[[0, 0, 0]]) == pytest.approx(1.0)  # sure, but of one class only
    p = np.array([[0.9, 0.1], [0.5, 0.5]])
    mean = p.mean(axis=0)
    expected = np.exp(np.mean([(row * np.log(row / mean)).sum() for row in p]))
    assert _score(p) == pytest.approx(expected)


@pytest.mark.slow
def test_inception_score_orders_digits_one_digit_and_noise(digits, classifier, noise):
    images, labels = digits
    assert classifier.accuracy_ > 0.9
    real = inception_score(images[1200:], classifier, real=images[:1200])
    one = inception_score(images[labels == 3], classifier)
    assert real.value > 5
    assert real.baseline > 5
    assert one.value < 2.5
    assert inception_score(noise, classifier).value < real.value
    assert "right for" in real.notes[0]
    assert real.parts["synthetic"].sum() == pytest.approx(1.0)


def test_training_is_repeatable_and_leaves_global_state_alone(digits):
    images = digits[0][:200]
    state = torch.random.get_rng_state()
    models = [train_autoencoder(images, n_epochs=1, random_state=seed) for seed in (0, 0, 1)]
    assert torch.equal(torch.random.get_rng_state(), state)
    first, again, other = (torch.cat([p.flatten() for p in m.parameters()]) for m in models)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not models[0].training


def test_unsuitable_images_are_refused(digits, autoencoder):
    images = digits[0]
    for bad, message in (
        (images[0], "shape"),
        (images[:, :7], "multiples of 4"),
        (images * 16, "rescale"),
        (images * np.nan, "rescale"),
        (2 * images - 1, "rescale"),
    ):
        with pytest.raises(ParameterError, match=message):
            image_frechet_distance(images, bad, autoencoder)
    with pytest.raises(ParameterError, match="one per image"):
        train_classifier(images, np.zeros(3))
