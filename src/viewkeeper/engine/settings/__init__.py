"""What a project file says, as frozen values.

`project_file` reads `viewkeeper.yml` and hands the parts of it to the others: algorithms, schema
changes, gaps and the registry. Nothing here touches a source or the warehouse.
"""
