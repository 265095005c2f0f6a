"""The driver of a project on a cluster, as a process that can be killed.

    python -m tests.cluster.driver PROJECT

It does what lines on its input ask for, and says when it begins and what came of it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import viewkeeper


def main(folder: Path) -> None:
    with viewkeeper.open(folder) as project:
        print("ready", flush=True)
        for line in sys.stdin:
            print(f"began {line.strip()}", flush=True)
            match line.strip():
                case "refresh":
                    report = project.refresh(strict=False)
                    said = {
                        "loaded": dict(report.loaded),
                        "batches": report.batches,
                        "on_spark": report.batches_on_spark,
                        "waiting": {name: str(why) for name, why in report.waiting.items()},
                    }
                    print(f"done {json.dumps(said)}", flush=True)
                case "verify":
                    verdicts = {each.view: each.ok for each in project.verify()}
                    print(f"done {json.dumps(verdicts)}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
