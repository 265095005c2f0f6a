"""Where a warehouse is in object storage, as a value that can be sent to other machines.

Its options are those of the project file as they stand there: a secret is a reference like
`${NAME}` to an environment variable, which is looked up where the storage is opened. So no secret
is part of a job, and every machine needs the variable.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ObjectAddress:
    """Where a warehouse is in object storage, and how that is reached.

    `options` are those of the project file, secrets as references; `local` is the folder for files
    of this machine.
    """

    url: str
    options: tuple[tuple[str, str], ...] = ()
    local: str = ""

    @property
    def scheme(self) -> str:
        """The service: `s3`, `gs` or `az`."""
        return self.url.partition(":")[0]
