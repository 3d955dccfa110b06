"""``Fleet``: where the files of the devices are. It travels to the load job as JSON; it has no secret."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from floodmark.core.errors import ConfigError

SUFFIXES = (".db", ".sqlite", ".sqlite3")
DEFAULT_CONSUMER = "floodmark"


@dataclass(frozen=True, slots=True)
class Fleet:
    """The files of a fleet. Raises ValueError for no path, or a relative one."""

    paths: tuple[str, ...]
    """Folders, of which each file with one of ``SUFFIXES`` is a device, and patterns of files (``*``)."""
    is_shipped: bool = False
    """The files are copies that a program on the device makes (``ship_copy``): nothing is written to them."""
    consumer: str = DEFAULT_CONSUMER
    """The name under which receipts are written. Two installations that read the same devices need two names."""
    purge_after_days: int = 30
    """What all consumers of a device have read is purged there, without waiting longer than this for any; 0: never."""

    def __post_init__(self) -> None:
        if not self.paths:
            raise ValueError("it names no folder and no file")
        for path in self.paths:
            if not Path(path).is_absolute():
                raise ValueError(f"{path} is not an absolute path")

    @classmethod
    def from_json(cls, text: str) -> Fleet:
        """Return the fleet that ``to_json`` wrote. Raises ValueError or TypeError for any other text."""
        document = json.loads(text)
        return cls(**document | {"paths": tuple(document["paths"])})

    def to_json(self) -> str:
        """Return the fleet as JSON."""
        return json.dumps(asdict(self))

    def portable(self) -> Fleet:
        """Return the fleet: every machine that reads it must have the files under these paths."""
        return replace(self)

    def list_files(self) -> Mapping[str, tuple[Path, ...]]:
        """Return the files of each device, by its name: that of its file without the extension.

        A device with several files cannot be read. Raises ConfigError where a folder does not exist.
        """
        found: dict[str, list[Path]] = {}
        for each in self.paths:
            for file in _list_path(Path(each)):
                found.setdefault(file.stem, []).append(file)
        return {name: tuple(sorted(set(files))) for name, files in sorted(found.items())}

    def __str__(self) -> str:
        return ", ".join(self.paths)


def _list_path(path: Path) -> list[Path]:
    folder = path if path.is_dir() else path.parent
    try:
        entries = [each for each in folder.iterdir() if each.is_file()]
    except OSError as error:
        raise ConfigError(
            str(path),
            f"the folder {folder} cannot be read ({error.strerror}).",
            "Mount it, or correct the path of the source.",
        ) from None
    if folder == path:
        return [each for each in entries if each.suffix.lower() in SUFFIXES]
    return [each for each in entries if each.match(path.name)]
