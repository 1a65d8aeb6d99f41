"""`stompcodec spark-env`: print the environment that `spark-submit` needs, as lines for a shell."""

from __future__ import annotations

import json
import shlex
import sys

import click

from stompcodec.errors import MissingExtraError, StompError


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(as_json: bool) -> None:
    """Print the variables that Spark needs: a Java, and this Python.

    \b
      eval "$(stompcodec spark-env)"
      spark-submit job.py

    The Java is the one of JAVA_HOME or PATH if Spark can use it, otherwise the one installed with stompcodec[spark].
    Variables for Python that are set already are kept.
    """
    from stompcodec.spark.java import spark_env

    try:
        variables = spark_env()
    except MissingExtraError as error:
        raise click.ClickException(f"Spark finds no Java 17 or newer: {error}") from None
    except StompError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(json.dumps(variables))
        return
    for name, value in variables.items():
        click.echo(f'set "{name}={value}"' if sys.platform == "win32" else f"export {name}={shlex.quote(value)}")
