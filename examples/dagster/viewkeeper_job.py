"""Viewkeeper under Dagster: one pass per tick of a schedule, and a check that views are fresh.

    VIEWKEEPER_PROJECT=/srv/viewkeeper/sales dagster dev -f examples/dagster/viewkeeper_job.py

The pass is `viewkeeper run --once`, a process of its own: it takes the warehouse's lock, reads what
the sources have committed since the last pass, and ends. Sources keep their logs in between. Where
changes shall show within milliseconds, let `viewkeeper run` stay instead, and use the check alone.
"""

import json
import os
import subprocess
import sys
from typing import Any

import dagster as dg

PASS_SECONDS_MAX = 3600.0


class ViewkeeperProject(dg.ConfigurableResource[Any]):
    """A folder with a `viewkeeper.yml`."""

    folder: str

    def call(self, *words: str) -> dict[str, Any]:
        """Run a command that prints JSON; exit code 1 says that some view waits."""
        command = [sys.executable, "-m", "viewkeeper.cli.main", "-p", self.folder, *words]
        run = subprocess.run(command, capture_output=True, text=True, timeout=PASS_SECONDS_MAX)
        if run.returncode not in (0, 1):
            raise dg.Failure(f"viewkeeper {' '.join(words)} failed:\n{run.stderr[-4000:]}")
        return dict(json.loads(run.stdout))


class FreshnessLimit(dg.Config):
    """How old the oldest change may be that a view does not show yet."""

    lag_seconds_max: float = 60.0


@dg.op
def refresh_views(context: dg.OpExecutionContext, project: ViewkeeperProject) -> dict[str, str]:
    """Bring all views up to what the sources have committed now; what waits, with the reason."""
    report = project.call("run", "--once", "--quiet", "--json")
    context.log.info(f"{report['transactions']} transactions, loaded {report['loaded']}")
    return dict(report["waiting"])


@dg.op
def check_freshness(
    config: FreshnessLimit, project: ViewkeeperProject, waiting: dict[str, str]
) -> int:
    """Fail if a view waits, has stopped, or is too old; the number of views that are fresh."""
    views = project.call("status", "--json")["views"]
    problems = dict(waiting)
    for view in views:
        # None is the lag of a view whose source could not be asked.
        lags = [lag["seconds"] for lag in view["lags"]]
        is_late = any(lag is None or lag > config.lag_seconds_max for lag in lags)
        if view["problem"] is not None or is_late:
            problems.setdefault(view["name"], view["problem"] or f"lags by {lags} seconds")
    if problems:
        lines = "\n".join(f"{name}: {reason}" for name, reason in sorted(problems.items()))
        raise dg.Failure(f"not fresh:\n{lines}", allow_retries=False)
    return len(views)


@dg.job
def keep_views_fresh() -> None:
    check_freshness(refresh_views())


definitions = dg.Definitions(
    jobs=[keep_views_fresh],
    schedules=[dg.ScheduleDefinition(job=keep_views_fresh, cron_schedule="*/5 * * * *")],
    resources={"project": ViewkeeperProject(folder=os.environ.get("VIEWKEEPER_PROJECT", "."))},
)
