"""Views computed from scratch, while writers go on.

`view_recomputation` is the one function behind loads, verification and previews; `load_job` writes
what it computes, or by what that differs from the stored rows; the `loader` runs one load at a time
in a thread. `folder_difference` compares large states of folders on Spark.
"""
