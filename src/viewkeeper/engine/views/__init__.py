"""The views of a project: their SQL, what it is bound to, and who maintains them.

`view_catalogue` reads the SQL files, `bound_view` binds them to tables, `algorithm_choice`
chooses an algorithm or refuses the view, `edited_sql` compares with what is stored. `view_troubles`
decides what an error means for a view. The `workspace` holds all that the parts above work with.
"""
