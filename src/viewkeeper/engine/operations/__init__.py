"""What users ask of a project that is not maintenance.

Status, doctor, explain and verify; all but the last need no Spark.
"""
