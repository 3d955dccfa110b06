from dataclasses import replace
from typing import Any

import pytest

from floodmark.core.definition import NAMING_KEY
from floodmark.core.errors import (
    ConfigError,
    NoKeyError,
    SourcePermissionError,
    WindowExpiredError,
)
from floodmark.core.plan import LoadKind, TablePlan
from floodmark.core.planning import (
    PLANNED,
    AdvanceQuiet,
    Decision,
    Fail,
    Open,
    Skip,
    classify_tables,
    decide,
    pinned_feeds,
    plan_reload,
    plan_table,
    plan_tables,
)
from floodmark.core.position import Interval, NoPosition
from floodmark.core.schema import MappedColumn, SourceColumn, TableName
from floodmark.core.settings import KeySpelling, Naming, NetSource, PipelineSettings, SecurityFiltered, TemporalPolicy
from floodmark.core.snapshot import SourceSnapshot, TableState, Verdict
from lsns import lsn
from source_snapshots import ITEMS, NOON, ORDERS, instance, settings, snapshot, state, table_seen


def decided(pipeline: PipelineSettings, source: SourceSnapshot, *states: TableState) -> Decision:
    known = {state.source: state for state in states}
    validities = classify_tables(pipeline, source, known)
    ready = {validity.table for validity in validities if validity.verdict in PLANNED}
    seen = {table.table: table for table in source.tables}
    plans = {
        table.source: plan_table(table, seen[table.source], source, known.get(table.source))
        for table in pipeline.tables
        if table.source in ready
    }
    return decide(pipeline, source, known, validities, plans)


def test_all_tables_of_a_window_end_at_the_same_lsn() -> None:
    source = snapshot(table_seen(ORDERS), table_seen(ITEMS))
    window = decided(settings(ORDERS, ITEMS), source, state(50), state(70, ITEMS))
    assert isinstance(window, Open)
    assert (window.to, window.to_at) == (lsn(100), NOON)
    assert [table.interval for table in window.tables] == [Interval(lsn(50), lsn(100)), Interval(lsn(70), lsn(100))]
    assert [table.watermark for table in window.tables] == [lsn(50), lsn(70)]


def test_table_without_a_watermark_gets_its_first_load_in_the_window_of_the_others() -> None:
    source = snapshot(table_seen(ORDERS), table_seen(ITEMS))
    window = decided(settings(ORDERS, ITEMS), source, state(50))
    assert isinstance(window, Open)
    assert [table.kind for table in window.tables] == [LoadKind.CHANGES, LoadKind.FIRST_LOAD]
    assert (window.tables[1].interval, window.tables[1].watermark) == (None, None)


def test_new_table_waits_for_its_harvest_and_the_others_go_on() -> None:
    source = snapshot(table_seen(ORDERS), table_seen(ITEMS, oldest=NoPosition.NULL))
    window = decided(settings(ORDERS, ITEMS), source, state(50))
    assert isinstance(window, Open)
    assert [table.source for table in window.tables] == [ORDERS]


def test_run_is_skipped_when_every_table_is_caught_up() -> None:
    assert decided(settings(ORDERS), snapshot(table_seen()), state(100)) == Skip(
        f"every table is caught up with the source ({lsn(100)})."
    )


def test_run_is_skipped_with_the_reason_while_the_only_table_waits() -> None:
    skipped = decided(settings(ORDERS), snapshot(table_seen(oldest=NoPosition.NULL)))
    assert isinstance(skipped, Skip)
    assert "not_captured_yet" in skipped.reason


def test_watermarks_move_without_a_window_when_no_table_has_a_change() -> None:
    source = snapshot(table_seen(ORDERS, last_change=lsn(50)), table_seen(ITEMS, last_change=NoPosition.NULL))
    assert decided(settings(ORDERS, ITEMS), source, state(50), state(70, ITEMS)) == AdvanceQuiet(
        lsn(100), NOON, {ORDERS: lsn(50), ITEMS: lsn(70)}, {name: instance(name).identity for name in (ORDERS, ITEMS)}
    )


def test_quiet_table_is_planned_but_not_read_in_a_window_with_changes_of_another() -> None:
    source = snapshot(table_seen(ORDERS, last_change=lsn(50)), table_seen(ITEMS, last_change=lsn(71)))
    window = decided(settings(ORDERS, ITEMS), source, state(50), state(70, ITEMS))
    assert isinstance(window, Open)
    assert [table.quiet for table in window.tables] == [True, False]


