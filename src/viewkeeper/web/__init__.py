"""What a running maintainer shows over HTTP: figures for Prometheus, and a page for people.

`project_monitor` is the observer that remembers what happened lately and reads the status beside
the maintainer; `project_metrics` counts for Prometheus; `project_snapshot` is all of it as one
value; `web_app` answers requests, `request_guard` says who may ask, and `web_server` runs them in a
thread of their own. The page itself is in the folder `page`.
"""
