"""Every algorithm of the papers on real databases, with updates that come in the middle of it.

The sources are changed just before questions are answered, so that updates interfere with the
maintenance of others as in the papers' examples, and every time in the same way. What is compared
with is SQLite's own answer.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.shop import LINES, Shop, rows_of
from viewkeeper.engine.algorithms import algorithm_runner
from viewkeeper.engine.algorithms.asker import Asker
from viewkeeper.engine.project import Project
from viewkeeper.engine.report import SilentObserver
from viewkeeper.errors import ProjectError, SourceAwayError
from viewkeeper.maintain.algorithm_catalogue import KINDS
from viewkeeper.maintain.algorithm_protocol import AskAction, Level, TransactionKind
from viewkeeper.updates.source_protocol import Answer
from viewkeeper.warehouse.metadata.head import Head
from viewkeeper.warehouse.metadata.record import Advance, ViewChange
from viewkeeper.warehouse.store import Store

Before = Callable[[Callable[[], None]], None]

SOLD = """SELECT c.name, p.title, l.quantity
FROM shop.orders o
JOIN crm.customer c ON c.id = o.customer_id
JOIN shop.line l ON l.order_id = o.id
JOIN catalogue.product p ON p.id = l.product_id
WHERE l.quantity > 0"""

PAIRED = """SELECT a.id AS one, b.quantity FROM shop.line a
JOIN shop.line b ON a.product_id = b.order_id JOIN shop.orders o ON o.id = b.order_id"""

MANY = [name for name, kind in KINDS.items() if not kind.one_source]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return shop_with_keys(tmp_path, {"sold": SOLD})


def shop_with_keys(folder: Path, views: Mapping[str, str]) -> Shop:
    """The shop with lines that have a key."""
    shop = Shop(folder, views)
    shop.fill()
    with shop.database("shop") as database:
        database.execute(
            "CREATE TABLE line (id INTEGER PRIMARY KEY, order_id INTEGER, product_id INTEGER,"
            " quantity INTEGER)"
        )
        rows = [(i, i % 40, i % 5, i % 4) for i in range(60)]
        database.executemany("INSERT INTO line VALUES (?, ?, ?, ?)", rows)
    return shop


def change(shop: Shop, rng: random.Random) -> None:
    """One transaction, of one or several changes."""
    source, statements = rng.choice(
        [
            ("crm", [f"UPDATE customer SET name = name || '!' WHERE id = {rng.randrange(8)}"]),
            ("crm", [f"DELETE FROM customer WHERE id = {rng.randrange(8)}"]),
            ("crm", [f"INSERT OR REPLACE INTO customer VALUES ({rng.randrange(8)}, 'n', 'x')"]),
            ("shop", [f"DELETE FROM line WHERE id % 20 = {rng.randrange(20)}"]),
            (
                "shop",
                [
                    f"INSERT OR REPLACE INTO line VALUES ({rng.randrange(70)}, {n}, {n % 5}, 2)"
                    for n in (rng.randrange(40), rng.randrange(40))
                ],
            ),
            ("shop", [f"UPDATE orders SET customer_id = {rng.randrange(8)} WHERE id % 9 = 1"]),
            (
                "shop",
                [
                    f"DELETE FROM orders WHERE id = {rng.randrange(40)}",
                    f"INSERT OR REPLACE INTO orders VALUES ({rng.randrange(40)}, 3, NULL)",
                ],
            ),
            (
                "catalogue",
                [f"UPDATE product SET title = title || '.' WHERE id = {rng.randrange(5)}"],
            ),
        ]
    )
    shop.execute(source, *statements)


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> Before:
    return before_answers(monkeypatch)


def before_answers(monkeypatch: pytest.MonkeyPatch) -> Before:
    """Makes something happen before every question of a machine is answered."""
    answers = Asker._read_answers

    def set_up(happens: Callable[[], None]) -> None:
        def after(asker: Asker, ask: AskAction) -> tuple[Answer, ...]:
            happens()
            return answers(asker, ask)

        monkeypatch.setattr(Asker, "_read_answers", after)

    return set_up


def opened(shop: Shop, spark: SparkSession, algorithm: str) -> Project:
    project = viewkeeper.open(shop.folder, spark=spark)
    promised = KINDS[algorithm].promise[TransactionKind.LOCAL]
    project.settings = project.settings.with_algorithm(algorithm, promised.lower_name)
    return project


@pytest.mark.parametrize("algorithm", MANY)
def test_every_algorithm_ends_right_under_interference(
    shop: Shop, spark: SparkSession, before: Before, algorithm: str
) -> None:
    rng = random.Random(7)
    left = [12]

    def interfere() -> None:
        if left[0]:
            left[0] -= 1
            change(shop, rng)

    before(interfere)
    with opened(shop, spark, algorithm) as project:
        project.refresh()
        for _ in range(3):
            left[0] = 4
            for _ in range(3):
                change(shop, rng)
            assert project.refresh().waiting == {}
            left[0] = 0
            project.refresh()
            if algorithm != "conventional":
                assert rows_of(project.view("sold")) == shop.recomputed(SOLD)
        if algorithm != "conventional":
            assert all(verification.ok for verification in project.verify())


def test_eca_has_one_source(shop: Shop, spark: SparkSession, before: Before) -> None:
    shop.define("paired", PAIRED)
    with opened(shop, spark, "eca") as project:
        waiting = project.refresh(strict=False).waiting
        assert {*waiting} == {"sold"}
        assert "eca is for views over one source" in waiting["sold"]
    (shop.folder / "views" / "sold.sql").unlink()
    rng = random.Random(3)
    before(lambda: change(shop, rng) if rng.random() < 0.2 else None)
    with opened(shop, spark, "eca") as project:
        project.refresh()
        for _ in range(4):
            change(shop, rng)
            project.refresh()
        project.refresh()
        assert rows_of(project.view("paired")) == shop.recomputed(PAIRED)


@pytest.mark.parametrize("algorithm", ["sweep", "pvm_cc", "c_t_strobe"])
def test_complete_algorithms_keep_every_state(
    shop: Shop, spark: SparkSession, before: Before, algorithm: str
) -> None:
    rng = random.Random(11)
    before(lambda: change(shop, rng) if rng.random() < 0.3 else None)
    with opened(shop, spark, algorithm) as project:
        project.refresh()
        for _ in range(5):
            change(shop, rng)
            project.refresh()
        (verification,) = project.verify(every_state=True)
        assert verification.ok
        assert verification.states > 5


def test_a_level_below_strong_must_be_asked_for(shop: Shop, spark: SparkSession) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.settings = project.settings.with_algorithm("strobe", None)
        with pytest.raises(ProjectError, match="strobe promises convergence here") as caught:
            project.refresh()
        assert "--level convergence" in str(caught.value)


def test_keys_are_needed_and_hidden(shop: Shop, spark: SparkSession) -> None:
    with opened(shop, spark, "t_strobe") as project:
        project.refresh()
        view = project.view("sold")
        assert view.arrow().column_names == ["name", "title", "quantity"]
        assert rows_of(view) == shop.recomputed(SOLD)
        assert view.head.hidden
    with (
        viewkeeper.open(shop.folder, spark=spark) as project,
        pytest.raises(ProjectError, match="viewkeeper refresh sold"),
    ):
        project.refresh()
    (shop.folder / "views" / "sold.sql").unlink()
    shop.define("lines", LINES)
    with (
        opened(shop, spark, "t_strobe") as project,
        pytest.raises(ProjectError, match=r"needs a key of every relation, and shop.item has none"),
    ):
        project.refresh()


def test_each_view_may_have_its_own_algorithm(shop: Shop, spark: SparkSession) -> None:
    shop.define("lines", LINES)
    with (shop.folder / "viewkeeper.yml").open("a") as file:
        file.write("views:\n  sold: {algorithm: pvm, parallel: 3, level: convergence}\n")
    rng = random.Random(5)
    with viewkeeper.open(shop.folder, spark=spark) as project:
        assert project.settings.algorithm_of("sold").options == {"parallel": 3}
        project.refresh()
        for _ in range(6):
            change(shop, rng)
        project.refresh()
        for name, sql in shop.views.items():
            assert rows_of(project.view(name)) == shop.recomputed(sql)


REPORTS = {
    "totals": "SELECT s.title, count(*) AS n, sum(s.quantity) AS quantity FROM sold s "
    "GROUP BY s.title",
    "grouped": "SELECT l.order_id, count(*) AS n FROM shop.line l GROUP BY l.order_id",
}


@pytest.mark.parametrize("name", REPORTS)
def test_reports_have_no_other_algorithm(shop: Shop, spark: SparkSession, name: str) -> None:
    """Neither one over tables nor one over views; the way out is to name the join."""
    shop.define(name, REPORTS[name])
    with (shop.folder / "viewkeeper.yml").open("a") as file:
        file.write(f"views:\n  {name}: {{algorithm: sweep}}\n")
    with viewkeeper.open(shop.folder, spark=spark) as project:
        waiting = project.refresh(strict=False).waiting
        assert {*waiting} == {name}
        assert "only batch_sweep maintains more than joins of tables of sources" in waiting[name]
        assert "name the join as a view of its own with that algorithm" in waiting[name]


def test_a_report_reads_its_parent_up_to_the_mark(
    shop: Shop, spark: SparkSession, before: Before, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PVM commits ahead of its mark; what is ahead is in no state of the report above it."""
    shop.define("totals", REPORTS["totals"])
    with (shop.folder / "viewkeeper.yml").open("a") as file:
        file.write("views:\n  sold: {algorithm: pvm, parallel: 3, level: convergence}\n")
    commit, marks = Store.commit, list[tuple[int, int, int]]()

    def watched(
        store: Store,
        changes: Iterable[ViewChange],
        plan: int | None = None,
        kept: Sequence[bytes] = (),
    ) -> Head:
        head = commit(store, changes, plan, kept)
        sold, totals = (head.views.get(each) for each in ("sold", "totals"))
        if sold is not None and totals is not None:
            marks.append((totals.ts, sold.ts, sold.reach_ts))
        return head

    rng = random.Random(5)
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        monkeypatch.setattr(Store, "commit", watched)
        for _ in range(3):
            before(slow_first())
            with project.open_maintainer("test", SilentObserver()) as keeper:
                keeper.start_run()
                for _ in range(6):
                    change(shop, rng)
                    keeper.see_commits()
                keeper.maintain_views()
        assert all(child <= mark for child, mark, _ in marks), marks
        assert any(reach > mark for _, mark, reach in marks), "nothing was committed ahead"
        assert project.refresh().waiting == {}
        derived = REPORTS["totals"].replace("sold s", f"({SOLD}) s")
        assert rows_of(project.view("totals")) == shop.recomputed(derived)
        assert all(each.ok for each in project.verify(every_state=True))


