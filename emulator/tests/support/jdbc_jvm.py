"""A Java virtual machine with Spark and mssql-jdbc, and JDBC connections inside it, driven from Python through py4j."""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509 import load_pem_x509_certificates
from pyspark import SparkContext
from pyspark.sql import SparkSession

from emulator_process import MACHINE_AUTHORITIES, Emulator
from spark_java import java_environment

DRIVER = "com.microsoft.sqlserver.jdbc.SQLServerDriver"
MSSQL_JDBC = "com.microsoft.sqlserver:mssql-jdbc:12.10.1.jre11"
SUBMIT_OPTIONS = (
    "--master local[2] --conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1"
    " --conf spark.ui.showConsoleProgress=false --conf spark.log.level=ERROR --conf spark.sql.session.timeZone=UTC"
    " --conf spark.sql.maxMetadataStringLength=1000"
    " --driver-java-options '-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Duser.timezone=UTC' pyspark-shell"
)
STORE_PASSWORD = "trusted"
STOP_SECONDS = 30


@contextmanager
def spark_with_driver(*packages: str) -> Iterator[SparkSession]:
    """A JVM of its own: one that other tests have started knows nothing of the driver, nor theirs of our settings.

    ``packages`` are further ones, as Maven coordinates.
    """
    end_jvm()
    arguments = f"--packages {','.join([MSSQL_JDBC, *packages])} {SUBMIT_OPTIONS}"
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        for variable, value in java_environment(Path(folder)).items():
            patch.setenv(variable, value)
        if trusted := MACHINE_AUTHORITIES:
            # The wheel's Java knows public authorities only; a network may have one of its own.
            write_trust_store(Path(trusted), Path(folder) / "trust.p12")
            options = trust_options(Path(folder) / "trust.p12")
            patch.setenv("SPARK_SUBMIT_OPTS", f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {options}")
        with _alone():
            session = SparkSession.builder.appName("jdbc").getOrCreate()
        try:
            yield session
        finally:
            session.stop()
            end_jvm()


@contextmanager
def _alone() -> Iterator[None]:
    """Wait until no other JVM begins: each brings the driver into one folder of the user, where Ivy has no lock."""
    path = Path(tempfile.gettempdir()) / f"sqlserver-emulator-ivy-{os.getuid()}.lock"
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def end_jvm() -> None:
    """PySpark keeps one JVM for the life of the process, and uses it again; it ends when its standard input does."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(STOP_SECONDS)
    SparkContext._gateway = SparkContext._jvm = None


@dataclass(frozen=True)
class Jdbc:
    """One emulator as JDBC sees it."""

    session: SparkSession
    emulator: Emulator
    database: str
    trust_store: Path

    @property
    def options(self) -> dict[str, str]:
        """Return the options of a connection whose certificate is verified."""
        return {
            "user": self.emulator.user,
            "password": self.emulator.password,
            "databaseName": self.database,
            "encrypt": "true",
            "trustStore": str(self.trust_store),
            "trustStorePassword": STORE_PASSWORD,
            "trustStoreType": "PKCS12",
        }

    @property
    def url(self) -> str:
        return f"jdbc:sqlserver://{self.emulator.host}:{self.emulator.port}"

    def read(self, **options: str) -> Any:
        return self.session.read.format("jdbc").options(driver=DRIVER, url=self.url, **self.options, **options).load()

    def writer(self, frame: Any, table: str, mode: str, **options: str) -> Any:
        where = {"driver": DRIVER, "url": self.url, "dbtable": table} | self.options | options
        return frame.write.format("jdbc").options(**where).mode(mode)

    def connect(self, **options: str) -> Any:
        """A java.sql.Connection."""
        jvm = self.session._jvm
        properties = jvm.java.util.Properties()
        for name, value in (self.options | options).items():
            properties.setProperty(name, value)
        # Spark loads the driver apart from its own classes.
        driver = jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(DRIVER).newInstance()
        return driver.connect(self.url, properties)


def write_trust_store(ca_file: Path, target: Path) -> None:
    """Write what Java trusts from ca_file, one certificate or more as PEM."""
    with warnings.catch_warnings():
        # Some of a machine's authorities have a serial number that RFC 5280 forbids.
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        authorities = load_pem_x509_certificates(ca_file.read_bytes())
    entries = [PKCS12Certificate(each, str(number).encode()) for number, each in enumerate(authorities)]
    target.write_bytes(serialize_java_truststore(entries, BestAvailableEncryption(STORE_PASSWORD.encode())))


def trust_options(store: Path) -> str:
    """Java's options for its default trust store."""
    options = {"": store, "Password": STORE_PASSWORD, "Type": "PKCS12"}
    return " ".join(f"-Djavax.net.ssl.trustStore{name}={value}" for name, value in options.items())
