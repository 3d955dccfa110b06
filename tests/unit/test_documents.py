"""Every document that the repository refers to exists, with the headings, anchors and decisions that are named."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SUFFIXES = {".cfg", ".json", ".md", ".mjs", ".py", ".sh", ".sql", ".toml", ".yaml", ".yml", ""}
MADE_BY_TESTS = {"build/conformance.md", "emulator/build/conformance.md"}
SKIPPED = {".git", "__pycache__", "build", "corpus", "dist", "found", "node_modules"}
KEPT_HIDDEN = {".ci", ".devcontainer", ".github"}

_DOCUMENT = re.compile(
    r"(?<![\w./:*-])(?<!/ \")(?P<path>(?:(?:[\w-]+|\.{1,2}|\.github)/)*[\w-]+\.md|README(?=,? \\?\"))\b"
    r"(?:\#(?P<anchor>[\w-]+))?"
    r"(?P<headings>(?:(?:,| and|, and| to) \\?\"[^\"\\]+\\?\")*)"
)
_DECISION = re.compile(r"\b(?:ADR |adr |docs/adr/)(\d+)\b")
_LINE_END = re.compile(r"\s*\n\s*(?:(?:#|--|//|\*) )?\s*")


def _folders(root: Path) -> Iterator[tuple[Path, list[str]]]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(
            name for name in folders if name not in SKIPPED and (not name.startswith(".") or name in KEPT_HIDDEN)
        )
        yield Path(folder), sorted(names)


@cache
def texts(root: Path) -> list[tuple[Path, str]]:
    """Return each text file of the repository, with its text on one line."""
    return [
        (path, _LINE_END.sub(" ", path.read_text(encoding="utf-8", errors="replace")))
        for folder, names in _folders(root)
        for path in (folder / name for name in names)
        if path.suffix in SUFFIXES and path.is_file()
    ]


@cache
def headings(document: Path) -> list[str]:
    """Return the headings of a Markdown document, without those in its blocks of code."""
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"^#+ (.+?)\s*$", text, flags=re.MULTILINE)


def anchor(heading: str) -> str:
    """Return the anchor that GitHub makes of a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _places(root: Path, citing: Path, name: str) -> list[Path]:
    """A distribution's own documents come before those of the repository; documents/ writes into two folders."""
    own = [root / "emulator" / name] if citing.is_relative_to(root / "emulator") else []
    if citing.is_relative_to(root / "documents"):
        own = [root / "docs" / "reference" / name, root / "emulator" / "docs" / name]
    return [citing.parent / name, *own, root / name]


def broken(root: Path, citing: Path, text: str) -> Iterator[str]:
    """Yield each reference in a text to a document, heading, anchor or decision that does not exist."""
    for match in _DOCUMENT.finditer(text):
        name = match["path"] if match["path"].endswith(".md") else match["path"] + ".md"
        if name in MADE_BY_TESTS:
            continue
        document = next((path for path in _places(root, citing, name) if path.is_file()), None)
        if document is None:
            yield name
            continue
        found = headings(document)
        if match["anchor"] and match["anchor"] not in {anchor(heading) for heading in found}:
            yield f"{name}#{match['anchor']}"
        for heading in re.findall(r"\"([^\"\\]+)\\?\"", match["headings"]):
            if heading not in found:
                yield f'{name}, "{heading}"'
    for number in _DECISION.findall(text):
        if not any((root / "docs" / "adr").glob(f"{int(number):04d}-*.md")):
            yield f"ADR {number}"


def test_every_reference_to_a_document_leads_somewhere() -> None:
    lost = [
        f"{path.relative_to(REPOSITORY)}: {reference}"
        for path, text in texts(REPOSITORY)
        if path != Path(__file__).resolve()
        for reference in broken(REPOSITORY, path, text)
    ]
    assert lost == []


