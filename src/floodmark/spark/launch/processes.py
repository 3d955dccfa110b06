"""The processes that Floodmark starts: the load job of a command, a Spark Connect server, a recording of classes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from floodmark import spark
from floodmark.core.errors import ConfigError, FloodmarkError, LoadStartError
from floodmark.core.progress import StepProgress
from floodmark.core.schema import is_loopback
from floodmark.core.settings import PROGRESS_VARIABLE
from floodmark.spark.launch import command as load_job
from floodmark.spark.launch.command import (
    JAVA_SETTING,
    LOCAL_JAVA,
    WORKER_DAEMON,
    JobOutput,
    end_with_starter,
    job_environment,
    job_settings,
    start_failure,
)
from floodmark.spark.launch.target import ARCHIVES_VARIABLE, JAVA_VARIABLE, QUIET, SparkTarget, archive_path
from floodmark.sync.ports import Progress

# --------------------------------------------------------------------------------------------------------------------
# The load job of a window as a process of this one, where Airflow does not start it: for the command line.


_KEPT_LINES = 200


def run_load(
    secrets: Mapping[str, str],
    target: SparkTarget,
    window_id: int,
    config_path: Path,
    progress: Progress | None = None,
    *,
    quiet: bool = False,
) -> None:
    """Run the load job of a window, its output on standard error, until it has ended; it ends with this process.

    secrets: connections as JSON, by their variables. progress: receives the progress, which otherwise is in the
    output. quiet: the end of the output is printed only if the job fails. Raises what the job reported.
    """
    environment = os.environ | load_job.job_environment(secrets, target)
    command = load_job.submit_command(target, window_id, config_path)
    command, options = load_job.driver_command(command, str(load_job.application()), job_settings(target), environment)
    environment |= options
    if progress is not None:
        environment[PROGRESS_VARIABLE] = "1"
        progress.report_step(StepProgress(f"window {window_id}: starting the load"))
    output = JobOutput(progress)
    try:
        started = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            preexec_fn=end_with_starter(),  # noqa: PLW1509  (a bare system call, resolved before)
        )
    except OSError as problem:
        raise start_failure(window_id, problem) from None
    kept: deque[str] = deque(maxlen=_KEPT_LINES)
    with started as job:
        for line in output.watch(job.stdout or ()):
            if quiet:
                kept.append(line)
            else:
                sys.stderr.write(line)
    try:
        output.require_result(window_id, job.returncode)
    except FloodmarkError:
        sys.stderr.writelines(kept)
        raise


# --------------------------------------------------------------------------------------------------------------------
# A resident Spark for loads: a Spark that listens for clients of Spark Connect, as a command and its environment.
#
# Spark's own script (``start-connect-server.sh``) is not used. The server that it starts gives every session a Python
# daemon of its own, which never ends: a second for each load, and more memory with each.


TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105  (its name)
"""The variable that gives Spark the token which clients must have."""
REQUIRED_SETTINGS = WORKER_DAEMON | {
    # All sessions use one Python daemon.
    "spark.sql.artifact.isolation.enabled": "false",
}
"""Settings that a load requires of a server, because no session can change them."""
_SETTINGS = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    # The server does not notice that a client was killed, and its load would go on. So it ends the stream of results
    # after a while, which a client that lives takes up again at once, and interrupts what no client takes up.
    "spark.connect.execute.reattachable.senderMaxStreamDuration": "10s",
    "spark.connect.execute.manager.detachedTimeout": "20s",
    "spark.connect.execute.manager.maintenanceInterval": "5s",
    "spark.connect.session.manager.defaultSessionTimeout": "10m",
}
CLIENT_ERRORS = "org.apache.spark.sql.connect.utils.ErrorUtils"
"""The logger that repeats errors which the client gets, with the values in their messages."""
ADDRESS_SETTING, PORT_SETTING = "spark.connect.grpc.binding.address", "spark.connect.grpc.binding.port"


def server_command(target: SparkTarget, host: str, port: int) -> list[str]:
    """Return the command of a server that listens on an address. Raises ConfigError where anyone could use it."""
    if not is_loopback(host) and TOKEN_VARIABLE not in os.environ:
        raise ConfigError(
            "spark-server",
            f"anyone who reaches {host}:{port} could run programs on this machine.",
            f"Set {TOKEN_VARIABLE} to a secret, and give it to the Spark connection as its password.",
        )
    listening = {ADDRESS_SETTING: host, PORT_SETTING: str(port)}
    settings = job_settings(target) | REQUIRED_SETTINGS | _SETTINGS | listening | dict(target.conf)
    confs = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    application = Path(spark.__file__).parent / "spark_jobs" / "serve.py"
    return [target.binary, "--master", target.master, "--name", "floodmark", *confs, str(application)]


def server_environment(target: SparkTarget) -> Mapping[str, str]:
    """Return the whole environment of the server."""
    return os.environ | job_environment({}, target)


# --------------------------------------------------------------------------------------------------------------------
# The recording of Spark's classes in Java's class-data archive (``class_archive``), once for an installation.


_SUBJECT = "the archive of Spark's classes"
_LAST_LINES = 5


def record_classes(only_missing: bool = False) -> Path:
    """Run Spark once, and keep the classes that it loads. Return the path of the archive. Raises LoadStartError.

    only_missing: do nothing where there is an archive for the Java of a load.
    """
    target = SparkTarget("local[2]")
    environment = os.environ | job_environment({}, target)
    java_home = environment[JAVA_VARIABLE]
    path = archive_path(java_home)
    if only_missing and path.is_file():
        return path
    if os.pathsep in str(path):
        raise LoadStartError(_SUBJECT, f"its path has a colon, by which Java separates archives: {path}.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        base = _base_option(java_home)
        with tempfile.TemporaryDirectory(prefix=".archive-", dir=path.parent) as folder:
            partial = Path(folder, "classes.jsa")
            java = f'{base} "-XX:ArchiveClassesAtExit={partial}" {QUIET} {LOCAL_JAVA}'.strip()
            settings = job_settings(target) | {JAVA_SETTING: java}
            confs = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
            application = Path(spark.__file__).parent / "spark_jobs" / "record_classes.py"
            command = [target.binary, "--master", target.master, *confs, str(application)]
            # An archive of earlier jars must not be used while its successor is recorded.
            _run(command, environment | {ARCHIVES_VARIABLE: folder})
            partial.replace(path)
    except OSError as error:
        raise LoadStartError(_SUBJECT, f"{error.filename or path.parent}: {error.strerror}.") from None
    return path


def _base_option(java_home: str) -> str:
    """Return the option that names the archive of Java's own classes; "" where Java has it.

    The archive of Spark's classes is a layer above it. A Java that jlink has made often has none, so it is made here.
    """
    java = str(Path(java_home, "bin", "java"))
    if subprocess.run([java, "-Xshare:on", "-version"], capture_output=True, check=False).returncode == 0:
        return ""
    path = archive_path(java_home)
    base = path.with_name(path.name.replace("spark", "java", 1))
    with tempfile.TemporaryDirectory(prefix=".archive-", dir=base.parent) as folder:
        partial = Path(folder, "classes.jsa")
        _run([java, "-XX:+UseSerialGC", f"-XX:SharedArchiveFile={partial}", "-Xshare:dump"], os.environ)
        partial.replace(base)
    return f'"-XX:SharedArchiveFile={base}"'


def _run(command: Sequence[str], environment: Mapping[str, str]) -> None:
    program = shutil.which(command[0], path=environment.get("PATH")) or command[0]
    done = subprocess.run(
        [program, *command[1:]],
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = " / ".join(done.stdout.strip().splitlines()[-_LAST_LINES:])
        raise LoadStartError(_SUBJECT, f"{Path(program).name} ended with {done.returncode}.", detail=last)
