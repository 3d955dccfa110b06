"""All DAGs of the configuration (``include/pipelines.yaml``, or the file that FLOODMARK_CONFIG names).

Airflow reads this file because it holds the name Airflow and the word DAG. These are the families of DAGs:

======================== ======================= ======================================================================
id                       schedule                what a run does
======================== ======================= ======================================================================
cdc_<pipeline>           of the pipeline         open a window, load it with Spark, check its rows, advance watermarks
cdc_load_<pipeline>      none; a run starts it   repair and reload single tables, while the windows of the others go on
cdc_drift_<source>       none; a run starts it   detect schema drift, raise alerts, hold tables, propose switches
cdc_switch_<source>      none; drift starts it   ask the operator, then switch a table to its new capture instance
cdc_capture_<source>     of the source's capture keep the capture job running, and stop it in its planned stops
cdc_retention_<source>   of the source's         compare the retention with the watermarks, warn, raise it
                         retention
======================== ======================= ======================================================================

``floodmark.orchestration.dags.pipelines`` builds the first two, and ``floodmark.orchestration.dags.upkeep`` the others.
Their tasks are in ``floodmark.orchestration.tasks``; the operator of ``load`` is ``orchestration.load_operator``.
"""

from floodmark.dags import *  # noqa: F403
