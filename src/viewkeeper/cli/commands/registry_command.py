"""`viewkeeper registry`: serve the order of groups of views, and show how far everybody is.

`serve` owns a store and answers members over HTTP until it is told to stop; `status` asks a
registry, wherever it is, and changes nothing there. `leave`, `forget` and `take-back` are for its
administrator. Tokens come from environment variables: what is on a command line, everybody sees.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from viewkeeper.cli.format import amount_text, as_json, duration_text
from viewkeeper.cli.signals import stop_on_signals
from viewkeeper.cli.terminal import make_console, make_grid, print_note, show_warning
from viewkeeper.errors import ProjectError, suggest_nearest

if TYPE_CHECKING:
    from rich.table import Table

    from viewkeeper.order.registry_protocol import (
        GroupStatus,
        MemberFacts,
        Registry,
        RegistryStatus,
    )

EPILOG = """\b
Examples:
  viewkeeper registry serve --store registry.db --listen 0.0.0.0:8765 --name registry
      --token-env TOKEN --admin-token-env ADMIN_TOKEN --cert registry.pem --key registry.key
  viewkeeper registry status https://registry:8765 --token-env TOKEN --ca ca.pem
  viewkeeper registry leave https://registry:8765 reports --token-env ADMIN_TOKEN --ca ca.pem
  viewkeeper registry status registry.db --json | jq '.groups[] | {name, last, waiting}'

