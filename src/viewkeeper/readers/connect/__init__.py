"""Views as tables of a Spark Connect endpoint, read only, one committed head for each query.

A request of a client comes to `connect_proxy`, which stands before the Connect server of a session
of its own (`connect_service`). `plan_check` holds the plan against lists of what a reader may ask,
and finds the views that it names; `pinned_views` makes each of them, as of one head, an immutable
view of Spark; `pinned_plan` puts those into the plan in place of the names. `running_operations`
keeps what a query reads until it has ended. `connect_settings` says which settings clients reach.
"""
