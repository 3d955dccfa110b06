"""A Kerberos KDC of MIT on loopback, with a realm of its own. Needs the programs of Debian's krb5-kdc."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from emulator_process import Emulator, running_emulator

REALM = "FLOODMARK.TEST"
CLIENT = f"loader@{REALM}"
MISSING = "there is no krb5kdc: make test-clients installs it (Debian: krb5-kdc, krb5-admin-server)"
_START_SECONDS = 20.0
_CLIENT_CONFIG = """
[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 {realm} = {{
  kdc = 127.0.0.1:{port}
 }}
[domain_realm]
 localhost = {realm}
"""
_SERVER_CONFIG = """
[kdcdefaults]
 kdc_listen = 127.0.0.1:{port}
 kdc_tcp_listen = 127.0.0.1:{port}
[realms]
 {realm} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
  supported_enctypes = aes256-cts:normal
 }}
[dbmodules]
 db_module_dir = {modules}
"""


def find_kdc() -> Path | None:
    """Return the program, or None; Debian puts it where only root's PATH leads."""
    found = shutil.which("krb5kdc", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin")))
    return Path(found) if found else None


@dataclass(frozen=True)
class Kdc:
    """A running KDC. The keytab of the service has the keys of ``add_service``."""

    folder: Path
    program: Path

    @property
    def client(self) -> dict[str, str]:
        """The environment of a client with a keytab."""
        keytab, cache = self.folder / "client.keytab", self.folder / "cache"
        return self.without_ticket | {"KRB5_CLIENT_KTNAME": f"FILE:{keytab}", "KRB5CCNAME": f"FILE:{cache}"}

    @property
    def without_ticket(self) -> dict[str, str]:
        """The environment of a client that knows the realm and has neither ticket nor keytab."""
        nothing = f"FILE:{self.folder / 'nothing'}"
        config = str(self.folder / "krb5.conf")
        return {"KRB5_CONFIG": config, "KRB5_CLIENT_KTNAME": nothing, "KRB5CCNAME": nothing}

    @property
    def service(self) -> dict[str, str]:
        """The environment of the server."""
        keytab = self.folder / "service.keytab"
        config = str(self.folder / "krb5.conf")
        return {"KRB5_CONFIG": config, "KRB5_KTNAME": f"FILE:{keytab}", "KRB5RCACHENAME": "none:"}

    def add_service(self, name: str) -> None:
        """Make a service, such as ``MSSQLSvc/localhost:1433``."""
        self.administrate(f"addprinc -randkey {name}", f"ktadd -k {self.folder}/service.keytab {name}")

    def administrate(self, *queries: str) -> None:
        for query in queries:
            self._run("kadmin.local", "-q", query)

    def create(self) -> None:
        """Make the realm, with the client's principal and its keytab."""
        self._run("kdb5_util", "create", "-s", "-P", "master", "-r", REALM)
        self.administrate(f"addprinc -randkey {CLIENT}", f"ktadd -k {self.folder}/client.keytab {CLIENT}")

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the KDC's own programs, which may be unpacked anywhere with their libraries."""
        libraries = os.pathsep.join(str(each) for each in self.program.parents[1].glob("lib/*-linux-gnu*"))
        config = {"KRB5_CONFIG": f"{self.folder}/krb5.conf", "KRB5_KDC_PROFILE": f"{self.folder}/kdc.conf"}
        return os.environ | config | {"LD_LIBRARY_PATH": libraries}

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self.program.with_name(program)), *arguments]
        subprocess.run(command, env=self.environment, check=True, capture_output=True, timeout=60)


@contextmanager
def running_kdc(folder: Path, *arguments: str) -> Iterator[Kdc]:
    """Start a KDC. arguments: of krb5kdc, such as ``-T`` with the seconds by which its clock is ahead."""
    program = find_kdc()
    assert program is not None, MISSING
    folder.mkdir(parents=True, exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    modules = next(iter(program.parents[1].glob("lib/*/krb5/plugins/kdb")))
    (folder / "krb5.conf").write_text(_CLIENT_CONFIG.format(realm=REALM, port=port), encoding="utf-8")
    described = _SERVER_CONFIG.format(realm=REALM, port=port, folder=folder, modules=modules)
    (folder / "kdc.conf").write_text(described, encoding="utf-8")
    kdc = Kdc(folder, program)
    kdc.create()
    with (folder / "log").open("wb") as log:
        command = [str(program), "-n", *arguments]
        process = subprocess.Popen(command, env=kdc.environment, stdout=log, stderr=log)
        try:
            _wait_for(port, process)
            yield kdc
        finally:
            process.terminate()
            process.wait(20)


@contextmanager
def kerberos_emulator(
    kdc: Kdc, data_dir: Path, *arguments: str, databases: Sequence[str] = ("Test",)
) -> Iterator[Emulator]:
    """Start an emulator that takes tickets for localhost. arguments: of its command.

    The providers of the driver make different service names of one host: without the port, with it, and with the
    machine's own name.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name, value in kdc.service.items():
            patch.setenv(name, value)
        with running_emulator(data_dir, *arguments, databases=databases) as running:
            for host in ("localhost", f"localhost:{running.port}", f"{socket.gethostname()}:{running.port}"):
                kdc.add_service(f"MSSQLSvc/{host}")
            yield running


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert process.poll() is None, "the KDC ended"
            assert time.monotonic() < until, "the KDC does not listen"
            time.sleep(0.05)
        else:
            return
