"""Views computed from scratch, while writers go on.

`load_job` computes a view and writes its tables, or by what they differ from the stored rows: few
rows here, by `inline_load`, and many on Spark, by `view_recomputation`, which also serves
verification and previews. The `loader` runs one load at a time in a thread. `folder_difference`
compares large states of folders on Spark.
"""
