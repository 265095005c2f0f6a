"""Everything about the Spark session and its jobs.

A session is started when it is first needed; jobs can be limited and cancelled; errors leave tasks
as data; what Spark parses of a view is checked.
"""