@pytest.mark.parametrize(
    ("text", "references"),
    [
        ("see docs/there.md", []),
        ("see docs/gone.md", ["docs/gone.md"]),
        ("[a](docs/there.md#its-heading) [b](docs/there.md#other)", ["docs/there.md#other"]),
        ('docs/there.md, "Its heading" and "Other"', ['docs/there.md, "Other"']),
        ('docs/there.md,\n    # "Its\n    # heading", "No\n    # such"', ['docs/there.md, "No such"']),
        ("'(docs/there.md, \\\"Other\\\")'", ['docs/there.md, "Other"']),
        ('docs/there.md, "In code"', ['docs/there.md, "In code"']),
        ("https://example.org/docs/gone.md", []),
        ("ADR 7 and ADR 8, docs/adr/0009", ["ADR 8", "ADR 0009"]),
    ],
)
def test_a_reference_that_leads_nowhere_is_found(tmp_path: Path, text: str, references: list[str]) -> None:
    (tmp_path / "docs" / "adr").mkdir(parents=True)
    (tmp_path / "docs" / "there.md").write_text("# There\n\n## Its heading\n\n```\n# In code\n```\n", encoding="utf-8")
    (tmp_path / "docs" / "adr" / "0007-a-decision.md").touch()
    (tmp_path / "module.py").write_text(text, encoding="utf-8")
    found = {path.name: list(broken(tmp_path, path, read)) for path, read in texts(tmp_path)}
    assert found["module.py"] == references


def test_every_document_is_referred_to() -> None:
    """A page that nothing links to is not found by a reader."""
    cited = {
        path.resolve()
        for citing, text in texts(REPOSITORY)
        for match in _DOCUMENT.finditer(text)
        for path in _places(REPOSITORY, citing, match["path"])
        if path.resolve() != citing
    }
    pages = {path for path, _ in texts(REPOSITORY) if path.match("docs/*.md") or path.match("docs/reference/*.md")}
    assert sorted(page.relative_to(REPOSITORY).as_posix() for page in pages - cited) == []


OF_OTHER_PROGRAMS = {"start-connect-server.sh"}
_SOURCE_FILE = re.compile(r"`((?:[\w.-]+/)*[\w-]+\.(?:py|sql|sh|toml))`")


def missing_files(markdown: str, files: Collection[str]) -> list[str]:
    """Return the source files that a document names by the end of their path and that do not exist."""
    return [
        name
        for name in _SOURCE_FILE.findall(markdown)
        if name not in OF_OTHER_PROGRAMS and not any(f"/{file}".endswith(f"/{name.lstrip('./')}") for file in files)
    ]


def test_each_source_file_that_a_document_names_exists() -> None:
    """The changelog keeps the names of its time."""
    files = [path.relative_to(REPOSITORY).as_posix() for path, _ in texts(REPOSITORY)]
    missing = {
        path.relative_to(REPOSITORY).as_posix(): found
        for path, text in texts(REPOSITORY)
        if path.suffix == ".md" and path.name != "CHANGELOG.md" and (found := missing_files(text, files))
    }
    assert missing == {}


def test_source_file_that_does_not_exist_is_found() -> None:
    files = ["src/floodmark/core/plan.py", "bin/setup.sh"]
    assert missing_files("`core/plan.py`, `plan.py`, `../bin/setup.sh`, `x.md`", files) == []
    assert missing_files("`plan/plan.py`, `lan.py` and `setup.sql`", files) == ["plan/plan.py", "lan.py", "setup.sql"]


MAX_WORDS = 25
_WORD = re.compile(r"\S*\w\S*")


def long_cells(markdown: str) -> list[str]:
    """Return the first words of each table cell that has more than ``MAX_WORDS``."""
    text = re.sub(r"^```.*?^```", "", markdown, flags=re.DOTALL | re.MULTILINE)
    rows = re.findall(r"^\|(.*)\|$", text, flags=re.MULTILINE)
    cells = [_WORD.findall(cell) for row in rows for cell in re.split(r"(?<!\\)\|", row)]
    return [" ".join(words[:6]) for words in cells if len(words) > MAX_WORDS]


def test_cells_of_tables_are_short() -> None:
    """A table is for values; sentences about them come after it, as a list."""
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")]
    found = {
        page.relative_to(REPOSITORY).as_posix(): cells
        for page in pages
        if (cells := long_cells(page.read_text(encoding="utf-8")))
    }
    assert found == {}


