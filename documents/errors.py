"""The page of the errors: who must act, and whether Floodmark tries again by itself."""

from __future__ import annotations

import inspect
import re

from documents.source_text import as_markdown, table
from floodmark.core import errors


def errors_page() -> str:
    """Return the page."""
    classes = [
        each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, errors.FloodmarkError)
    ]
    classes.sort(key=lambda each: inspect.getsourcelines(each)[1])
    rows = [
        [f"`{each.__name__}`", acts(each), "yes" if each.retryable else "no", as_markdown(each.__doc__ or "")]
        for each in classes[1:]
    ]
    return (
        "\n".join(
            [
                "# Errors",
                "",
                "Every error that Floodmark raises, by who must act. A message starts with the table or the pipeline,",
                "says what happened, and ends with what to do. An error that is tried again is retried by Airflow, and",
                "ends the command with status 75.",
                "",
                *table(["error", "who acts", "tried again", "meaning"], rows),
            ]
        ).rstrip()
        + "\n"
    )


def acts(error: type[errors.FloodmarkError]) -> str:
    """Return who acts, from the tree in the docstring of the module: the topmost class has it."""
    top = error.__mro__[error.__mro__.index(errors.FloodmarkError) - 1]
    found = re.search(rf"^[├└]── {top.__name__} +(.+)$", errors.__doc__ or "", flags=re.MULTILINE)
    if not found:
        raise LookupError(f"{top.__name__} is not in the tree of floodmark.core.errors")
    return found[1]
