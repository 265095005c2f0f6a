"""All that the engine knows of Spark as such.

`spark_session` starts and stops the session when somebody needs it, `job_control` gives each job a
name and a time limit, `task_errors` brings an error of a task back as the error that it was, and
`parsed_plan` checks what Spark has understood of a view's SQL. What is computed lies elsewhere.
"""
