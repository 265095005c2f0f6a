"""What becomes of a project's files: `plan_command` says it beforehand, `reload_command` has a
running maintainer do it.
"""