class Death(SystemExit):
    """The process ends here."""


def test_commits_out_of_order_survive_a_crash_between_them(
    shop: Shop, spark: SparkSession, before: Before, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PVM dies after a commit ahead of the mark; another algorithm finishes what is open."""
    die_ahead(shop, spark, before, monkeypatch)
    with viewkeeper.open(shop.folder, spark=spark) as project:
        assert project.view("sold").head.ahead
    with opened(shop, spark, "batch_sweep") as project:
        project.refresh()
        view = project.view("sold")
        assert not view.head.ahead
        assert rows_of(view) == shop.recomputed(SOLD)


def die_ahead(
    shop: Shop, spark: SparkSession, before: Before, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maintain by PVM until something is committed ahead of the mark."""
    rng = random.Random(2)
    with opened(shop, spark, "pvm") as project:
        project.refresh()
        with project.open_maintainer("test", SilentObserver()) as maintainer:
            maintainer.start_run()
            for _ in range(8):
                change(shop, rng)
                maintainer.see_commits()
            commit = Store.commit

            def dying(
                store: Store,
                changes: Iterable[ViewChange],
                plan: int | None = None,
                kept: Sequence[bytes] = (),
            ) -> Head:
                made = list(changes)
                head = commit(store, made, plan, kept)
                if any(isinstance(change, Advance) and change.ahead for change in made):
                    raise Death
                return head

            before(slow_first())
            monkeypatch.setattr(Store, "commit", dying)
            with pytest.raises(Death):
                maintainer.maintain_views()
    monkeypatch.undo()


def slow_first() -> Callable[[], None]:
    """The first question takes longer than the others, so that later updates end earlier."""
    lock, first = threading.Lock(), [True]

    def wait() -> None:
        with lock:
            mine, first[0] = first[0], False
        if mine:
            time.sleep(0.5)

    return wait


def test_a_source_that_goes_away_leaves_what_is_committed(
    shop: Shop, spark: SparkSession, before: Before, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(shop, spark, "sweep") as project:
        project.refresh()
        rows = rows_of(project.view("sold"))
        shop.execute("crm", "UPDATE customer SET name = 'other'")

        def away() -> None:
            raise SourceAwayError("shop", "it does not answer")

        before(away)
        assert "sold" in project.refresh().waiting
        assert rows_of(project.view("sold")) == rows
        monkeypatch.undo()
        project.refresh()
        assert rows_of(project.view("sold")) == shop.recomputed(SOLD)


def test_an_algorithm_that_finds_no_quiet_moment_lets_others_have_their_turn(
    shop: Shop, spark: SparkSession, before: Before, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Updates come before every answer; Strobe's family waits, gives up, and says why."""
    monkeypatch.setattr(algorithm_runner, "QUIET_SECONDS", 0.5)
    numbers = count(1000)
    with opened(shop, spark, "t_strobe") as project:
        project.refresh()
        before(lambda: shop.execute("shop", f"INSERT INTO line VALUES ({next(numbers)}, 1, 1, 1)"))
        shop.execute("shop", "INSERT INTO line VALUES (999, 2, 2, 2)")
        rows = rows_of(project.view("sold"))
        report = project.refresh()
        assert "no quiet moment within" in report.waiting["sold"]
        assert rows_of(project.view("sold")) == rows
        before(lambda: None)
        # A busy machine may need longer than half a second for what is quiet.
        monkeypatch.setattr(algorithm_runner, "QUIET_SECONDS", 60.0)
        assert project.refresh().waiting == {}
        assert rows_of(project.view("sold")) == shop.recomputed(SOLD)


def test_a_run_ends_when_it_is_told_to(shop: Shop, spark: SparkSession, before: Before) -> None:
    stop = threading.Event()
    numbers = count(1000)

    def insert() -> None:
        number = next(numbers)
        shop.execute("shop", f"INSERT INTO line VALUES ({number}, 1, 1, 1)")
        if number == 1010:
            stop.set()

    with opened(shop, spark, "g_strobe") as project:
        project.refresh()
        before(insert)
        shop.execute("shop", "INSERT INTO line VALUES (999, 2, 2, 2)")
        project.run(stop=stop)
        before(lambda: None)
        project.refresh()
        assert rows_of(project.view("sold")) == shop.recomputed(SOLD)


def test_unknown_words_are_refused_with_the_nearest(shop: Shop, spark: SparkSession) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        with pytest.raises(ProjectError, match='did you mean "sweep"'):
            project.settings.with_algorithm("swep", None)
        with pytest.raises(ProjectError, match='did you mean "convergence"'):
            project.settings.with_algorithm("strobe", "convergance")
    assert Level.STRONG.lower_name == "strong"