Exit codes: 0 stopped as asked, or every source is reported; 1 a source has no reporter; 2 the
registry cannot be reached, or another service owns its store."""

TOKEN = click.option(
    "--token-env",
    metavar="NAME",
    help="The environment variable that holds the token which members must send.",
)
ADMIN = click.option(
    "--token-env",
    metavar="NAME",
    help="The environment variable that holds the administrator's token of a service.",
)
CA = click.option(
    "--ca",
    metavar="FILE",
    help="Certificates to trust at https://, where the machine does not know them.",
)
YES = click.option("--yes", "-y", is_flag=True, help="Do not ask.")


@click.group(epilog=EPILOG)
def registry() -> None:
    """Serve one order to many warehouses, or show it.

    A registry numbers the transactions of all sources of a group, so that every warehouse applies
    them in the same order. Its store is a SQLite file or a PostgreSQL schema.
    """


@registry.command(epilog=EPILOG)
@click.option("--store", required=True, metavar="URL", help="Where the order is kept.")
@click.option(
    "--listen",
    default="127.0.0.1:8765",
    show_default=True,
    metavar="HOST:PORT",
    help="Where members reach it; port 0 takes a free one.",
)
@TOKEN
@click.option(
    "--admin-token-env",
    metavar="NAME",
    help="The variable that holds the administrator's token, for leave, forget and take-back.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="HOST",
    help="What members call this machine in the address, besides its host name. Repeatable.",
)
@click.option(
    "--cert", metavar="FILE", help="A PEM certificate: serve https:// instead of http://."
)
@click.option("--key", metavar="FILE", help="The certificate's private key, if not in its file.")
def serve(
    store: str,
    listen: str,
    token_env: str | None,
    admin_token_env: str | None,
    names: tuple[str, ...],
    cert: str | None,
    key: str | None,
) -> int:
    """Own a store and answer members until stopped.

    Nothing that was answered is lost, however the service ends. A second service over the same
    store is refused; one whose host died is taken over when its lease has ended.
    """
    from viewkeeper.order.registry_address import open_store
    from viewkeeper.order.service.http_server import ServiceAccess
    from viewkeeper.order.service.registry_service import RegistryService

    address = _parse_address(listen)
    token, admin = (
        _token_of(token_env, "--token-env"),
        _token_of(admin_token_env, "--admin-token-env"),
    )
    if token is not None and token == admin:
        raise click.UsageError("--admin-token-env: members would have the administrator's token")
    if key is not None and cert is None:
        raise click.UsageError("--key: the certificate is missing; name it with --cert")
    _warn_exposed(listen, address[0], token, cert)
    kept = open_store(store)
    service = RegistryService(kept, address, ServiceAccess(token, admin, names, cert, key))
    try:
        with stop_on_signals("the requests under way") as stop:
            service.start()
            print_note(f"serving {kept.name} at {service.url}")
            service.serve_until(stop)
    finally:
        try:
            service.stop()
        finally:
            kept.close()
    return 0


def _warn_exposed(listen: str, host: str, token: str | None, cert: str | None) -> None:
    """What is served to other machines should have a token, and nobody should read it."""
    if host in ("127.0.0.1", "localhost", "::1"):
        return
    if token is None:
        show_warning(f"everybody who reaches {listen} may join this registry; see --token-env")
    if cert is None:
        show_warning(f"whoever sees the traffic to {listen} sees tokens and secrets; see --cert")


@registry.command(epilog=EPILOG)
@click.argument("url")
@click.argument("member")
@YES
@ADMIN
@CA
def leave(url: str, member: str, yes: bool, token_env: str | None, ca: str | None) -> int:
    """Let a member leave for good, so that nobody waits for it.

    Stop it first, and its children: they read its views. Those that stay are put into groups again.
    """
    with closing(_open_registry(url, token_env, ca)) as found:
        members = {m.name for g in found.fetch_status().groups if not g.closed for m in g.members}
        if member not in members:
            raise ProjectError(
                f'registry "{found.name}" has no member "{member}"',
                hint=(
                    "members: "
                    f"{', '.join(sorted(members)) or 'none'}{suggest_nearest(member, members)}"
                ),
            )
        if not yes:
            show_warning(f'views that read those of "{member}" cannot go on afterwards')
            click.confirm("Leave?", abort=True, err=True)
        found.leave_registry(member)
        found.forget_secret(member)
    click.echo(f"{member}: is no member any more")
    return 0


@registry.command(epilog=EPILOG)
@click.argument("url")
@click.argument("member")
@ADMIN
@CA
def forget(url: str, member: str, token_env: str | None, ca: str | None) -> int:
    """Forget a member's secret, so that it can join with a new one.

    For a member that has lost it. Whoever joins first under the name has it then. Groups stay.
    """
    with closing(_open_registry(url, token_env, ca)) as found:
        found.forget_secret(member)
    click.echo(f"{member}: joins with a new secret")
    return 0


@registry.command("take-back", epilog=EPILOG)
@click.argument("url")
@click.argument("group")
@click.argument("source")
@click.argument("position", type=click.IntRange(0, (1 << 63) - 1))
@YES
@ADMIN
@CA
def take_back(
    url: str,
    group: str,
    source: str,
    position: int,
    yes: bool,
    token_env: str | None,
    ca: str | None,
) -> int:
    """Take back ids that a source never had, from a position on.

    Members that wait for them go on, and the source is reported anew behind what is left. Refused
    if a member that reads the source has committed one of them.
    """
    with closing(_open_registry(url, token_env, ca)) as found:
        if not yes:
            show_warning(f'"{source}" is never at {position} or beyond, or members will disagree')
            click.confirm("Take back?", abort=True, err=True)
        count = found.take_back(group, source, position)
    click.echo(f"{group}: {amount_text(count, 'id')} of {source} taken back")
    return 0


@registry.command(epilog=EPILOG)
@click.argument("url")
@click.option("--json", "wants_json", is_flag=True, help="Print one JSON object.")
@click.option("--all", "wants_all", is_flag=True, help="Also closed groups that are done with.")
@TOKEN
@CA
def status(
    url: str, wants_json: bool, wants_all: bool, token_env: str | None, ca: str | None
) -> int:
    """Show groups, members, reporters, and who waits for whom.

    Open groups come first, then closed ones whose order a member still has to take to its end.
    URL is that of a service, or of a store: http://host:port, a path, postgresql://host/database.
    """
    with closing(_open_registry(url, token_env, ca)) as found_registry:
        found = found_registry.fetch_status()
    if not wants_all:
        found = without_done(found)
    if wants_json:
        click.echo(as_json(registry_status_data(found), indent=2))
    else:
        _show_status(found)
    return 1 if any(group.unreported_sources for group in found.groups) else 0


def without_done(found: RegistryStatus) -> RegistryStatus:
    """The status without closed groups that no member has anything to take from any more."""
    now = {member.name for group in found.groups if not group.closed for member in group.members}
    groups = (
        group
        for group in found.groups
        if not group.closed
        or any(each.reached < group.last for each in group.members if each.name in now)
    )
    return replace(found, groups=tuple(groups))


def registry_status_data(found: RegistryStatus) -> dict[str, Any]:
    """The status as plain data, with what the classes compute."""
    body = asdict(found)
    for group, data in zip(found.groups, body["groups"], strict=True):
        data["waiting"] = dict(group.waiting_members)
        data["unreported"] = group.unreported_sources
        data["alone"] = group.is_alone
    return body


def _show_status(found: RegistryStatus) -> None:
    out = make_console()
    out.print(f"registry   {found.registry}", soft_wrap=True, markup=False)
    served = f"{found.owner.holder}, epoch {found.owner.epoch}" if found.owner else "not served"
    out.print(f"served by  {served}", soft_wrap=True, markup=False)
    if not found.groups:
        out.print("\nno groups yet")
    for group in found.groups:
        out.print(f"\ngroup {group.name}: {group_words(group)}", markup=False)
        out.print(f"identity {group.identity}\n")
        out.print(member_table(group))
        if group.reports:
            out.print()
            out.print(report_table(group))
        for source in group.unreported_sources:
            out.print(f'\nsource "{source}": nobody reports it now', markup=False)


def group_words(group: GroupStatus) -> str:
    """What kind of group it is, and how long its order."""
    if group.closed:
        return f"closed after {amount_text(group.last, 'id')}"
    return "one member, which needs no order" if group.is_alone else amount_text(group.last, "id")


def member_table(group: GroupStatus) -> Table:
    """One line per member."""
    table = make_grid("member", "committed>", "behind>", "waits for", "last heard", "reads")
    for member in group.members:
        waits = ", ".join(group.waiting_members.get(member.name, ()))
        facts = (f"{member.reached:,}", f"{group.last - member.reached:,}", waits)
        heard = f"{duration_text(max(0.0, member.seen))} ago"
        table.add_row(member.name, *facts, heard, reading_words(member.facts))
    return table


def reading_words(facts: MemberFacts) -> str:
    """What a member reads: sources with their tables, then members, then its label."""
    sources = [
        f"{name} ({', '.join(tables)})" if tables else name
        for name, tables in facts.sources.items()
    ]
    words = [*sources, *(f"views of {parent}" for parent in facts.parents)]
    label = f", together as {facts.together}" if facts.together else ""
    return (", ".join(words) or "nothing") + label


def report_table(group: GroupStatus) -> Table:
    """One line per source that was ever reported."""
    table = make_grid("source", "position>", "reported by", "lease")
    for each in group.reports:
        lease = f"{duration_text(each.lease)} left" if each.lease > 0 else "ended"
        position = "" if each.position is None else f"{each.position:,}"
        table.add_row(each.source, position, each.member, lease)
    return table


def _parse_address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise click.UsageError(f"--listen {listen}: write HOST:PORT, for example 127.0.0.1:8765")
    return host.strip("[]"), int(port)


def _token_of(variable: str | None, option: str) -> str | None:
    from viewkeeper.order.registry_address import resolve_variables

    if variable is None:
        return None
    token = resolve_variables(f"${{{variable}}}")
    if not token:
        raise click.UsageError(f"{option}: the environment variable {variable} is empty")
    return token


def _open_registry(url: str, token_env: str | None, ca: str | None) -> Registry:
    from viewkeeper.order.registry_address import open_registry

    return open_registry(url, token=f"${{{token_env}}}" if token_env else None, ca=ca)
