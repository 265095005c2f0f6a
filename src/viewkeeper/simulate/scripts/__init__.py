"""Runs written down as named steps, as the papers give their examples.

`script_reader` reads the language of `script_format`; `script_run` performs the steps and checks
what the script expects.
"""
