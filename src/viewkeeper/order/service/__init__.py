"""A registry as a service over HTTP.

Requests pass the gate for connections, are checked and decoded, and call the store; `http_registry`
is the client, which is a registry itself.
"""
