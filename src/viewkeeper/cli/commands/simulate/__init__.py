"""The command `simulate`: its options, and its five ways to run.

`command` chooses between random seeds, a script, schema changes and fleets; campaigns run in
processes of their own (`workers`).
"""