def test_cell_that_is_long_is_found() -> None:
    many = " ".join(["word"] * MAX_WORDS)
    assert long_cells(f"| a | {many} \u00b7 |\n") == []
    assert long_cells(f"| a | {many} more |\n") == ["word word word word word word"]
    assert long_cells(f"| a \\| {many} | b |\n") == ["a word word word word word"]
    assert long_cells(f"```\n| {many} more |\n```\n") == []


COMMANDS = REPOSITORY / "docs" / "reference" / "commands.md"
_SECTION = re.compile(r"^#+ `floodmark ?([^`]*)`\n(.*?)(?=^#+ `floodmark|\Z)", re.DOTALL | re.MULTILINE)
_SHOWN_COMMAND = re.compile(r"(?:(?<=`)|(?<=bin/)|(?<=\$ ))floodmark ([a-z][\w-]*(?: [^`\n#]*)?)")


def commands_of(reference: str) -> dict[str, set[str]]:
    """Return the options of each command, as the generated page has them."""
    return {name: set(re.findall(r"`(--[\w-]+)", section)) for name, section in _SECTION.findall(reference)}


def unknown_to(commands: dict[str, set[str]], markdown: str) -> Iterator[str]:
    """Yield each command and option that a document shows and the program does not have."""
    for shown in _SHOWN_COMMAND.findall(markdown):
        words = shown.split()
        name = next((each for each in (" ".join(words[:2]), words[0]) if each in commands), None)
        is_group = any(each.startswith(f"{name} ") for each in commands)
        if name is None or (is_group and len(words) > 1 and not words[1].startswith("-")):
            yield f"floodmark {shown}"
            continue
        options = {word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)}
        yield from (f"floodmark {name} {option}" for option in sorted(options - commands[name]))


def test_each_command_that_a_document_shows_exists() -> None:
    """Decisions and the changelog are left out: they keep the names of their time."""
    commands = commands_of(COMMANDS.read_text(encoding="utf-8"))
    documents = [path for folder, names in _folders(REPOSITORY) for path in (folder / name for name in names)]
    documents = [path for path in documents if path.suffix == ".md" and path.parent.name != "adr"]
    unknown = {
        path.relative_to(REPOSITORY).as_posix(): found
        for path in documents
        if path != COMMANDS and path.name != "CHANGELOG.md"
        if (found := list(unknown_to(commands, path.read_text(encoding="utf-8"))))
    }
    assert unknown == {}


@pytest.mark.parametrize(
    ("markdown", "unknown"),
    [
        ("`floodmark run shop --config x.yaml`, `floodmark drift list`, `floodmark drift`", []),
        ("$ .venv/bin/floodmark drift list --all  # --here\n", ["floodmark drift list --all"]),
        ("`floodmark gone`", ["floodmark gone"]),
        ("`floodmark drift gone 1`", ["floodmark drift gone 1"]),
        ("$ floodmark run shop --other=1\n", ["floodmark run --other"]),
    ],
)
def test_command_that_the_program_does_not_have_is_found(markdown: str, unknown: list[str]) -> None:
    run = "# Command line\n\n## `floodmark run`\n\n* `--config <path>`: x\n\n"
    reference = f"{run}## `floodmark drift`\n\n### `floodmark drift list`\n"
    assert list(unknown_to(commands_of(reference), markdown)) == unknown


@pytest.mark.parametrize(("folder", "files"), [("include/sql", "source/*.sql"), ("spark_jobs", "*.py")])
def test_readme_of_a_folder_names_each_of_its_files_once(folder: str, files: str) -> None:
    text = (REPOSITORY / folder / "README.md").read_text(encoding="utf-8")
    table = " ".join(line for line in text.splitlines() if line.startswith("|"))
    named = re.findall(r"`((?!floodmark|make)[a-z_]+)(?:\.py)?`", table)
    settings = {"capture", "retention", "heartbeat", "load"}
    found = sorted(path.stem for path in (REPOSITORY / folder).glob(files))
    assert sorted(set(named) - settings) == found
    assert all(named.count(name) == 1 for name in found)
