import pytest

from floodmark.sync.rules import bind_rule, columns_of

COLUMNS = ["Amount", "Status", "Disc%"]


@pytest.mark.parametrize(
    ("rule", "bound"),
    [
        ("Amount >= 0", '"Amount" >= 0'),
        ("amount >= 0 and STATUS in ('a', 'b')", "\"Amount\" >= 0 AND \"Status\" IN ('a', 'b')"),
        ('"disc%" is not null', '"Disc%" IS NOT NULL'),
        ("status ~ '^a'", "\"Status\" ~ '^a'"),
        ("amount between 0 and 1", '"Amount" BETWEEN 0 AND 1'),
    ],
)
def test_rule_is_bound_to_the_columns_as_the_target_spells_them(rule: str, bound: str) -> None:
    assert bind_rule(rule, COLUMNS).sql(dialect="postgres") == bound


@pytest.mark.parametrize("columns", [("ID", "Id", "id"), ("id", "Id", "ID")])
@pytest.mark.parametrize("name", ["ID", "Id", "id"])
def test_rule_means_the_column_that_it_spells_where_others_differ_in_case(columns: tuple[str, ...], name: str) -> None:
    assert bind_rule(f'"{name}" > 0', columns).sql(dialect="postgres") == f'"{name}" > 0'


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("Amount >=", "incomplete"),
        ("", "incomplete"),
        ("1=1; DROP TABLE x", "not one condition"),
        ("Amount > 0 ORDER BY 1", "not one condition"),
        ("Amount > 0 UNION SELECT 1", "not one condition"),
        ("Amount > 0) OR (true", "not a condition"),
        ("Amount > (SELECT 1)", "subquery"),
        ("count(*) > 1", "aggregates"),
        ("sum(Amount) > 1", "aggregates"),
        ("Amount > $1", "parameters"),
        ("Amont > 0", "there is no column Amont"),
        ("t.Amount > 0", "there is no column t.Amount"),
    ],
)
def test_rule_that_is_not_one_condition_on_a_row_is_refused(rule: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        bind_rule(rule, COLUMNS)


def test_columns_of_a_rule_are_those_that_it_reads() -> None:
    assert columns_of(bind_rule("amount > 0 or status = 'free'", COLUMNS)) == {"Amount", "Status"}
