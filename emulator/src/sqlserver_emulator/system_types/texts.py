"""Records of the character types, xml among them: to the conversion rules it is a text."""

from __future__ import annotations

from typing import Final

from sqlserver_emulator.system_types.odbc import INT_MAX, OdbcType
from sqlserver_emulator.system_types.record import TEXT, Declared, Facets, Length, SystemType
from sqlserver_emulator.system_types.wire import Form, Packing, Wire

CHAR: Final = SystemType(
    name="char",
    family=TEXT,
    rank=30,
    type_id=175,
    facets=Facets(8000),
    wire=Wire(Form.SHORT, Packing.CODE_PAGE, 0xAF, older_tokens=(0x2F,)),
    odbc=OdbcType(1, 8000, 8000, 39),
    storage="char({length})",
    declared=Declared.LENGTH,
    length=Length(8000, is_fixed=True),
    varying="varchar",
    user_type=1,
    synonyms=("character",),
)
VARCHAR: Final = SystemType(
    name="varchar",
    family=TEXT,
    rank=40,
    type_id=167,
    facets=Facets(8000),
    wire=Wire(Form.SHORT, Packing.CODE_PAGE, 0xA7, older_tokens=(0x27,)),
    odbc=OdbcType(12, 8000, 8000, 39),
    storage="varchar({length})",
    storage_of_max="text",
    declared=Declared.LENGTH,
    length=Length(8000, may_be_max=True),
    user_type=2,
)
NCHAR: Final = SystemType(
    name="nchar",
    family=TEXT,
    rank=50,
    type_id=239,
    facets=Facets(8000),
    wire=Wire(Form.SHORT, Packing.UNICODE, 0xEF),
    odbc=OdbcType(-8, 4000, 8000, 39),
    storage="char({length})",
    declared=Declared.LENGTH,
    length=Length(4000, is_fixed=True),
    unit_bytes=2,
    varying="nvarchar",
)
SYSNAME: Final = SystemType(
    name="sysname",
    family=TEXT,
    rank=60,
    type_id=231,
    facets=Facets(256),
    # To clients a sysname is an nvarchar(128): it is an alias type, which TDS does not know.
    wire=Wire(Form.SHORT, Packing.UNICODE, 0xE7, announced_as="nvarchar"),
    odbc=OdbcType(-9, 128, 256, 39),
    storage="varchar(128)",
    unit_bytes=2,
    varying="nvarchar",
    own_user_type_id=256,
    user_type=18,
)
NVARCHAR: Final = SystemType(
    name="nvarchar",
    family=TEXT,
    rank=70,
    type_id=231,
    facets=Facets(8000),
    wire=Wire(Form.SHORT, Packing.UNICODE, 0xE7),
    odbc=OdbcType(-9, 4000, 8000, 39),
    storage="varchar({length})",
    storage_of_max="text",
    declared=Declared.LENGTH,
    length=Length(4000, may_be_max=True),
    unit_bytes=2,
)
TEXT_TYPE: Final = SystemType(
    name="text",
    family=TEXT,
    rank=110,
    type_id=35,
    # What sys.types shows is the size of the text pointer.
    facets=Facets(16),
    wire=Wire(Form.LONG, Packing.CODE_PAGE, 0x23, 0x7FFFFFFF),
    odbc=OdbcType(-1, INT_MAX, INT_MAX, 35),
    storage="text",
    varying="varchar",
    user_type=19,
)
NTEXT: Final = SystemType(
    name="ntext",
    family=TEXT,
    rank=120,
    type_id=99,
    facets=Facets(16),
    wire=Wire(Form.LONG, Packing.UNICODE, 0x63, 0x7FFFFFFE),
    odbc=OdbcType(-10, INT_MAX // 2, INT_MAX - 1, 35),
    storage="text",
    unit_bytes=2,
    varying="nvarchar",
)
XML: Final = SystemType(
    name="xml",
    family=TEXT,
    rank=300,
    type_id=241,
    facets=Facets(-1),
    wire=Wire(Form.XML, Packing.XML, 0xF1),
    odbc=OdbcType(-152, 0, 0, 0),
    # Not PostgreSQL's own xml: a value must come back as the server would write it.
    storage="text",
    unit_bytes=2,
)
TEXTS: Final = (CHAR, VARCHAR, NCHAR, SYSNAME, NVARCHAR, TEXT_TYPE, NTEXT, XML)
