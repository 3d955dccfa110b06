"""The language rules that a program can check, held by the sources and the tests of all distributions.

Identifiers and prose use the terms of the field, a docstring begins with a full sentence, and one public name has one
meaning. The numbers below are ceilings for what is left. They only ever shrink: lower a number when a package improves,
and remove it at zero.
"""

import ast
import io
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

import pytest

REPOSITORY = Path(__file__).parents[2]

ROOTS = {
    "emulator/src/sqlserver_emulator": "emulator",
    "compact_tracking/src/compact_tracking": "compact_tracking",
    "tests": "tests",
    "emulator/tests": "emulator tests",
    "compact_tracking/tests": "compact_tracking tests",
}
"""The folders next to Floodmark's sources that keep the rules, each one package here. They share no names with it."""

FLOODMARK = "src/floodmark"
"""The folder of Floodmark's sources. Each folder in it is a package."""

EXEMPT = "tests/unit/test_language.py"
"""This file, which has the words as data."""

NAME_WORDS = frozenset(
    {
        "tell",
        "tells",
        "told",
        "look",
        "looked",
        "looks",
        "sighting",
        "desk",
        "mend",
        "mended",
        "anew",
        "bury",
        "buried",
        "twin",
        "twins",
        "stands",
        "whoever",
        "somebody",
        "harvested",
        "beside",
    }
)
"""Words that no identifier contains."""

MAY_HAVE_NAMES = re.compile("|".join(sorted(NAME_WORDS)), re.IGNORECASE)
"""A module without any of these words needs no parsing to be found clean."""

PROSE = re.compile(
    r"\b(?:tells?|told|telling|look(?:s|ed|ing)?|sightings?|desks?|mend(?:s|ed|ing)?|anew|bur(?:y|ied|ies)|twins?"
    r"|stands|whoever|somebody|harvest(?:s|ed|ing)?|beside|has\s+no\s+more|(?:go|goes|going|gone)\s+over)\b",
    re.IGNORECASE,
)
"""Words that no comment, docstring or message contains."""

SUMMARY_STARTS = frozenset({"Of", "By", "As", "What", "Those", "They"})
"""First words with which no docstring begins."""

MAY_HAVE_SUMMARIES = re.compile(rf"[\"'][\s\\]*(?:{'|'.join(sorted(SUMMARY_STARTS))})\b")
"""A module without a string that begins so needs no parsing to be found clean."""

NAMES_LEFT: Mapping[str, int] = {}
"""The identifiers with such a word, by package; a package that is not listed has none."""

SUMMARIES_LEFT: Mapping[str, int] = {}
"""Docstrings that begin with such a word, by package."""

PROSE_LEFT: Mapping[str, int] = {
    # doctor's key in JSON, the earlier name of in_parallel, and the key of notes: what users have stored.
    "cli": 1,
    "core": 2,
    # A message of SQL Server's own.
    "emulator": 1,
    "orchestration": 2,
    # The earlier name of in_parallel, which configurations may still have.
    "tests": 1,
}
"""Such words in prose, by package."""

SHARED_NAMES: Mapping[str, str] = {
    "by_sqlstate": "each adapter's map from SQLSTATE to the error tree",
    "explained": "each edge's translation of errors for its users",
    "keep_capture": "the use case, and the step that it calls",
    "keep_retention": "the use case, and the step that it calls",
    "main": "the entry point of each program",
    "open_app": "each edge's way to the same context",
    "read_sql": "each adapter's access to the SQL files of its package",
}
"""Public names that several packages may define, with the reason."""


class Hit(NamedTuple):
    """A place in a source that breaks a rule."""

    package: str
    place: str
    word: str

    def __str__(self) -> str:
        return f"{self.place}: {self.word}"