def test_table_whose_feed_may_have_begun_again_is_reloaded_in_the_window_and_is_not_quiet() -> None:
    seen = table_seen(restarts_at=lsn(50), last_change=NoPosition.NULL)
    opened = decided(settings(ORDERS), snapshot(seen), state(50))
    assert isinstance(opened, Open)
    [planned] = opened.tables
    assert (planned.kind, planned.watermark, planned.interval) == (LoadKind.FIRST_LOAD, lsn(50), None)
    assert (planned.is_reload, planned.quiet) == (True, False)


def test_quiet_tables_do_not_keep_a_new_one_from_its_first_load() -> None:
    source = snapshot(table_seen(ORDERS, last_change=lsn(50)), table_seen(ITEMS, last_change=NoPosition.NULL))
    window = decided(settings(ORDERS, ITEMS), source, state(50))
    assert isinstance(window, Open)
    assert [table.quiet for table in window.tables] == [True, False]


def test_table_with_a_gap_is_left_out_and_the_others_go_on() -> None:
    source = snapshot(table_seen(ORDERS), table_seen(ITEMS, oldest=lsn(99)))
    window = decided(settings(ORDERS, ITEMS), source, state(50), state(70, ITEMS))
    assert isinstance(window, Open)
    assert [table.source for table in window.tables] == [ORDERS]


def test_gap_fails_the_run_when_no_other_table_has_anything_to_do() -> None:
    source = snapshot(table_seen(ORDERS), table_seen(ITEMS, oldest=lsn(99)))
    failed = decided(settings(ORDERS, ITEMS), source, state(100), state(70, ITEMS))
    assert isinstance(failed, Fail)
    assert isinstance(failed.error, WindowExpiredError)


@pytest.mark.parametrize("hidden", [{"permitted": False}, {"feed": None}, {"exists": False}])
def test_table_that_cannot_be_read_is_left_out_and_the_others_go_on(hidden: dict[str, Any]) -> None:
    source = snapshot(table_seen(ORDERS), replace(table_seen(ITEMS), **hidden))
    window = decided(settings(ORDERS, ITEMS), source, state(50), state(70, ITEMS))
    assert isinstance(window, Open)
    assert [table.source for table in window.tables] == [ORDERS]


def test_table_that_is_behind_is_read_though_capture_does_not_run() -> None:
    source = snapshot(table_seen(ORDERS), table_seen(ITEMS), capture_running=False)
    window = decided(settings(ORDERS, ITEMS), source, state(50), state(100, ITEMS))
    assert isinstance(window, Open)
    assert [table.source for table in window.tables] == [ORDERS]


@pytest.mark.parametrize("without_rows", [{"last_change": lsn(50)}, {"permitted": False}])
def test_capture_that_does_not_run_ends_a_run_that_has_nothing_else_to_read(without_rows: dict[str, Any]) -> None:
    source = snapshot(replace(table_seen(ORDERS), **without_rows), table_seen(ITEMS), capture_running=False)
    failed = decided(settings(ORDERS, ITEMS), source, state(50), state(100, ITEMS))
    assert isinstance(failed, Fail)
    assert "dbo.Items: capture_stopped" in str(failed.error)


def test_error_about_several_tables_that_are_left_out_names_all() -> None:
    hidden = replace(table_seen(ORDERS), permitted=False)
    source = snapshot(hidden, table_seen(ITEMS, oldest=lsn(99)))
    failed = decided(settings(ORDERS, ITEMS), source, state(50), state(70, ITEMS))
    assert isinstance(failed, Fail)
    assert isinstance(failed.error, SourcePermissionError)
    assert "dbo.Orders: no_permission" in str(failed.error)
    assert "dbo.Items: expired" in str(failed.error)


def test_net_changes_of_the_server_are_refused_by_another_key_than_its_own() -> None:
    served = snapshot(table_seen(feed=replace(instance(), supports_net_changes=True)))
    assert isinstance(decided(settings(ORDERS, net=NetSource.SERVER, key=("ID",)), served), Open)
    with pytest.raises(ConfigError, match=r"the key is \(Amount\), and capture instance dbo_Orders .* by \(Id\)"):
        decided(settings(ORDERS, net=NetSource.SERVER, key=("amount",)), served)


