"""The program: commands in `commands`, and how it speaks to a terminal.

`main` finds the command and turns errors into exit codes; `terminal`, `format`, `log_output` and
`live_display` are its voice; `signals` ends a run in order; `reference` writes the documentation of
the commands.
"""
