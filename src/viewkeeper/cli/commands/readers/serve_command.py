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
        serving_connect,
    )
    from viewkeeper.web.listen_address import ListenOption
    from viewkeeper.web.request_guard import is_loopback

    if (certificate is None) != (key is None):
        raise click.UsageError("--certificate and --key belong together")
    option = ListenOption("serve", HOST, PORT, "--token-file", TOKEN_VARIABLE)
    host, port = option.split_address(address)
    token = option.read_secret(token_file)
    option.require_secret(host, token)
    tls = None if certificate is None or key is None else (certificate, key)
    if tls is None and not is_loopback(host):
        raise ProjectError(
            f"serve {host}: clients send a token by TLS only",
            hint="give --certificate FILE and --key FILE",
        )
    wanted = ConnectAddress(host, port, token, tls)
    with (
        stop_on_signals("the answers under way") as stop,
        serving_connect(settings, wanted) as service,
    ):
        click.echo(f"the views are at {service.address.url}")
        service.serve_until(stop)
    return 0
