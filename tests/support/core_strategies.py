"""Hypothesis strategies for the core's values."""

from __future__ import annotations

from hypothesis import strategies as st

from floodmark.core.plan import LoadKind, TablePlan, WindowPlan
from floodmark.core.position import POSITION_BYTES, Interval, Lsn
from floodmark.core.schema import SourceColumn, SourceTable, TableName
from floodmark.core.settings import (
    Deletes,
    FirstLoad,
    NetSource,
    OnFailure,
    Rule,
    TableSettings,
    TemporalPolicy,
    WhenAdded,
)
from floodmark.core.snapshot import Feed, FeedIdentity

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=12)
table_names = st.builds(TableName, names, names)
lsns = st.binary(min_size=POSITION_BYTES, max_size=POSITION_BYTES).filter(any).map(Lsn)
intervals = st.tuples(lsns, lsns).filter(lambda pair: pair[0] != pair[1]).map(lambda pair: Interval(*sorted(pair)))
identities = st.builds(FeedIdentity, names, st.integers(1, 2**31 - 1), st.datetimes())
columns = st.builds(
    SourceColumn,
    name=names,
    type_name=st.sampled_from(["int", "decimal", "nvarchar", "datetime2", "xml"]),
    ordinal=st.integers(1, 1024),
    max_length=st.integers(-1, 4000),
    precision=st.integers(0, 38),
    scale=st.integers(0, 7),
    nullable=st.booleans(),
    is_computed=st.booleans(),
)
tables = st.builds(
    SourceTable,
    name=table_names,
    columns=st.lists(columns, max_size=4).map(tuple),
    key=st.lists(names, max_size=3).map(tuple),
)
instances = st.builds(
    Feed,
    identities,
    table=tables,
    start=lsns,
    supports_net_changes=st.booleans(),
    has_command_id=st.booleans(),
)
rules = st.builds(Rule, name=names, sql=st.text(max_size=20), on_failure=st.sampled_from(OnFailure))
table_settings = st.builds(
    TableSettings,
    source=table_names,
    target=table_names,
    deletes=st.sampled_from(Deletes),
    net=st.sampled_from(NetSource),
    temporal=st.sampled_from(TemporalPolicy),
    rules=st.lists(rules, max_size=2).map(tuple),
    partitions=st.integers(0, 64),
    first_load=st.builds(FirstLoad, st.integers(1, 10**9), st.integers(1, 64), st.sampled_from(WhenAdded)),
    max_reads=st.integers(1, 64),
)
table_plans = st.builds(
    TablePlan,
    settings=table_settings,
    kind=st.sampled_from(LoadKind),
    feed=instances,
    interval=st.none() | intervals,
    watermark=st.none() | lsns,
    quiet=st.booleans(),
    is_reload=st.booleans(),
    where=st.text(max_size=20),
)
window_plans = st.builds(
    WindowPlan,
    window_id=st.integers(1, 2**63 - 1),
    pipeline=names,
    to=lsns,
    tables=st.lists(table_plans, max_size=3).map(tuple),
    attempt=st.integers(0, 1000),
    lane=st.sampled_from(["", "load dbo.Orders", "replay 0x01-0x02"]),
)
