"""Everything that may cross a party boundary, and how it gets there."""

from vflsynth.protocol.channel import Channel, LocalChannel
from vflsynth.protocol.messages import (
    AlignmentNotice,
    BackboneGradients,
    CopulaLoadings,
    CutGradients,
    IntermediateFeatures,
    KeyList,
    MaskedRecords,
    Message,
    SelectionNotice,
    Shape,
    TrainingReport,
)
from vflsynth.protocol.schedule import Schedule
from vflsynth.protocol.transcript import Transcript

__all__ = [
    "AlignmentNotice",
    "BackboneGradients",
    "Channel",
    "CopulaLoadings",
    "CutGradients",
    "IntermediateFeatures",
    "KeyList",
    "LocalChannel",
    "MaskedRecords",
    "Message",
    "Schedule",
    "SelectionNotice",
    "Shape",
    "TrainingReport",
    "Transcript",
]
