"""`viewkeeper init`: a sample project that runs as it is, with databases to play with.

Nothing that is already there is overwritten: if any file of the sample exists, nothing is written.

The comments in the project file are its documentation; a test reads the file back and finds that
what it calls a default is one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import click

from viewkeeper.errors import ProjectError

PROJECT = """\
# A Viewkeeper project. Paths are relative to this file.
# Durations are written 500ms, 1s, 5m, 2h, 7d; sizes 64mb, 2gb.

# Where the views are kept: Delta Lake tables that Spark, Polars, DuckDB and others can read. It can
# be s3://BUCKET/NAME too, with `storage:` and `local:`; docs/object-storage.md.
warehouse: ./warehouse

# The databases. Viewkeeper adds a change log (tables and triggers named _viewkeeper_...) to these;
# `viewkeeper detach` removes it. ${NAME} in a value is taken from the environment. Other kinds:
#   {kind: postgres, url: "postgresql://viewkeeper:${PGPASSWORD}@host/db?sslmode=verify-full"}
#   {kind: mariadb, url: "mariadb://viewkeeper:${MARIADB_PASSWORD}@host/db?ssl_mode=verify-full"}
#   {kind: files, path: exports, format: csv}      {kind: delta_lake, path: lake/events}
#   {kind: warehouse, path: ../orders}             the views of another project
# `viewkeeper doctor` says what each of them still needs.
sources:
  crm:
    kind: sqlite
    path: crm.db
    # busy_seconds: 5         # how long one call waits for a database that is locked
  shop:
    kind: sqlite
    path: shop.db
  stock:
    kind: sqlite
    path: stock.db

# Everything below is optional; the values are the defaults.

# freshness: 0s             # how old a committed change may get; 5s, say, makes fewer commits
# history: 1h               # for how long changes are kept for `verify --every-state`; 0: not
# retention: 7d             # for how long past states can be read with `query --as-of`
# algorithm: batch_sweep    # what maintains the views; docs/algorithms.md has all of them
# refresh: incremental      # or auto, full: what is computed again; docs/refresh.md
# views: {}                 # for single views, like order_lines: {algorithm: pvm_cc, parallel: 8}
# evolution:                # what views do about schema changes; docs/evolution.md
#   policy: evolve          # or try_evolve, lenient, ignore, exception, approve
#   detection: pessimistic  # or optimistic: schema changes are only found when a query breaks
# substitutes: []           # what may take the place of a table or column that is dropped
# on_event: []              # who is called when a view stops ...; docs/watching.md
# on_gap: stop              # or reanchor, after a source lost changes; docs/sources/README.md
# lanes: auto               # expensive views advance apart; never: all views are at one ts
# access: owner             # or group: who may read the files of the warehouse
# registry: ../registry.db  # orders what projects share that must agree; docs/fleet.md
# publish: false            # write plain tables this often, like 5m; false: only by command

# batch:
#   rows: 500000            # a batch starts at the latest when this many changes wait
#   inline_rows: 20000      # up to this many changes, or ten times as many rows of a load, are
#                           # done in this process, above that on Spark
#   part_rows: 100000       # changed rows that one Spark task works on at a time
#   page_rows: 100000       # rows that they meet and that are worked on at a time; the rest of a
#                           # larger answer waits in a file
#   wait_rows: 20000000     # changes that a waiting view may hold back at a source
#   memory: 256mb           # changes held in memory; the rest waits in files

# spark:
#   master: local[*,3]      # or spark://host:7077, yarn, k8s://...
#   memory: 2g              # of the driver
#   start: fast             # of a local JVM; or plain: as Java is, for jobs of many minutes
#   job_minutes: 60         # a job that takes longer is cancelled and tried again
#   config: {}              # any Spark setting, like spark.sql.shuffle.partitions: "16"
"""

ORDER_LINES = """\
-- Every line of every order, with its customer from one database and its product from another.
CREATE MATERIALIZED VIEW order_lines AS
SELECT o.id AS order_id,
       o.placed,
       c.name AS customer,
       p.title AS product,
       i.quantity,
       i.quantity * p.cents AS cents
