"""One order for the transactions of a group of projects.

`registry_protocol` is what a registry does; `store` keeps it in SQLite or PostgreSQL, `service`
offers it over HTTP. The `mediator` is pure and says which id a member can take next.
"""