@pytest.mark.parametrize(
    ("column", "is_refused"),
    [
        (SourceColumn("Id", "varchar", 1, 20, collation="SQL_Latin1_General_CP1_CI_AS"), True),
        (SourceColumn("Id", "nchar", 1, 20, collation="Latin1_General_100_CS_AS"), True),
        (SourceColumn("Id", "char", 1, 20), True),
        (SourceColumn("Id", "char", 1, 20, collation="Latin1_General_BIN"), False),
        (SourceColumn("Id", "nchar", 1, 20, collation="Latin1_General_100_BIN2"), False),
        # 'abc' and 'abc ' are one key under every collation, 0x01 and 0x0100 too.
        (SourceColumn("Id", "nvarchar", 1, 20, collation="Latin1_General_100_BIN2"), True),
        (SourceColumn("Id", "varbinary", 1, 20), True),
        (SourceColumn("Id", "binary", 1, 20), False),
        (SourceColumn("Id", "uniqueidentifier", 1), False),
    ],
)
def test_net_changes_of_the_server_are_refused_where_it_takes_different_keys_for_one(
    column: SourceColumn, is_refused: bool
) -> None:
    table = replace(instance().table, columns=(column, *instance().table.columns[1:]))
    served = snapshot(table_seen(feed=instance(table=table, supports_net_changes=True)))
    if not is_refused:
        assert isinstance(decided(settings(ORDERS, net=NetSource.SERVER), served), Open)
        return
    with pytest.raises(ConfigError, match=r"dbo\.Orders: net: server, but .*\(Id .*Use net: spark"):
        decided(settings(ORDERS, net=NetSource.SERVER), served)


def test_pinned_instance_is_the_configured_one_or_the_one_read_before() -> None:
    pipeline = settings(ORDERS, ITEMS)
    pinned = replace(pipeline.tables[0], capture_instance="orders_v2")
    pipeline = replace(pipeline, tables=(pinned, pipeline.tables[1], replace(pinned, source=TableName("dbo", "New"))))
    assert pinned_feeds(pipeline, {ITEMS: state(70, ITEMS), ORDERS: state(50)}) == {
        ORDERS: "orders_v2",
        ITEMS: "dbo_Items",
        TableName("dbo", "New"): "orders_v2",
    }


def keyless(*columns: SourceColumn) -> SourceSnapshot:
    table = replace(instance().table, key=(), columns=(*instance().table.columns, *columns))
    return snapshot(table_seen(feed=instance(table=table)))


def test_declared_key_takes_the_place_of_the_servers_with_the_servers_spelling() -> None:
    window = decided(settings(ORDERS, key=("amount", "ID")), keyless())
    assert isinstance(window, Open)
    assert window.tables[0].feed.table.key == ("Amount", "Id")


@pytest.mark.parametrize("key", ["ID", "Id", "iD"])
def test_key_is_the_column_of_that_name_where_others_differ_in_case(key: str) -> None:
    columns = tuple(SourceColumn(name, "int", number) for number, name in enumerate(("ID", "Id", "iD"), 1))
    feed = instance(table=replace(instance().table, columns=columns, key=(key,)))
    window = decided(settings(ORDERS), snapshot(table_seen(feed=feed)))
    assert isinstance(window, Open)
    assert window.tables[0].feed.table.key == (key,)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ((), "neither a primary key nor a declared key"),
        (("Nope",), "key column Nope is not captured"),
        (("Sum",), "key column Sum is computed"),
        (("Notes",), r"key column Notes is nvarchar\(max\)"),
    ],
)
def test_table_that_cannot_be_merged_by_key_is_refused(key: tuple[str, ...], words: str) -> None:
    source = keyless(SourceColumn("Sum", "int", 3, is_computed=True), SourceColumn("Notes", "nvarchar", 4, -1))
    with pytest.raises(NoKeyError, match=words):
        decided(settings(ORDERS, key=key), source)


