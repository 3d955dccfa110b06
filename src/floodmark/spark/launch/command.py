"""The load job as a command: its arguments, its environment, its temporary files, its output."""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from floodmark import spark
from floodmark.core.errors import ConfigError, FloodmarkBugError, FloodmarkError, LoadKilledError, LoadStartError
from floodmark.core.planning import STARTED, STARTING, LoadResult, parse_load_result
from floodmark.core.progress import ReadProgress, parse_progress_line
from floodmark.core.settings import REMOTE_VARIABLE
from floodmark.spark.launch.target import DEFAULT_BINARY, SparkTarget, java_environment
from floodmark.sync.ports import Progress

# --------------------------------------------------------------------------------------------------------------------
# The folders of a load job's temporary files, and the explanation where one could not be written.
#
# Nothing is checked before a job, since it may have changed when the job writes. After a job that failed, its output
# and the folders are checked.


_DEFAULT = "/tmp"  # noqa: S108  (Java's, whatever TMPDIR says; nothing of ours has a name in it)
_PROBE_BYTES = 1 << 16
_COMPLAINTS = re.compile(
    r"No space left on device|Disk quota exceeded|Read-only file system|No usable temporary directory"
    r"|Failed to create (?:a temp directory|local dir|directory)"
)
_LONGEST = 300


def java_options(environment: Mapping[str, str]) -> str | None:
    """Return the SPARK_SUBMIT_OPTS by which Java, and so Spark, uses TMPDIR. None: leave it as it is."""
    options, folder = environment.get("SPARK_SUBMIT_OPTS", ""), environment.get("TMPDIR")
    if not folder or "java.io.tmpdir" in options:
        return None
    return f'{options} "-Djava.io.tmpdir={folder}"'.strip()


def temporary_folders(environment: Mapping[str, str]) -> list[str]:
    """Return the folders of a job on this machine."""
    named = [environment.get("TMPDIR") or _DEFAULT, *environment.get("SPARK_LOCAL_DIRS", "").split(",")]
    return list(dict.fromkeys(filter(None, named)))


def find_complaint(line: str) -> str | None:
    """Return the line, shortened, where it says that a file could not be written."""
    return line.strip()[:_LONGEST] if _COMPLAINTS.search(line) else None


def find_trouble(folders: Iterable[str]) -> list[str]:
    """Return a clause for each folder that cannot be written to now."""
    found = []
    for folder in folders:
        try:
            with tempfile.TemporaryFile(dir=folder, buffering=0) as probe:
                probe.write(bytes(_PROBE_BYTES))
        except OSError as error:
            found.append(f"{folder} cannot be written to: {error.strerror}")
    return found


def explain_ending(complaint: str | None, trouble: list[str]) -> tuple[str, str]:
    """Return the explanation of a job that failed, and what to do; "" where there is nothing to explain."""
    if not complaint and not trouble:
        return "", ""
    why = "; ".join(trouble) or "its output says that a file could not be written (see the log)"
    return (
        f"It needs a folder for temporary files: {why}.",
        "Make room there, or have TMPDIR name another folder in the environment of the process that starts the load "
        "(Airflow's workers, or the command). Where SPARK_LOCAL_DIRS is set, it counts as well.",
    )


# --------------------------------------------------------------------------------------------------------------------
# The load job as a command: its arguments and its environment. For the operator and the CLI.
#
# The command is Python with the job, which starts Spark where a window needs it, with the options that are written for
# spark-submit. It is spark-submit itself where the Spark or the Python of the driver is another one.
#
# Imports neither Airflow nor Spark. Secrets go into the environment of the driver only: a command line, a template and
# a log can be read by others.


