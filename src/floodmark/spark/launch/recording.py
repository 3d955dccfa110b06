"""The recording of Spark's classes in Java's class-data archive (``class_archive``), once for an installation."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from floodmark import spark
from floodmark.core.errors import LoadStartError
from floodmark.spark.launch.class_archive import ARCHIVES_VARIABLE, QUIET, archive_path
from floodmark.spark.launch.command import JAVA_SETTING, LOCAL_JAVA, job_environment, job_settings
from floodmark.spark.launch.java import JAVA_VARIABLE
from floodmark.spark.launch.target import SparkTarget

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
