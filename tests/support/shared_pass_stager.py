"""``SharedPassStager``: the passes of Spark's job over a stream for several tables, in this process."""

from __future__ import annotations

import pytest

from floodmark.core.plan import WindowPlan
from floodmark.sources.event_stream import reader
from floodmark.sources.event_stream.transport import EventStream
from floodmark.sync.columns import MaskKeys
from floodmark.sync.ports import OpenReader, WindowReads
from in_process_stager import InProcessStager


class SharedPassStager(InProcessStager):
    """``Stager``. The changes of a window are netted in one task, or go through the shuffle of a large window."""

    def __init__(
        self,
        open_reader: OpenReader,
        database: str,
        stream: EventStream,
        readers: int = 0,
        mask_keys: MaskKeys | None = None,
    ) -> None:
        """readers: the tasks that read a large window; 0 for a window that one task stages."""
        super().__init__(open_reader, self._plan, mask_keys)
        self.readers = readers
        self._database, self._stream = database, stream

    def _plan(self, plan: WindowPlan, most: int) -> WindowReads:
        with pytest.MonkeyPatch.context() as patch:
            if self.readers:
                patch.setattr(reader, "MOST_CHANGES", -1)
            return reader.plan_reads(plan, self.readers or most, self._database, self._stream)
