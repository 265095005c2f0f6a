"""Queries over views, answered without Spark and by Spark."""
