from dataclasses import replace

import pytest
import sqlglot
from sqlglot import exp

from floodmark.core.schema import TableName
from floodmark.core.settings import Deletes
from floodmark.postgres.warehouse.merge import Merge, build_merge

MERGE = Merge(
    target=TableName("shop", 'or"ders'),
    staging=TableName("floodmark_staging", "w7_1_0"),
    key=("Id", "Line"),
    columns=("Id", "Line", "Amount", "Notes"),
    optional=("Notes",),
    deletes=Deletes.SOFT,
    window_id=7,
)


def variant(deletes: Deletes = Deletes.SOFT, *, tombstones: bool = False, in_order: bool = False) -> Merge:
    return Merge(
        MERGE.target, MERGE.staging, MERGE.key, MERGE.columns, MERGE.optional, deletes, 7, tombstones, in_order
    )


@pytest.mark.parametrize("dialect", ["postgres", "spark"])
@pytest.mark.parametrize("deletes", Deletes)
def test_merge_reads_back_as_the_same_tree_in_every_engines_sql(dialect: str, deletes: Deletes) -> None:
    text = build_merge(variant(deletes)).sql(dialect=dialect)
    again = sqlglot.parse_one(text, dialect=dialect)
    assert isinstance(again, exp.Merge)
    assert again.sql(dialect=dialect) == text


def test_spark_merge_is_written_in_its_own_quotes() -> None:
    text = build_merge(variant()).sql(dialect="spark")
    assert text.startswith('MERGE INTO `shop`.`or"ders` AS t USING `floodmark_staging`.`w7_1_0` AS s ON ')
    assert "CASE WHEN `s`.`__keep_Notes` THEN `t`.`Notes` ELSE `s`.`Notes` END" in text


def test_soft_delete_updates_and_hard_delete_removes() -> None:
    soft, hard = (build_merge(variant(deletes)).sql(dialect="postgres") for deletes in Deletes)
    assert "THEN DELETE" not in soft
    assert 'WHEN MATCHED AND 1 = "s"."__op" AND "s"."__lsn" >= "t"."__lsn" THEN DELETE' in hard
    assert 'WHEN NOT MATCHED AND NOT 1 = "s"."__op" THEN INSERT' in hard


def test_set_targets_are_not_qualified() -> None:
    text = build_merge(variant()).sql(dialect="postgres")
    assert 'UPDATE SET "Amount" = "s"."Amount", "Notes" = CASE' in text


@pytest.mark.parametrize("name", ["s", "t", "d"])
def test_columns_keep_their_table_where_the_target_has_the_name_of_an_alias(name: str) -> None:
    usual, named = (
        build_merge(replace(variant(Deletes.HARD), target=TableName("shop", each))).sql(dialect="postgres")
        for each in ("orders", name)
    )
    assert named == usual.replace('"orders"', f'"{name}"')


def test_key_columns_are_inserted_and_never_updated() -> None:
    text = build_merge(variant()).sql(dialect="postgres")
    assert 'SET "Id"' not in text
    assert 'INSERT ("Id", "Line", "Amount", "Notes", "__lsn"' in text


def test_tombstones_are_asked_for_only_where_there_are_any() -> None:
    assert "tombstones" not in build_merge(variant()).sql(dialect="postgres")
    text = build_merge(variant(tombstones=True)).sql(dialect="postgres")
    assert '"d"."key" = JSONB_BUILD_ARRAY("s"."Id", "s"."Line")' in text
    assert '("d"."lsn" IS NULL OR "s"."__lsn" >= "d"."lsn")' in text


def test_staged_rows_are_sorted_by_key_on_request() -> None:
    assert 'ORDER BY "s"."Id", "s"."Line") AS s' in build_merge(variant(in_order=True)).sql(dialect="postgres")
