"""WITH, put in where it is read: a text that Spark confuses.

Spark gives the queries of WITH new numbers before it optimizes, and then does not find one of them
("No CTERelationDef found") where two parts of a FROM have a WITH each. So each reading of one
becomes the query itself, as it would be anyway. `viewkeeper.engine.spark.completed_order` does so
with the texts of views, in which nothing gives something else each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def inline_frame(frame: DataFrame) -> DataFrame:
    """The same query, with each reading of a WITH replaced by its query, but for one that is read
    twice and gives something else each time."""
    from pyspark.sql import DataFrame as Frame

    session = frame.sparkSession
    jvm: Any = session._jvm
    analyzed = frame._jdf.queryExecution().analyzed()
    inline = jvm.org.apache.spark.sql.catalyst.optimizer.InlineCTE(False, False, False)
    plan = inline.apply(analyzed)
    if plan.fastEquals(analyzed):
        return frame
    datasets = jvm.org.apache.spark.sql.classic.Dataset
    return Frame(datasets.ofRows(session._jsparkSession, plan), session)
