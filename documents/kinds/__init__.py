"""The kinds of sources as the page of verdicts shows them: one module for each kind of the registry."""

from importlib import import_module

from documents.situations import Kind
from floodmark.sources import kind as registry

KINDS: tuple[Kind, ...] = tuple(import_module(f"documents.kinds.{name}").KIND for name in registry.KINDS)