_LOOPBACK_SETTINGS = {
    # Nothing needs to listen beyond loopback.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
JAVA_SETTING = "spark.driver.extraJavaOptions"
LOCAL_JAVA = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
    " -Xms128m -XX:NewSize=32m -XX:MaxNewSize=32m"
)
"""The options of a local job's Java.

Driver and executor are one short-lived JVM next to Python's processes on few cores: the collector and the compiler that
cost least. A heap that grows only for what lives does not follow the size of the window.
"""
_LOCAL_SETTINGS = {
    # One job at a time on this machine: no one opens the UI.
    "spark.ui.enabled": "false",
    JAVA_SETTING: LOCAL_JAVA,
}
_CLUSTER_SETTINGS = {
    # A task that fails for its data or its rights fails again: a second try is for lost machines.
    "spark.task.maxFailures": "2",
    # Two copies of a task read the source twice.
    "spark.speculation": "false",
    # The memory of Python and Arrow is outside Java's heap; a container without room for it is killed.
    "spark.executor.memoryOverhead": "1g",
}
WORKER_DAEMON = {"spark.python.daemon.module": "floodmark.spark.daemon"}
"""A setting of Spark's start, which no session can change."""
_PYTHON, _DRIVER_PYTHON = "spark.pyspark.python", "spark.pyspark.driver.python"
_CLIENT_MODULES = ("grpc", "grpc_status", "pandas", "zstandard")
# Spark's own INFO is hundreds of lines for every load; what a person wants to know is said by the job.
_SETTINGS = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "WARN"}


def application() -> Path:
    """Return the file of the job: ``spark_jobs/load_window.py``, which the package carries."""
    return Path(spark.__file__).parent / "spark_jobs" / "load_window.py"


def job_arguments(window_id: int | str, config: Path) -> list[str]:
    return ["--window-id", str(window_id), "--config", str(config)]


def job_settings(target: SparkTarget) -> dict[str, str]:
    """Return Spark's properties for the job. Those of the Spark connection win."""
    settings = _SETTINGS | (_LOCAL_SETTINGS if target.is_local else _CLUSTER_SETTINGS)
    if target.is_loopback:
        settings |= _LOOPBACK_SETTINGS
    if _PYTHON in target.conf:
        # Otherwise the driver would use the executors' Python, too.
        settings[_DRIVER_PYTHON] = sys.executable
    return settings | dict(target.conf)


def job_environment(secrets: Mapping[str, str], target: SparkTarget) -> dict[str, str]:
    """Return what the driver gets besides the present environment. secrets: connections as JSON, by their variables."""
    if target.server:
        return {**secrets, REMOTE_VARIABLE: target.server}
    python = sys.executable
    environment = {
        **secrets,
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", python),
        "PYSPARK_DRIVER_PYTHON": os.environ.get("PYSPARK_DRIVER_PYTHON", python),
        # spark-submit is next to the interpreter, which need not be on the PATH.
        "PATH": os.pathsep.join((str(Path(python).parent), os.environ.get("PATH", os.defpath))),
    }
    spark_home = os.environ.get("SPARK_HOME") or _installed_spark()
    if spark_home:
        # By default, spark-submit searches for it with an unquoted path to Python, which must not hold a blank.
        environment["SPARK_HOME"] = spark_home
    if target.is_loopback:
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    options = java_options(os.environ)
    if options is not None:
        environment["SPARK_SUBMIT_OPTS"] = options
    return environment | java_environment()


