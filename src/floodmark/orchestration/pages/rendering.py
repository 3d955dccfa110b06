"""HTML from the templates. Each value is escaped."""

from __future__ import annotations

from functools import cache
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined


@cache
def _environment() -> Environment:
    loader = PackageLoader("floodmark.orchestration.pages")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    # Jinja's own filter leaves "/", which a name may have.
    made.filters["quoted"] = lambda name: quote(name, safe="")
    return made


def render(template: str, **values: Any) -> str:
    """Return the page. A value that the template uses and that is not given is an error."""
    return _environment().get_template(template).render(values)
