"""What a table was, at a position: the part that is the same in every kind of source.

A kind *observes* tables in its own way and remembers what it saw in its own format. Everything that
follows from an observation is here:

    column_type      why a column is refused, and which value does not fit its type
    widening         whether a type holds every value of another one
    shape            a table at one moment: its columns by identity
    shape_history    the shapes of a table, one after the other; since when a column is there
    shape_changes    from two shapes to schema changes in the names of a handle
                     and to questions that cannot be answered any more
    row_layout       Arrow schemas of changes, and rows without columns

The road: a kind makes a `TableShape` of what it observed; `list_shape_changes` compares two of
them; `report_changes` tells every handle in its own names; `broken_query_error` refuses a question
that reaches over a change that did not keep values.
"""
