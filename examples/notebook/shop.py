# A tour of the Python interface, in cells: open it in an editor that runs cells, in Jupyter (by
# jupytext), or run it as a program. It plays with the sample project in a folder of its own:
#
#     viewkeeper init sample
#     python examples/notebook/shop.py sample

# %% Open the project. Nothing runs yet: no Spark, no connection.
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from pyarrow.compute import field

import viewkeeper

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "sample")
project = viewkeeper.open(folder)
print(project)

# %% Load the views, or bring them up to date. Call it again whenever you like.
report = project.refresh()
print("loaded:", report.loaded)
print("waiting:", report.waiting)  # views that could not advance, with the reason

# %% Rows as Arrow: no Spark is started for it.
totals = project.view("customer_totals")
print(totals.arrow().sort_by("customer"))

# %% Some columns, and some rows.
lines = project.view("order_lines")
print(lines.arrow(columns=["customer", "cents"], where=field("cents") >= 450).sort_by("cents"))

# %% As pandas.
frame = totals.arrow().to_pandas()
print(frame.sort_values("cents", ascending=False, na_position="last").to_string(index=False))

# %% Let somebody order something, in the shop's own database. What was is kept.
before = totals.ts
with closing(sqlite3.connect(folder / "shop.db")) as shop, shop:
    shop.execute("INSERT INTO orders (customer_id, placed) VALUES (4, '2024-03-06')")
    shop.execute("INSERT INTO item SELECT max(id), 3, 25 FROM orders")
report = project.refresh()
print(report.transactions, "transaction,", report.changes, "changes, lookups:", report.lookups)

# %% Now, and as of before.
barbara = field("customer") == "Barbara"
print("now:   ", totals.arrow(where=barbara).to_pylist())
print("before:", totals.arrow(as_of=before, where=barbara).to_pylist())

# %% What changed since: rows that went (-1) and came (1), each with its ts. This starts Spark.
totals.changes(since=before).orderBy("_ts", "_count").show()

# %% A view is a DataFrame, too: everything that Spark can do.
lines.df().groupBy("placed").sum("cents").orderBy("placed").show()

# %% Which states of the sources the view stands for.
print(totals.positions())

# %% Is it what its query gives, computed from scratch?
for result in project.verify():
    print(result.view, "is right" if result.ok else "is wrong")

# %%
project.close()
