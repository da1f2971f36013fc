"""The server of VertiGAN: it adds gradients and has no network."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch

from vflsynth.exceptions import ProtocolError
from vflsynth.methods.gan.server import GANServer
from vflsynth.methods.vertigan.messages import BackboneGradients, SummedBackboneGradients
from vflsynth.protocol import SERVER, pack, unpack_from


class VertiGANServer(GANServer):
    """The server of VertiGAN.

    Source: VFLGAN §2.3. Sees backbone gradients and masked records.
    """

    def sum_gradients(
        self, step: int, received: Mapping[str, BackboneGradients]
    ) -> dict[str, SummedBackboneGradients]:
        """Sum of the parties' gradients of G_b (Eq. 5), the same for each of them."""
        precision = self.settings.wire_precision
        gradients = {name: received[name].gradients for name in sorted(received)}
        shapes = {name: tuple(gradient.shape) for name, gradient in gradients.items()}
        if len(set(shapes.values())) > 1:
            raise ProtocolError(f"the parties' backbones differ: gradients of shapes {shapes}")
        unpacked = [
            unpack_from(received[name], gradient.unsqueeze(1), precision)
            for name, gradient in gradients.items()
        ]
        draw = partial(self.streams.uniform, "rounding", step)
        total = pack(torch.stack(unpacked).sum(0), precision, draw).squeeze(1)
        return {name: SummedBackboneGradients(SERVER, name, step, total) for name in gradients}