@pytest.mark.parametrize(
    ("chosen", "columns", "words"),
    [
        ({"key": ("Nope",)}, (), "key column Nope is not captured"),
        ({"net": NetSource.SERVER}, (), "has no net changes"),
        ({}, (SourceColumn("V", "sql_variant", 3),), "sql_variant"),
    ],
)
def test_table_that_cannot_be_planned_is_left_out_with_a_verdict_and_the_others_go_on(
    chosen: dict[str, Any], columns: tuple[SourceColumn, ...], words: str
) -> None:
    pipeline = settings(ORDERS, ITEMS)
    pipeline = replace(pipeline, tables=(pipeline.tables[0], replace(pipeline.tables[1], **chosen)))
    table = replace(instance(ITEMS).table, columns=(*instance(ITEMS).table.columns, *columns))
    source = snapshot(table_seen(ORDERS), table_seen(ITEMS, feed=replace(instance(ITEMS), table=table)))
    states = {ORDERS: state(50), ITEMS: state(70, ITEMS)}
    validities, plans = plan_tables(pipeline, source, states, classify_tables(pipeline, source, states))
    assert [each.verdict for each in validities] == [Verdict.READY, Verdict.NOT_PLANNABLE]
    assert words in validities[1].cause
    assert validities[1].hint
    assert validities[1].watermark == lsn(70)
    window = decide(pipeline, source, states, validities, plans)
    assert isinstance(window, Open)
    assert [table.source for table in window.tables] == [ORDERS]


def test_only_table_that_cannot_be_planned_fails_the_run_as_a_mistake_of_the_configuration() -> None:
    pipeline, states = settings(ORDERS, net=NetSource.SERVER), {ORDERS: state(50)}
    source = snapshot(table_seen())
    validities, plans = plan_tables(pipeline, source, states, classify_tables(pipeline, source, states))
    failed = decide(pipeline, source, states, validities, plans)
    assert isinstance(failed, Fail)
    assert isinstance(failed.error, ConfigError)
    assert "dbo.Orders: not_plannable: net: server" in str(failed.error)


def test_net_changes_of_the_server_need_an_instance_that_has_them() -> None:
    with pytest.raises(ConfigError, match=r"dbo\.Orders: net: server, but capture instance dbo_Orders"):
        decided(settings(ORDERS, net=NetSource.SERVER), snapshot(table_seen()))


@pytest.mark.parametrize(
    ("column", "chosen", "is_planned"),
    [
        (SourceColumn("Id", "varchar", 1, 9, collation="Latin1_General_BIN2"), {}, False),
        (SourceColumn("Id", "varbinary", 1, 9), {}, False),
        (SourceColumn("Id", "datetimeoffset", 1, scale=3), {"temporal": TemporalPolicy.TEXT}, False),
        (SourceColumn("Id", "nchar", 1, 9, collation="Latin1_General_CI_AS"), {}, False),
        (
            SourceColumn("Id", "nchar", 1, 9, collation="Latin1_General_CI_AS"),
            {"key_spelling": KeySpelling.FIXED},
            True,
        ),
        (SourceColumn("Id", "nchar", 1, 9, collation="Latin1_General_BIN2"), {}, True),
        (SourceColumn("Id", "uniqueidentifier", 1), {}, True),
    ],
)
def test_source_with_one_change_per_key_needs_keys_that_keep_their_spelling(
    column: SourceColumn, chosen: dict[str, Any], is_planned: bool
) -> None:
    table = replace(instance().table, columns=(column, *instance().table.columns[1:]))
    source = snapshot(table_seen(feed=replace(instance(), table=table, delivers_net=True)))
    if is_planned:
        assert isinstance(decided(settings(ORDERS, **chosen), source), Open)
    else:
        with pytest.raises(ConfigError, match=r"two values of the key \(Id .*key_spelling: fixed"):
            decided(settings(ORDERS, **chosen), source)


def test_type_that_is_not_carried_is_refused_before_anything_is_planned() -> None:
    with pytest.raises(ConfigError, match="sql_variant"):
        decided(
            settings(ORDERS),
            snapshot(
                table_seen(
                    feed=instance(
                        table=replace(
                            instance().table, columns=(*instance().table.columns, SourceColumn("V", "sql_variant", 3))
                        )
                    )
                )
            ),
        )


def test_table_with_a_captured_column_behind_a_mask_is_refused() -> None:
    source = snapshot(table_seen(masked=("Amount", "NotCaptured")))
    for known in ((), (state(50),)):
        with pytest.raises(SourcePermissionError, match=r"masks in place of the values of Amount\..*GRANT UNMASK"):
            decided(settings(ORDERS), source, *known)


