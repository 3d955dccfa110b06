"""The comparison with Debezium: what it fetches, what it refuses, and what it counts. No Debezium runs here."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.java_packages import why_not
from benchmarks.peers import __main__ as command
from benchmarks.peers import debezium_jars
from benchmarks.peers.compare import Figure, ratios
from benchmarks.peers.debezium import Debezium, as_properties, jdbc_sink
from benchmarks.peers.debezium_jars import (
    Installation,
    MissingPeerError,
    fetch_jars,
    find_java,
    missing_modules,
)
from floodmark.spark.launch.target import JAVA_VARIABLE
from floodmark_laptop.stack import EmulatorAddress

PASSWORD = "p:w=1"

FakeJava = Callable[[str], Path]


@pytest.fixture
def fake_java(tmp_path: Path) -> FakeJava:
    def make(body: str) -> Path:
        java = tmp_path / "jdk" / "bin" / "java"
        java.parent.mkdir(parents=True, exist_ok=True)
        java.write_text(f"#!{sys.executable}\nimport sys\nfrom pathlib import Path\n{body}\n", encoding="utf-8")
        java.chmod(0o755)
        return java

    return make


def test_missing_modules_are_those_that_java_does_not_list() -> None:
    listed = "java.base@17.0.1\njava.desktop@17.0.1\njava.management@17.0.1\njava.sql@17.0.1\n"
    assert missing_modules(listed) == ["java.naming", "jdk.compiler"]
    assert missing_modules(listed + "java.naming@17.0.1\njdk.compiler@17.0.1\n") == []


def test_java_without_a_compiler_is_refused_by_name(fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake_java("print('java.base@17\\njava.desktop@17\\njava.management@17\\njava.naming@17\\njava.sql@17')")
    monkeypatch.setattr(debezium_jars, "java_environment", lambda: {JAVA_VARIABLE: str(java.parents[1])})
    with pytest.raises(MissingPeerError) as refused:
        find_java()
    assert str(refused.value) == (
        f"{java} has no jdk.compiler, which Debezium needs; install a JDK of version 17 or later and name its folder"
        " in JAVA_HOME"
    )


def test_jars_are_fetched_once(fake_java: FakeJava, tmp_path: Path) -> None:
    pattern = "Path(sys.argv[sys.argv.index('-retrieve') + 1]).parent"
    java = fake_java(f"{pattern}.mkdir()\n({pattern} / 'one.jar').touch()")
    folder = fetch_jars(java, tmp_path / "build")
    assert [jar.name for jar in folder.iterdir()] == ["one.jar"]
    assert fetch_jars(fake_java("sys.exit(1)"), tmp_path / "build") == folder


def test_processes_that_want_the_same_jars_fetch_them_once(fake_java: FakeJava, tmp_path: Path) -> None:
    pattern = "Path(sys.argv[sys.argv.index('-retrieve') + 1]).parent"
    count = f"open({str(tmp_path / 'fetches')!r}, 'a').write('x')\nimport time\ntime.sleep(0.2)"
    java = fake_java(f"{count}\n{pattern}.mkdir()\n({pattern} / 'one.jar').touch()")
    with ThreadPoolExecutor() as pool:
        folders = list(pool.map(lambda _: fetch_jars(java, tmp_path / "build"), range(3)))
    assert len(set(folders)) == 1
    assert (tmp_path / "fetches").read_text() == "x"


def test_jars_that_cannot_be_fetched_end_in_one_message(fake_java: FakeJava, tmp_path: Path) -> None:
    java = fake_java("print('\\t:: io.debezium#debezium-embedded;3: not found')\nsys.exit(1)")
    with pytest.raises(MissingPeerError, match=r"debezium-embedded;3: not found; it needs Maven Central$"):
        fetch_jars(java, tmp_path / "build")
    assert list((tmp_path / "build").iterdir()) == []


def test_reason_is_the_last_line_where_nothing_is_named_as_not_found() -> None:
    assert why_not("resolving\nServer access error\n\n") == "Server access error"
    assert why_not("") == "Ivy gave no reason"


def test_command_ends_in_one_message_where_debezium_cannot_be_had(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> Installation:
        raise MissingPeerError("there is no Java")

    monkeypatch.setattr(command, "install", refuse)
    monkeypatch.setattr(sys, "argv", ["peers"])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == "bench-peers: there is no Java"
    assert capsys.readouterr().out == ""


def test_properties_escape_what_java_would_take_for_syntax() -> None:
    assert as_properties({"a b": "c:d=#e\\f!"}) == "a\\ b=c\\:d\\=\\#e\\\\f\\!\n"


def test_reader_passes_passwords_on_standard_input_only(fake_java: FakeJava, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    answer = 'print(\'{"events": 7, "first": 10.5, "last": 12.0}\')'
    java = fake_java(f"Path({str(seen)!r}).write_text(' '.join(sys.argv) + '|' + sys.stdin.read())\n{answer}")
    found = _reader(java, tmp_path).read(7, jdbc_sink(_warehouse(), "peers"))
    arguments, given = seen.read_text(encoding="utf-8").split("|")
    assert (found.events, found.seconds) == (7, 1.5)
    assert PASSWORD not in arguments
    assert "engine.database.password=p\\:w\\=1\n" in given
    assert "sink.connection.password=p\\:w\\=1\n" in given


def test_reader_refuses_another_number_of_changes(fake_java: FakeJava, tmp_path: Path) -> None:
    java = fake_java('print(\'{"events": 8, "first": 10.5, "last": 12.0}\')')
    with pytest.raises(RuntimeError, match="Debezium read 8 changes instead of 7"):
        _reader(java, tmp_path).read(7, {})


def test_reader_shows_the_log_of_a_failed_engine(fake_java: FakeJava, tmp_path: Path) -> None:
    java = fake_java("print('no login', file=sys.stderr)\nsys.exit(1)")
    with pytest.raises(RuntimeError, match="ended with 1:\nno login"):
        _reader(java, tmp_path).read(7, {})


def test_copied_reader_starts_where_the_first_one_stopped(tmp_path: Path) -> None:
    reader = _reader(tmp_path / "java", tmp_path)
    reader.folder.mkdir()
    (reader.folder / "offsets").write_text("10", encoding="utf-8")
    copied = reader.copy_to(tmp_path / "second")
    assert (copied.folder / "offsets").read_text(encoding="utf-8") == "10"
    assert copied.database == reader.database


def test_figure_has_the_rate_and_the_share_of_the_source() -> None:
    figure = Figure("reader", 1_000_000, 20.0, 3.21, 5.0)
    assert figure.row() == ("reader", "20.0", "50,000", "3.2", "5.0 (25 %)")


def test_ratios_are_given_with_and_without_the_time_of_the_source() -> None:
    floodmark, bare, full = (
        Figure("reader", 100, *times) for times in ((10.0, 1.0, 2.0), (60.0, 1.0, 9.0), (90.0, 1.0, 50.0))
    )
    assert [row[1] for row in ratios(8, floodmark, bare, full)] == ["**9.0**", "6.0", "8.3", "4.6"]
    parallel = Figure("reader", 100, 90.0, 1.0, 95.0)
    assert [row[1] for row in ratios(8, floodmark, bare, parallel)] == ["**9.0**", "6.0", "8.3"]


def _reader(java: Path, folder: Path) -> Debezium:
    source = EmulatorAddress("127.0.0.1", 1433, "sa", PASSWORD)
    return Debezium(Installation(java, folder / "jars"), source, "Shop", folder / "state")


def _warehouse() -> dict[str, object]:
    return {"host": "127.0.0.1", "port": 5432, "database": "warehouse", "user": "floodmark", "password": PASSWORD}
