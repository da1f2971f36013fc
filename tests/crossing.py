"""What crosses boundaries in every run, whatever the method: names of messages."""

MATCHING = {"Hello", "Terms", "KeyList", "AlignmentNotice"}
EVERY_RUN = MATCHING | {"EncodedSize", "EncodedSizes"}