def test_mask_on_a_column_that_is_not_captured_changes_nothing() -> None:
    assert isinstance(decided(settings(ORDERS), snapshot(table_seen(masked=("NotCaptured",)))), Open)


def test_table_under_a_filter_policy_is_refused_unless_the_configuration_accepts_it() -> None:
    source = snapshot(table_seen(filters=("sec.orders_filter",)))
    with pytest.raises(SourcePermissionError, match=r"policy sec\.orders_filter filters .* security_filtered: accept"):
        decided(settings(ORDERS), source)
    accepted = settings(ORDERS, security_filtered=SecurityFiltered.ACCEPT)
    assert isinstance(decided(accepted, source), Open)


@pytest.mark.parametrize("policy", list(SecurityFiltered))
def test_reload_deletes_nothing_where_rows_may_be_hidden(policy: SecurityFiltered) -> None:
    table = settings(ORDERS, security_filtered=policy).tables[0]
    planned = plan_reload(table, table_seen(), snapshot(table_seen()), state(50))
    assert isinstance(planned, TablePlan)
    assert (planned.is_reload, planned.keeps_unread) == (True, policy is SecurityFiltered.ACCEPT)


def plan_of(naming: Naming, known: TableState | None) -> TablePlan:
    source = snapshot(table_seen())
    return plan_table(settings(ORDERS, naming=naming).tables[0], source.tables[0], source, known)


NAMED = (MappedColumn("Gone", "amount"), MappedColumn("Id", "id"))
IN_SNAKE_CASE = {NAMING_KEY: {"naming": "snake_case"}}


def test_columns_keep_the_names_that_the_target_has_for_them() -> None:
    plan = plan_of(Naming.SNAKE_CASE, state(columns=NAMED, definition=IN_SNAKE_CASE))
    assert plan.target_names == {"Gone": "amount", "Id": "id", "Amount": plan.in_target.columns[1].name}
    assert plan.in_target.key == ("id",)
    assert plan.in_target.columns[1].name.startswith("amount_")
    assert plan.feed.table == instance().table


def test_naming_of_a_loaded_table_may_not_change_but_by_a_load_of_the_whole_table() -> None:
    for naming, known in ((Naming.SNAKE_CASE, ()), (Naming.KEEP, NAMED)):
        definition = IN_SNAKE_CASE if known else {}
        known_state = state(columns=known, definition=definition)
        for loaded in (known_state, state(None, columns=known, definition=definition, read_to=lsn(9))):
            with pytest.raises(ConfigError, match=f"naming: {naming.value} now"):
                plan_of(naming, loaded)
        table, source = settings(ORDERS, naming=naming).tables[0], snapshot(table_seen())
        with pytest.raises(ConfigError, match="Restore the settings"):
            plan_reload(table, source.tables[0], source, known_state, "Id = 1")
        reload = plan_reload(table, source.tables[0], source, known_state)
        assert isinstance(reload, TablePlan)
        before = {each.source: each.was or each.target for each in reload.columns}
        assert before.items() >= ({each.source: each.target for each in known} or {"Id": "Id"}).items()
    assert plan_of(Naming.SNAKE_CASE, state(None)).in_target.key == ("id",)


def test_naming_that_was_changed_is_reported_before_the_table_changes() -> None:
    pipeline, source, states = settings(ORDERS, naming=Naming.SNAKE_CASE), snapshot(table_seen()), {ORDERS: state(100)}
    validities = classify_tables(pipeline, source, states)
    assert [each.verdict for each in validities] == [Verdict.CAUGHT_UP]
    (reported,), plans = plan_tables(pipeline, source, states, validities)
    assert (reported.verdict, plans) == (Verdict.DEFINITION_CHANGED, {})


def test_feed_without_times_of_commits_is_refused_where_they_are_asked_for() -> None:
    source = snapshot(table_seen(feed=replace(instance(), has_members=True, member_column="__device")))
    [table] = settings(ORDERS).tables
    with pytest.raises(ConfigError, match="commit_times: true, but clocks of devices are not asked"):
        plan_table(replace(table, commit_times=True), source.tables[0], source, None)
    assert not plan_table(table, source.tables[0], source, None).has_commit_times