@dataclass(frozen=True)
class Source:
    """A module, parsed only when a rule needs its tree."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def package(self) -> str:
        """The folder below ``floodmark``, "" for a module that is in none; for others, the name in ``ROOTS``."""
        for root, package in ROOTS.items():
            if self.path.startswith(f"{root}/"):
                return package
        folders = self.path.split("/")
        return folders[2] if len(folders) > 3 else ""

    def hit(self, line: int, word: str) -> Hit:
        return Hit(self.package, f"{self.path}:{line}", word)


@cache
def read_sources() -> tuple[Source, ...]:
    found = (path for root in (FLOODMARK, *ROOTS) for path in (REPOSITORY / root).rglob("*.py"))
    paths = sorted(path.relative_to(REPOSITORY).as_posix() for path in found)
    return tuple(Source(path, (REPOSITORY / path).read_text(encoding="utf-8")) for path in paths if path != EXEMPT)


def split_name(name: str) -> list[str]:
    """Return the words of a snake_case or CamelCase name, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def list_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield every name that a module introduces: definitions, parameters, assignments, attributes, imports."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr
            case ast.alias():
                yield node.lineno, node.asname or node.name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield node.lineno, name


def find_names(source: Source) -> Iterator[Hit]:
    for line, name in list_names(source.tree) if MAY_HAVE_NAMES.search(source.text) else ():
        for word in NAME_WORDS.intersection(split_name(name)):
            yield source.hit(line, f"{word} in the name {name}")
    for word in NAME_WORDS.intersection(split_name(source.path.removesuffix(".py"))):
        yield source.hit(1, f"{word} in the name of the module")


def find_summaries(source: Source) -> Iterator[Hit]:
    for node in ast.walk(source.tree) if MAY_HAVE_SUMMARIES.search(source.text) else ():
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            words = (ast.get_docstring(node) or "").split(maxsplit=1)
            if words and words[0].rstrip(",.:;") in SUMMARY_STARTS:
                yield source.hit(node.body[0].lineno, f"the docstring begins with {words[0]}")


def find_prose(source: Source) -> Iterator[Hit]:
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline) if PROSE.search(source.text) else ():
        # Python 3.12 and later split f-strings into tokens of their own.
        if tokenize.tok_name[token.type] in ("COMMENT", "STRING", "FSTRING_MIDDLE"):
            for found in PROSE.finditer(token.string):
                line = token.start[0] + token.string.count("\n", 0, found.start())
                yield source.hit(line, " ".join(found[0].split()))


def find_shared_names(sources: tuple[Source, ...]) -> Iterator[str]:
    places: dict[str, list[Hit]] = defaultdict(list)
    for source in sources:
        for node in source.tree.body:
            match node:
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    if not name.startswith("_"):
                        places[name].append(source.hit(node.lineno, name))
    for name, hits in sorted(places.items()):
        if len({hit.package for hit in hits}) > 1 and name not in SHARED_NAMES:
            yield "; ".join(map(str, hits))


def list_excess(hits: list[Hit], ceilings: Mapping[str, int]) -> list[str]:
    """Return all places in the packages that have more of them than their ceiling allows."""
    counts = Counter(hit.package for hit in hits)
    return [str(hit) for hit in hits if counts[hit.package] > ceilings.get(hit.package, 0)]


def test_no_identifier_has_an_everyday_word() -> None:
    hits = [hit for source in read_sources() for hit in find_names(source)]
    assert not list_excess(hits, NAMES_LEFT), "\n".join(list_excess(hits, NAMES_LEFT))


def test_no_docstring_begins_in_the_middle_of_a_sentence() -> None:
    hits = [hit for source in read_sources() for hit in find_summaries(source)]
    assert not list_excess(hits, SUMMARIES_LEFT), "\n".join(list_excess(hits, SUMMARIES_LEFT))


def test_one_public_name_has_one_meaning() -> None:
    floodmark = tuple(source for source in read_sources() if source.path.startswith(f"{FLOODMARK}/"))
    problems = list(find_shared_names(floodmark))
    assert not problems, "\n".join(problems)


