"""Sequence diagrams of simulated runs, as SVG.

`sequence_diagram` decides what is drawn where, `svg` writes it.
"""
