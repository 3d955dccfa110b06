"""GROUP BY: its items, its grouping sets, and strings grouped without regard to blanks at their end."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from sqlserver_emulator.engine.translate.expressions.comparisons import has_blanks_at_end, padded
from sqlserver_emulator.engine.translate.expressions.expression_translator import ExpressionTranslator


@dataclass(slots=True)
class GroupKeys:
    """Translates the items of GROUP BY; ``texts``: the strings that are grouped without the blanks at their end."""

    expressions: ExpressionTranslator
    ignores_blanks: bool
    texts: set[str] = field(default_factory=set)

    def sql(self, node: exp.Expression) -> str:
        value = self.expressions.value(node)
        if not self.ignores_blanks or value.constant or not has_blanks_at_end(value):
            # Only strings with a varying length need the padded form; constants are no keys.
            return value.sql
        self.texts.add(value.sql)
        return padded(value)


def grouping(group: exp.Group, keys: GroupKeys) -> str:
    """` GROUP BY …`, also WITH ROLLUP and WITH CUBE."""
    items = [_grouping_item(keys, item) for item in group.expressions]
    for key in ("rollup", "cube"):
        if any(not item.expressions for item in group.args.get(key) or []):
            # The older form applies to all items at once.
            return f" GROUP BY {key.upper()} ({', '.join(items)})"  # GROUP BY … WITH ROLLUP
    for key in ("rollup", "cube", "grouping_sets"):
        items += [_grouping_item(keys, item) for item in group.args.get(key) or []]
    return f" GROUP BY {', '.join(items)}"


def _grouping_item(expressions: GroupKeys, item: exp.Expression) -> str:
    if isinstance(item, (exp.Rollup, exp.Cube)):
        inner = ", ".join(expressions.sql(part) for part in item.expressions)
        return f"{type(item).__name__.upper()} ({inner})"
    if isinstance(item, exp.GroupingSets):
        return f"GROUPING SETS ({', '.join(_grouping_item(expressions, part) for part in item.expressions)})"
    if isinstance(item, exp.Tuple):
        return f"({', '.join(expressions.sql(part) for part in item.expressions)})"
    return expressions.sql(item)
