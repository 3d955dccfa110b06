"""The mark of a device: what the next read of a table continues from, and the proof that the file still has it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from compact_tracking import Anchor, Snapshot, TableAnchor


@dataclass(frozen=True, slots=True)
class DeviceMark:
    """The anchor of a table in a device's file, and the token of the receipt that the file has for a consumer."""

    anchor: TableAnchor
    proof: str
    consumer: str

    @classmethod
    def of(cls, snapshot: Snapshot, table: str, consumer: str) -> DeviceMark:
        """Return the mark for a consumer that has the rows of a snapshot."""
        return cls(snapshot.anchor_of(table), snapshot.receipt.token, consumer)

    @classmethod
    def parse(cls, text: str) -> DeviceMark:
        """Return the mark of a text of the ledger."""
        device, token, csn, bsn, proof, consumer = json.loads(text)
        return cls(TableAnchor(device, token, Anchor(csn=csn, bsn=bsn)), proof, consumer)

    def __str__(self) -> str:
        """Return the text for the ledger."""
        of = self.anchor
        return json.dumps([of.device, of.token, of.anchor.csn, of.anchor.bsn, self.proof, self.consumer])
