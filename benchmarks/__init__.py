"""What Viewkeeper costs, measured: see `benchmarks.run` and `benchmarks.backlog`."""
