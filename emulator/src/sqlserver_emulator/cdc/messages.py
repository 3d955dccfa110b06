"""CDC's errors by number (docs/reference/sqlserver_cdc.md, "Errors"): one table of severities and texts, one way to
raise them.

Texts are those published; guidance sentences that are not known word for word are left out. Clients match numbers.
"""

from __future__ import annotations

from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import Info

_CAUSE = (
    "The failure occurred when executing the command '%s'. The error returned was %s: '%s'. Use the action and error "
    "to determine the cause of the failure and resubmit the request."
)
_TEXTS = {
    22830: "Could not update the metadata that indicates database %s is enabled for Change Data Capture. " + _CAUSE,
    22831: "Could not update the metadata that indicates database %s is not enabled for Change Data Capture. " + _CAUSE,
    22832: "Could not update the metadata that indicates table %s is enabled for Change Data Capture. " + _CAUSE,
    22833: "Could not update the metadata that indicates table %s is not enabled for Change Data Capture. " + _CAUSE,
    22838: "All columns of a CDC unique index must be defined as NOT NULL. Index '%s' selected as the CDC unique "
    "index for source table '%s.%s' does not meet this requirement.",
    22840: "The application lock request '%s' needed to modify Change Data Capture metadata was not granted. "
    "The value returned from the request was %s: -1 = timeout; -2 = canceled; -3 = deadlock victim; -999 validation or "
    "other call error. Examine the error cause and resubmit the request.",
    22844: "The '%s' option must be either 1 or 0.",
    22850: "The threshold value specified for the Change Data Capture cleanup process must be greater than 0.",
    22865: "The number of columns in the index '%s', used as the unique row identifier to support net changes for "
    "table '%s'.'%s', exceeds the limit of 14 columns.",
    22874: "The parameter @enable_extended_ddl_handling is not supported.",
    # The number is Microsoft's, the text the emulator's own.
    22898: "Change Data Capture cannot be enabled: the database '%s' has change event streaming.",
    22901: "The database '%s' is not enabled for Change Data Capture. Ensure that the correct database context is "
    "set and retry the operation. To report on the databases enabled for Change Data Capture, query the "
    "is_cdc_enabled column in the sys.databases catalog view.",
    22902: "Caller is not authorized to initiate the requested action. %s privileges are required.",
    22903: "Another connection with session ID %s is already running 'sp_replcmds' for Change Data Capture in the "
    "current database.",
    22904: "Caller is not authorized to initiate the requested action. DBO privileges are required.",
    22906: "The database '%s' cannot be enabled for Change Data Capture because a database user named 'cdc' or a "
    "schema named 'cdc' already exists in the current database.",
    22907: "Parameter @role_name cannot be empty.",
    22910: "The cleanup request for database '%s' failed.  The database is not enabled for Change Data Capture.",
    22914: "Only members of the sysadmin or db_owner or db_ddladmin roles can perform this operation when Change Data "
    "Capture is enabled for a database.",
    22918: "One or more columns in the list of included columns was not a captured column of the change table %s.",
    22919: "One or more columns in the list of columns needing update flags was not a captured column of the change "
    "table %s.",
    22920: "The named capture instance %s does not exist for database %s.",
    22921: "Unable to generate scripts for all capture instances that the caller is authorized to access.",
    22924: "Could not clean up change tables for database '%s'. A failure occurred when attempting to clean up the "
    "database change tables based upon the current retention time. Refer to previous errors in the current session to "
    "identify the cause and correct any associated problems.",
    22925: "The number of columns captured by capture instance '%s' exceeds the maximum allowed number: %s.",
    22926: "Could not create a capture instance because the capture instance name '%s' already exists in the "
    "current database. Specify an explicit unique name for the parameter @capture_instance.",
    22927: "Capture instance name '%s' exceeds the length limit of 100 characters.",
    22928: "Index name '%s' is not an index for table '%s.%s'.",
    22929: "Index '%s' must be either a primary key or a unique index for table '%s.%s'.",
    22930: "Could not locate '%s' as a column of source table '%s.%s'.",
    22931: "Source table '%s.%s' does not exist in the current database.",
    22932: "Capture instance name '%s' is invalid.",
    22938: "Role name '%s' is invalid.",
    22939: "The parameter @supports_net_changes is set to 1, but the source table does not have a primary key "
    "defined and no alternate unique index has been specified.",
    22942: "Columns specified in the captured column list could not be mapped to columns in source table '%s.%s'.",
    22943: "Columns used to uniquely identify a row for net change tracking must be included in the list of "
    "captured columns.",
    22957: "LSN %s, specified as the new low end point for the change table associated with capture instance "
    "'%s', is not within the Change Data Capture timeline [%s, %s].",
    22960: "Change data capture instance '%s' has not been enabled for the source table '%s.%s'. Use "
    "sys.sp_cdc_help_change_data_capture to verify the capture instance name and retry the operation.",
    22962: "Two capture instances already exist for source table '%s.%s'. A table can have at most two capture "
    "instances.",
    22963: "Parameter '%s' cannot be null or empty. Specify a value for the named parameter and retry the operation.",
    22964: "LSN %s, specified as the new low end point for change table cleanup must represent the start_lsn "
    "value of a current entry in the cdc.lsn_time_mapping table.",
    22965: "A quoted column in the column list is not properly terminated.",
    22970: "The value specified for the parameter @maxscans must be greater than 0.",
    22972: "When calling stored procedure [sys].sp_cdc_help_change_data capture, if either @source_schema or "
    "@source_name is non-null and non-empty, the other parameter must also be non-null and non-empty.",
    22973: "The specified filegroup '%s' is not a valid filegroup for database '%s'.",
    22974: "Tables contained in the cdc schema cannot be enabled for Change Data Capture.",
    22975: "Source table '%s' contains one of the following reserved column names: __$start_lsn, __$end_lsn, "
    "__$seqval, __$operation, and __$update_mask.",
    22979: "The unique index '%s' on table '%s' is used by Change Data Capture. The constraint using this index "
    "cannot be dropped or disabled.",
    22981: "Object does not exist or access is denied.",
    22983: "The unique index '%s' on source table '%s' is used by Change Data Capture. To alter or drop the "
    "index, you must first disable Change Data Capture on the table.",
    22985: "Change data capture has not been enabled for source table '%s.%s'. Specify the name of a table "
    "enabled for Change Data Capture.",
    22989: "Could not enable Change Data Capture for database '%s'. Change data capture is not supported on "
    "system databases, or on a distribution database.",
    22990: "The value specified for the parameter @pollinginterval must be between 0 and 86399 seconds.",
    22991: "The value specified for the parameter @maxtrans must be greater than 0.",
    22992: "The specified @job_type, %s, is not supported. The value specified for the parameter @job_type must "
    "be N'capture' to indicate a capture job, or N'cleanup' to indicate a cleanup job.",
    22993: "The Change Data Capture job table containing job information for database '%s' cannot be found in the "
    "msdb system database.",
    22994: "The retention value specified for the Change Data Capture cleanup process must be greater than 0 and "
    "less than or equal to 52594800.",
    22995: "A value for the parameter @retention cannot be specified when the job type is 'capture'.",
    22996: "The parameters @pollinginterval, @continuous, @maxtrans and @maxscans cannot be specified when the "
    "job type is 'cleanup'.",
    22997: "The Change Data Capture '%s' job does not exist in the system table 'msdb.dbo.cdc_jobs'.",
    22998: "The value specified for the parameter @continuous must be 0 or 1.",
    22999: "The value specified for the parameter @pollinginterval must be null or 0 when the job is not continuous.",
    4711: "Cannot truncate table '%s' because it is published for replication or enabled for Change Data Capture.",
    4928: "Cannot alter column '%s' because it is 'REPLICATED'.",
}
_WARNINGS = {
    # docs/reference/sqlserver_cdc.md, "Disabling a database": where nothing is enabled, sp_cdc_disable_db only warns.
    22901: _TEXTS[22901],
    22852: "Could not delete change table entries made obsolete by a change in one or more low water marks for capture "
    "instances of database %s. " + _CAUSE,
    22853: "Could not delete obsolete entries in the cdc.lsn_time_mapping table for database %s. " + _CAUSE,
    22855: "Warning: The @allow_partition_switch parameter is set to 1. Table partition switching is allowed, and "
    "its changes are not captured.",
    22857: "Warning: The @allow_partition_switch parameter is set to 0 and ignored because the table is not "
    "partitioned.",
    22905: "Database '%s' is already enabled for Change Data Capture. Ensure that the correct database context is "
    "set, and retry the operation. To report on the databases enabled for Change Data Capture, query the "
    "is_cdc_enabled column in the sys.databases catalog view.",
    22969: "Update mask evaluation will be disabled in net_changes_function because the CLR configuration option "
    "is disabled.",
}
"""The messages of severity 10, which are sent and not raised."""


def cdc_error(number: int, *values: object, procedure: str = "") -> SqlServerError:
    """Return the error with its text filled in; severity 16, state 1, as all of them."""
    text = _TEXTS[number]
    return SqlServerError(number, text % values if values else text, procedure=procedure)


def is_cdc_error(error: SqlServerError) -> bool:
    """Return whether change data capture itself refuses, rather than the engine below it."""
    return error.number in _TEXTS


def cdc_warning(number: int, *values: object) -> Info:
    """Return the message of severity 10 with its text filled in."""
    text = _WARNINGS[number]
    return Info(number, text % values if values else text, severity=10)


class AgentError(SqlServerError):
    """An error of SQL Server Agent; its number is 22022 in all cases."""

    def __init__(self, text: str) -> None:
        super().__init__(22022, f"SQLServerAgent Error: {text}")
