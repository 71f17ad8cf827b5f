"""The `trainerd` command. The only place where errors become exit codes. It never imports TensorFlow."""

from __future__ import annotations

import os
import sys
import traceback

import click

from trainerd.cli.group import cli
from trainerd.errors import TrainerdError, UsageError, full_message


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit with its code."""
    try:
        code = cli.main(arguments, prog_name="trainerd", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(UsageError.exit_code)
    except click.UsageError as error:
        click.echo(f"trainerd: {error.format_message()}\n{_see_help(error)}", err=True)
        sys.exit(UsageError.exit_code)
    except TrainerdError as error:
        if not error.was_shown:
            click.echo(_for_stderr(f"trainerd: {full_message(error)}"), err=True)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        # The reader of a pipe has gone, as with `trainerd logs | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception:
        traceback.print_exc()
        sys.exit(TrainerdError.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def _for_stderr(text: str) -> str:
    """In a journal, what is printed has the level of an error only where each line says so; see sd-daemon(3)."""
    from logging_journald import check_journal_stream

    return "\n".join(f"<3>{line}" for line in text.splitlines()) if check_journal_stream() else text


def _see_help(error: click.UsageError) -> str:
    command = error.ctx.command_path if error.ctx else "trainerd"
    return f"See `{command} --help`."