def driver_command(
    command: Sequence[str], job: str, settings: Mapping[str, object], environment: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return the command of the driver, and variables with Spark's options, for a command of spark-submit.

    The driver runs spark-submit if it needs Spark, with these options. job: the path of the job in the command.
    settings: Spark's properties in it. Returns the command as it is where only spark-submit brings the driver's Python
    and its pyspark together.
    """
    python = settings.get(_DRIVER_PYTHON) or settings.get(_PYTHON) or environment.get("PYSPARK_DRIVER_PYTHON")
    is_own = environment.get("SPARK_HOME", "") == _installed_spark() and python == sys.executable
    if command[0] != DEFAULT_BINARY or not is_own:
        return list(command), {}
    place = command.index(job)
    options = {"PYSPARK_SUBMIT_ARGS": shlex.join((*command[1:place], "pyspark-shell"))}
    # The driver says which Python executors run: it is the one of the property, as spark-submit would say.
    workers = {"PYSPARK_PYTHON": str(settings[_PYTHON])} if _PYTHON in settings else {}
    return [sys.executable, *command[place:]], options | workers


def client_command(target: SparkTarget, arguments: Sequence[str]) -> list[str]:
    """Return the command line of a job whose Spark is a server's. Raises ConfigError where its client is missing."""
    missing = [name for name in _CLIENT_MODULES if find_spec(name) is None]
    if missing:
        raise ConfigError(
            target.master, f"a client of Spark Connect needs {', '.join(missing)}.", "Install floodmark[connect]."
        )
    return [sys.executable, str(application()), *arguments]


def _installed_spark() -> str | None:
    """Return the folder of the package pyspark, without importing it."""
    spec = find_spec("pyspark")
    return str(Path(spec.origin).parent) if spec and spec.origin else None


def submit_command(target: SparkTarget, window_id: int, config: Path) -> list[str]:
    """Return the command line for a caller that starts the job without Airflow. Raises ConfigError."""
    if target.server:
        return client_command(target, job_arguments(window_id, config))
    confs = [part for name, value in job_settings(target).items() for part in ("--conf", f"{name}={value}")]
    named = ["--name", f"floodmark window {window_id}"]
    arguments = job_arguments(window_id, config)
    return [target.binary, "--master", target.master, *named, *confs, str(application()), *arguments]


# --------------------------------------------------------------------------------------------------------------------
# A load ends with the process that started it, also when that was killed with -9: the kernel sees to it (Linux).
#
# Otherwise it would go on alone. That harms no row, but the tries that follow find another load at work, until they are
# used up, and a first load may take hours. Task, driver and JVM are a chain: the driver is bound to the task, and the
# JVM ends with the pipe that the driver holds. Where spark-submit has started the driver, the JVM is between the two.


_PR_SET_PDEATHSIG = 1


def end_with_starter() -> Callable[[], None] | None:
    """Return the ``preexec_fn`` of a process that this thread is about to start; it survives exec.

    None where the kernel has no such thing.
    """
    if sys.platform != "linux":
        return None
    # Resolved before the fork: in the child, locks that another thread held then are never given back.
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    starter = os.getpid()

    def arrange() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != starter:
            # It died in between, and no signal will come.
            os._exit(1)

    return arrange


def end_with_parent() -> None:
    """Let this process end with its parent, where other code has started it."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


# --------------------------------------------------------------------------------------------------------------------
# The meaning of a load job's output and exit status: its result, or the error that explains why there is none.
#
# A job that ends without a result either never began or was stopped on its way. The first is a fault of Java, Spark or
# their options, which another try would meet again. The second passes, and the next try does the same window.


_KEPT_LINES = 8
_LONGEST_LINE = 300
_NOISE = re.compile(r"\s*$|\s+at |\s*\.{3} \d+ more|(?:NOTE: )?Picked up ")
"""Empty lines, frames of Java's stack traces, and Java's note that it has options."""
_REPEATED_OPTIONS = re.compile(r"(Picked up \w*JAVA\w*):.*")
"""Java repeats what such a variable holds, which may be a password."""
_NO_MEMORY = re.compile(
    r"insufficient memory|Could not reserve enough space|Cannot allocate memory|unable to create (?:new )?native thread"
)
_MEMORY_HINT = "Free memory where the load runs, or lower the memory of Spark's driver."
_START_HINT = (
    "Correct the Spark connection or, where the load is started (Airflow's workers, or the command), Java or Spark: "
    "JAVA_HOME, SPARK_HOME and SPARK_SUBMIT_OPTS. Then start the run again. Nothing was read or written."
)


class JobOutput:
    """The job's lines on their way to a log. Keeps what matters at the end: result, complaints, and the last lines.

    progress: receives what the job reports about it; None where it was not asked to report it in lines for programs.
    """

    def __init__(self, progress: Progress | None = None) -> None:
        self.result: LoadResult | None = None
        self._progress = progress
        self._started = False
        self._complaint: str | None = None
        self._out_of_memory = False
        self._last: deque[str] = deque(maxlen=_KEPT_LINES)

    def watch(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield all lines but those that are for programs: that the job began, its progress, and its result.

        Hides Java's options.
        """
        for line in lines:
            text = line.strip()
            found = parse_load_result(text)
            if found is not None:
                self.result = found
            elif text in (STARTED, STARTING):
                self._started = text == STARTED
                self._last.clear()
            elif self._progress is not None and (progress := parse_progress_line(text)) is not None:
                if isinstance(progress, ReadProgress):
                    self._progress.report(progress)
                else:
                    self._progress.report_step(progress)
            else:
                shown = _REPEATED_OPTIONS.sub(r"\1.", line)
                self._keep(shown)
                yield shown

    def require_result(self, window_id: int, exit_code: int) -> LoadResult:
        """Return the job's result.

        Raises the error that the job reported. Raises LoadKilledError (retried) or LoadStartError (not retried) where
        it reported nothing. exit_code: as ``subprocess`` gives it, negative for a signal.
        """
        if self.result is None or (isinstance(self.result.error, LoadStartError) and not self._started):
            raise self._explain_silence(f"window {window_id}", exit_code)
        error = self.result.error
        if isinstance(error, FloodmarkBugError):
            # It may come from Spark, which does not say that a disk was full.
            hint = " ".join(filter(None, (error.hint, *self._explain_files())))
            raise type(error)(error.subject, error.message, hint, error.detail)
        if error is not None:
            raise error
        return self.result

    def _keep(self, line: str) -> None:
        self._complaint = self._complaint or find_complaint(line)
        self._out_of_memory = self._out_of_memory or bool(_NO_MEMORY.search(line))
        if not _NOISE.match(line):
            self._last.append(line.strip()[:_LONGEST_LINE])

    def _explain_silence(self, subject: str, exit_code: int) -> FloodmarkError:
        why, do = self._explain_files()
        ended = _describe_exit(exit_code)
        last = f"Its last lines: {' | '.join(self._last)}." if self._last else ""
        if self._started or why or self._out_of_memory or _signal_of(exit_code):
            if self._out_of_memory:
                do = f"{do} {_MEMORY_HINT}".lstrip()
            # Lines of a job that has read rows may hold their values.
            return LoadKilledError(
                subject,
                f"the load ended without a result ({ended}). {why}".rstrip(),
                f"{do} Nothing is half-written; the next try does the same window.".lstrip(),
                " ".join(filter(None, (self._complaint, last))),
            )
        return LoadStartError(
            subject, f"Spark did not start the load ({ended}). {last or 'It printed nothing.'}", _START_HINT
        )

    def _explain_files(self) -> tuple[str, str]:
        return explain_ending(self._complaint, find_trouble(temporary_folders(os.environ)))


def start_failure(window_id: int, problem: Exception) -> LoadStartError:
    """Return the error of a load whose spark-submit could not even be run."""
    why = f"{problem.filename}: {problem.strerror}" if isinstance(problem, OSError) else str(problem)
    return LoadStartError(f"window {window_id}", f"spark-submit cannot be run: {why}.", _START_HINT)


def _signal_of(exit_code: int) -> signal.Signals | None:
    """Return the signal that ended the process. Shells and Java report that of a child as 128 + its number."""
    try:
        return signal.Signals(-exit_code if exit_code < 0 else exit_code - 128)
    except ValueError:
        return None


def _describe_exit(exit_code: int) -> str:
    ended_by = _signal_of(exit_code)
    return f"ended by {ended_by.name}" if ended_by else f"exit status {exit_code}"
