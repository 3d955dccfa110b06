"""The kind ``change_tracking``."""

from documents.situations import LOG, SERVER, TRACKING, Kind
from floodmark.core.position import Version
from floodmark.sources.change_tracking.source import TRACKING_WORDS

KIND = Kind("change_tracking", TRACKING_WORDS, "dbo.Orders@5", Version.of, (SERVER, LOG, TRACKING))
