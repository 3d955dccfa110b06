"""An emulator whose captured changes are streamed to a folder, repeated, split and dealt to any partition."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pymssql

from floodmark_laptop import shop
from floodmark_laptop.capture_files import CaptureWriter
from floodmark_laptop.streaming import ChangeStreamer
from sqlserver_emulator.event_stream.encoding import MessageForm
from torture_rig import CDC, Recording, TortureRig

STREAM = Recording(
    "event_stream", CDC.tables, shop.enable_cdc, {"run": 6, "reload": 3}, more=", stream_conn_id: shop_hub"
)
_ROUND_SECONDS = 0.2


class StreamTortureRig(TortureRig):
    """A thread streams what is captured. It goes on when the source is there again."""

    def __init__(self, folder: Path, seed: int, *, with_spark: bool) -> None:
        super().__init__(folder, seed, with_spark=with_spark, recording=STREAM)
        self._hub = folder / "captures" / "hub"
        self._streamer = ChangeStreamer(
            lambda: self.source.connect_pymssql(shop.DATABASE, autocommit=True),
            shop.DATABASE,
            CDC.tables,
            CaptureWriter(self._hub),
            MessageForm(limit_bytes=4_000),
            repeats=0.3,
        )
        self._streaming = threading.Event()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        self._hub.mkdir(parents=True)
        with super().running():
            self._streaming.set()
            thread = threading.Thread(target=self._stream)
            thread.start()
            try:
                yield
            finally:
                self._streaming.clear()
                thread.join()

    def end_workload(self) -> None:
        super().end_workload()
        self._streaming.clear()
        while self._streamer.send():
            continue

    def _stream(self) -> None:
        while self._streaming.is_set():
            with contextlib.suppress(pymssql.Error, OSError):
                self._streamer.send()
            self._ended.wait(_ROUND_SECONDS)

    def _connections(self) -> dict[str, str]:
        hub = {"conn_type": "fs", "extra": {"path": str(self._hub)}}
        return super()._connections() | {"AIRFLOW_CONN_SHOP_HUB": json.dumps(hub)}
