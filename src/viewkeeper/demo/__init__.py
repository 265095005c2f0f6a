"""The demonstration: databases under writers, a view kept fresh, every state judged.

`demo_run` builds a world (`shop_world`, `mixed_world`), starts the crew of writers, maintains and
displays, and hands what happened to the judge.
"""
