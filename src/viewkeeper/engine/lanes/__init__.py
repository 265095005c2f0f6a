"""Lanes: expensive views advance apart, so that cheap ones do not wait for them.

`lane_choice` says which views of a batch are expensive beside the others; `lane_batch` computes the
batch of such views in a thread of its own, while the maintainer goes on with the rest. The plan
runner (`viewkeeper.engine.plan_runner`) begins these batches and commits what they bring.
"""
