"""`viewkeeper serve`: the views as tables of a Spark Connect endpoint.

It is a process of its own, which reads the warehouse and takes no lock: a maintainer can run beside
it, be restarted, or not be there.
"""

from __future__ import annotations

from pathlib import Path

import click

from viewkeeper.cli.invocation import Invocation
from viewkeeper.cli.signals import stop_on_signals
from viewkeeper.errors import ProjectError

TOKEN_VARIABLE = "VIEWKEEPER_CONNECT_TOKEN"
EPILOG = """\b
Examples:
  viewkeeper serve                                 at sc://127.0.0.1:15002, until Ctrl-C
  viewkeeper serve 15009                           at another port
  viewkeeper serve 0.0.0.0:15002 --token-file token --certificate cert.pem --key key.pem

\b
Clients, with pip install "pyspark[connect]":
  spark = SparkSession.builder.remote("sc://127.0.0.1:15002").getOrCreate()
  spark.table("order_lines").groupBy("customer").sum("cents").show()
  spark.sql("SELECT * FROM order_lines JOIN totals USING (customer)").show()

Exit codes: 0 ended by Ctrl-C or SIGTERM, 2 usage or project error, or Spark cannot be started."""


@click.command(epilog=EPILOG)
@click.argument("address", default="", metavar="[HOST:PORT]")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"The token that clients must know; or {TOKEN_VARIABLE}.",
)
@click.option(
    "--certificate",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A certificate chain (PEM): clients connect by TLS.",
)
@click.option(
    "--key", type=click.Path(path_type=Path), metavar="FILE", help="Its private key (PEM)."
)
@click.pass_obj
def serve(
    invocation: Invocation,
    address: str,
    token_file: Path | None,
    certificate: Path | None,
    key: Path | None,
) -> int:
    """Serve the views as tables to Spark Connect clients.

    Each action of a client reads all its views as of one commit, the newest. Clients can only read.
    Any other address than one of this machine needs a token and a certificate.  [default:
    127.0.0.1:15002]
    """
    settings = invocation.read_settings()
    from viewkeeper.readers.connect.connect_service import (
        HOST,
        PORT,
        ConnectAddress,
        require_connect,
        serving_connect,
    )
    from viewkeeper.web.listen_address import ListenOption, read_secret, split_address

    if (certificate is None) != (key is None):
        raise click.UsageError("--certificate and --key belong together")
    require_connect()
    host, port = split_address(address, ListenOption("serve", HOST, PORT))
    token = read_secret(token_file, "--token-file", TOKEN_VARIABLE, "the endpoint")
    tls = None if certificate is None or key is None else (certificate, key)
    wanted = ConnectAddress(host, port, token, tls)
    check_reach(wanted.host, token, has_certificate=tls is not None)
    with (
        stop_on_signals("the answers under way") as stop,
        serving_connect(settings, wanted) as service,
    ):
        click.echo(f"the views are at {service.address.url}")
        service.serve_until(stop)
    return 0


def check_reach(host: str, token: str | None, has_certificate: bool) -> None:
    """Refuse an address that others can reach without a token, or with one that they can hear."""
    from viewkeeper.web.request_guard import TOKEN_MIN, is_loopback

    if is_loopback(host):
        return
    if token is None:
        raise ProjectError(
            f"serve {host}: everybody who reaches this address could read the views",
            hint=f"set {TOKEN_VARIABLE}, or --token-file FILE, to a secret of at least "
            f"{TOKEN_MIN} characters",
        )
    if not has_certificate:
        raise ProjectError(
            f"serve {host}: clients send a token by TLS only",
            hint="give --certificate FILE and --key FILE",
        )