FROM shop.orders o
JOIN crm.customer c ON c.id = o.customer_id
JOIN shop.item i ON i.order_id = o.id
JOIN stock.product p ON p.id = i.product_id
"""

BIG_ORDERS = """\
-- Customers in Berlin and what they ordered three or more of.
CREATE MATERIALIZED VIEW berlin_bulk AS
SELECT c.name AS customer, o.id AS order_id, i.product_id, i.quantity
FROM crm.customer c
JOIN shop.orders o ON o.customer_id = c.id
JOIN shop.item i ON i.order_id = o.id
WHERE c.city = 'Berlin' AND i.quantity >= 3
"""

CUSTOMER_TOTALS = """\
-- A report on top of another view: what every customer has ordered, those without orders too.
CREATE MATERIALIZED VIEW customer_totals AS
SELECT c.name AS customer, count(l.order_id) AS lines, sum(l.cents) AS cents
FROM crm.customer c
LEFT JOIN order_lines l ON l.customer = c.name
GROUP BY c.name
"""

CRM = """
CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT, city TEXT);
INSERT INTO customer VALUES
  (1, 'Ada', 'London'), (2, 'Grace', 'Berlin'), (3, 'Edsger', 'Berlin'), (4, 'Barbara', NULL);
"""

SHOP = """
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER, placed DATE);
CREATE TABLE item (order_id INTEGER NOT NULL, product_id INTEGER NOT NULL, quantity INTEGER,
                   PRIMARY KEY (order_id, product_id));
CREATE INDEX orders_customer ON orders (customer_id);
CREATE INDEX item_order ON item (order_id);
CREATE INDEX item_product ON item (product_id);
INSERT INTO orders VALUES
  (1, 1, '2024-03-01'), (2, 2, '2024-03-01'), (3, 2, '2024-03-02'), (4, 3, '2024-03-05');
INSERT INTO item VALUES (1, 1, 2), (1, 2, 1), (2, 2, 4), (3, 3, 1), (4, 1, 3), (4, 3, 6);
"""

STOCK = """
CREATE TABLE product (id INTEGER PRIMARY KEY, title TEXT, cents INTEGER);
INSERT INTO product VALUES (1, 'Notebook', 450), (2, 'Pen', 120), (3, 'Eraser', 80);
"""


def sample_files() -> dict[str, str]:
    """The text files, by their path in the project."""
    return {
        "viewkeeper.yml": PROJECT,
        "views/order_lines.sql": ORDER_LINES,
        "views/berlin_bulk.sql": BIG_ORDERS,
        "views/customer_totals.sql": CUSTOMER_TOTALS,
    }


def make_sample_database(script: str, path: Path) -> None:
    """A database in WAL mode, so that its readers and its writer never wait for each other."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(f"BEGIN;{script}COMMIT;")


DATABASES: dict[str, Callable[[Path], None]] = {
    "crm.db": partial(make_sample_database, CRM),
    "shop.db": partial(make_sample_database, SHOP),
    "stock.db": partial(make_sample_database, STOCK),
}
"""What makes each database, by its path in the project."""


EPILOG = """\b
Examples:
  viewkeeper init shop      a new folder "shop"
  viewkeeper init           the current folder"""


@click.command(epilog=EPILOG)
@click.argument("folder", default=".", type=click.Path(path_type=Path, file_okay=False))
def init(folder: Path) -> None:
    """Make a sample project that runs as it is.

    Writes viewkeeper.yml with every setting and its default, three views, and three small SQLite
    databases in WAL mode. Refuses to overwrite anything.
    """
    wanted = sample_files()
    _refuse_existing(folder, [*wanted, *DATABASES])
    for name, text in wanted.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ProjectError(f"{path}: cannot be written", detail=str(error)) from error
    for name, make in DATABASES.items():
        make(folder / name)
    _show_next_steps(folder, [*wanted, *DATABASES])


def _refuse_existing(folder: Path, names: list[str]) -> None:
    found = [name for name in names if (folder / name).exists()]
    if found:
        raise ProjectError(
            f'folder "{folder}": {", ".join(found)} is already there',
            hint="give another folder: `viewkeeper init FOLDER`; nothing was written",
        )


def _show_next_steps(folder: Path, names: list[str]) -> None:
    click.echo(f"Made a sample project in {folder}:")
    for name in names:
        click.echo(f"  {name}")
    click.echo("\nNext:")
    if folder != Path("."):
        click.echo(f"  cd {folder}")
    click.echo("  viewkeeper explain order_lines")
    click.echo("  viewkeeper run --once")
    click.echo('  viewkeeper query "SELECT * FROM order_lines"')
    click.echo(
        "  viewkeeper run          # keeps them fresh; change a database meanwhile, like this:"
    )
    click.echo(
        "  python -c \"import sqlite3; c = sqlite3.connect('shop.db');"
        " c.execute('INSERT INTO item VALUES (1, 3, 5)'); c.commit()\""
    )