def test_prose_uses_the_terms_of_the_field() -> None:
    hits = [hit for source in read_sources() for hit in find_prose(source)]
    assert not list_excess(hits, PROSE_LEFT), "\n".join(list_excess(hits, PROSE_LEFT))


@pytest.mark.parametrize(
    ("path", "package"),
    [
        ("src/floodmark/core/window/x.py", "core"),
        ("src/floodmark/x.py", ""),
        ("emulator/src/sqlserver_emulator/tds/x.py", "emulator"),
        ("compact_tracking/src/compact_tracking/x.py", "compact_tracking"),
        ("tests/story/x.py", "tests"),
        ("emulator/tests/unit/tds/x.py", "emulator tests"),
        ("compact_tracking/tests/unit/x.py", "compact_tracking tests"),
    ],
)
def test_a_source_belongs_to_one_package(path: str, package: str) -> None:
    assert Source(path, "").package == package


def test_sources_of_every_package_but_this_file_are_read() -> None:
    read = read_sources()
    assert {*ROOTS.values(), "core", "cli"} <= {source.package for source in read}
    assert EXEMPT not in {source.path for source in read}
    assert (REPOSITORY / EXEMPT).samefile(__file__)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def tell_gaps(): ...", "tell in the name tell_gaps"),
        ("class AlertDesk: ...", "desk in the name AlertDesk"),
        ("def f(toldAt): ...", "told in the name toldAt"),
        ("_LOOKS = 1", "looks in the name _LOOKS"),
        ("self.anew = 1", "anew in the name anew"),
        ("import x as twin", "twin in the name twin"),
        ("def retell(lookup, standstill): ...", ""),
    ],
)
def test_a_word_in_an_identifier_is_found(text: str, found: str) -> None:
    assert [hit.word for hit in find_names(Source("src/floodmark/core/x.py", text))] == ([found] if found else [])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"""What it is."""', "the docstring begins with What"),
        ('class X:\n    """Of one source."""', "the docstring begins with Of"),
        ('def f():\n    """By table."""', "the docstring begins with By"),
        ('def f():\n    """Whatever is passed."""', ""),
        ('X = 1\n"""Of a field."""', ""),
    ],
)
def test_a_docstring_that_begins_in_the_middle_is_found(text: str, found: str) -> None:
    assert [hit.word for hit in find_summaries(Source("src/floodmark/core/x.py", text))] == ([found] if found else [])


def test_a_word_in_prose_is_found_with_its_line() -> None:
    text = 'x = 1  # load anew\ny = f"somebody {x} told"\n"""\nThe row goes\n  over."""\nz = "lookup"\n'
    hits = [str(hit) for hit in find_prose(Source("src/floodmark/core/x.py", text))]
    place = "src/floodmark/core/x.py"
    assert hits == [f"{place}:1: anew", f"{place}:2: somebody", f"{place}:2: told", f"{place}:4: goes over"]


def test_a_public_name_of_two_packages_is_found() -> None:
    one, other, private = (
        Source("src/floodmark/core/x.py", "def quote(): ..."),
        Source("src/floodmark/cli/y.py", "class quote: ...\ndef main(): ..."),
        Source("src/floodmark/app/z.py", "def _quote(): ...\ndef main(): ..."),
    )
    assert list(find_shared_names((one, private))) == []
    assert list(find_shared_names((one, other, private))) == [
        "src/floodmark/core/x.py:1: quote; src/floodmark/cli/y.py:1: quote"
    ]


def test_a_package_above_its_ceiling_is_listed() -> None:
    hit, other = Hit("core", "src/floodmark/core/x.py:1", "anew"), Hit("cli", "src/floodmark/cli/y.py:2", "told")
    assert list_excess([hit, other], {"core": 1, "cli": 1}) == []
    assert list_excess([hit, other], {"cli": 1}) == ["src/floodmark/core/x.py:1: anew"]
    assert list_excess([hit, other, hit], {"core": 1, "cli": 1}) == ["src/floodmark/core/x.py:1: anew"] * 2
