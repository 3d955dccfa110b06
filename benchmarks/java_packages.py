"""Packages of Java, fetched from Maven Central by their coordinates. Ivy, which PySpark brings, fetches them.

They are no dependencies of Floodmark. They are kept in ``build/``, so that each is fetched once.
"""

from __future__ import annotations

import fcntl
import os
import ssl
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore
from cryptography.x509 import load_pem_x509_certificates

BUILD = Path(__file__).resolve().parents[1] / "build"
_FETCH_SECONDS = 900
_STORE_PASSWORD = b"authorities"
"""The store has public certificates alone; Java wants a password all the same."""


class MissingPackagesError(Exception):
    """A message about packages that cannot be had."""


@dataclass(frozen=True)
class Packages:
    """A program of Java, and the coordinates of what it needs: group, artifact and version."""

    name: str
    version: str
    coordinates: tuple[tuple[str, str, str], ...]

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    def fetch(self, java: Path, build: Path = BUILD) -> Path:
        """Return the folder of the jars, fetched once. Raise MissingPackagesError where they cannot be fetched."""
        folder = build / f"{self.name.lower()}-{self.version}"
        if folder.is_dir():
            return folder
        build.mkdir(parents=True, exist_ok=True)
        with _locked(build):
            if not folder.is_dir():  # else it came while this process waited
                print(f"fetching {self} from Maven Central into {folder}", flush=True)
                with tempfile.TemporaryDirectory(dir=build) as name:
                    self._retrieve(java, Path(name))
                    # Under its name only when it is complete.
                    (Path(name) / "jars").rename(folder)
        return folder

    def _retrieve(self, java: Path, folder: Path) -> None:
        description = folder / "ivy.xml"
        description.write_text(self.describe(), encoding="utf-8")
        ivy = [str(jar) for jar in Path(pyspark.__file__).parent.glob("jars/ivy-*.jar")]
        command = [str(java), *trust_of_python(folder), "-cp", os.pathsep.join(ivy)]
        command += ["org.apache.ivy.Main", "-ivy", str(description)]
        command += ["-confs", "default", "-types", "jar", "bundle"]
        command += [
            "-cache",
            str(folder / "cache"),
            "-retrieve",
            f"{folder}/jars/[artifact]-[revision](-[classifier]).[ext]",
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise MissingPackagesError(f"{self} was not fetched within {_FETCH_SECONDS} s; run it again") from None
        if done.returncode != 0:
            raise MissingPackagesError(
                f"{self} was not fetched: {why_not(done.stdout + done.stderr)}; it needs Maven Central"
            )

    def describe(self) -> str:
        """Return Ivy's description of what is fetched."""
        wanted = "".join(
            f'<dependency org="{org}" name="{name}" rev="{revision}"/>' for org, name, revision in self.coordinates
        )
        return (
            '<ivy-module version="2.0"><info organisation="floodmark" module="fetched"/>'
            '<configurations><conf name="default"/></configurations>'
            f'<dependencies defaultconf="default->runtime,compile,default">{wanted}</dependencies></ivy-module>'
        )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Wait until no other process holds the folder's lock, and hold it: processes that run tests fetch at once."""
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def trust_of_python(folder: Path) -> list[str]:
    """Return the options that let Java trust the authorities that Python trusts, such as a company's own proxy."""
    paths = ssl.get_default_verify_paths()
    if paths.cafile is None:
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an old authority may have a number that is no longer allowed
        found = load_pem_x509_certificates(Path(paths.cafile).read_bytes())
    certificates = [PKCS12Certificate(each, str(number).encode()) for number, each in enumerate(found)]
    encryption = BestAvailableEncryption(_STORE_PASSWORD)
    store = folder / "authorities.p12"
    store.write_bytes(serialize_java_truststore(certificates, encryption))
    return [
        f"-Djavax.net.ssl.trustStore={store}",
        "-Djavax.net.ssl.trustStoreType=PKCS12",
        f"-Djavax.net.ssl.trustStorePassword={_STORE_PASSWORD.decode()}",
    ]


def why_not(printed: str) -> str:
    """Return the reason from what Ivy printed."""
    lines = [line.strip(" :\t") for line in printed.splitlines()]
    found = sorted({line for line in lines if line.endswith("not found")})
    return ", ".join(found) or next((line for line in reversed(lines) if line), "Ivy gave no reason")
