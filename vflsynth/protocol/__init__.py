"""Everything that may cross a party boundary, and how it gets there."""

from vflsynth.protocol.channel import Channel, LocalChannel
from vflsynth.protocol.messages import (
    AlignmentNotice,
    BackboneGradients,
    CopulaLoadings,
    CutGradients,
    FakeProjections,
    IntermediateFeatures,
    KeyList,
    MaskedRecords,
    Message,
    NoisyHistograms,
    ProjectionGradients,
    RecordProjections,
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
    "FakeProjections",
    "IntermediateFeatures",
    "KeyList",
    "LocalChannel",
    "MaskedRecords",
    "Message",
    "NoisyHistograms",
    "ProjectionGradients",
    "RecordProjections",
    "Schedule",
    "SelectionNotice",
    "Shape",
    "TrainingReport",
    "Transcript",
]
