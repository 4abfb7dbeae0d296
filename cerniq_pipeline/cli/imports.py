"""`cerniq import`: bring a file of leads in, and say what became of every row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from cerniq_pipeline.cli.context import (
    AsJson,
    clock,
    complaints,
    console,
    engine,
    print_json,
    secret,
)
from cerniq_pipeline.domain.leads import LawfulBasis

if TYPE_CHECKING:
    from cerniq_pipeline.domain.contacts import Basis
    from cerniq_pipeline.services.import_leads import ImportSummary


def import_file(
    file: Annotated[Path, typer.Argument(help="CSV, XLSX or Parquet; recognised by its content.")],
    *,
    tenant: Annotated[str, typer.Option(help="Whose leads these are.")] = "demo",
    basis: Annotated[
        LawfulBasis | None,
        typer.Option(help="Why these leads may be contacted, for rows that do not say it."),
    ] = None,
    basis_source: Annotated[
        str | None, typer.Option(help="Where that can be looked up, e.g. a form or a contract.")
    ] = None,
    basis_date: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d", "%d.%m.%Y"], help="Since when."),
    ] = None,
    sheet: Annotated[
        str | None, typer.Option(help="Sheet of a workbook; the first visible one if not given.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Do everything, then take it back.")
    ] = False,
    as_json: AsJson = False,
    errors: Annotated[
        Path | None,
        typer.Option(help="Where rows with problems are listed; beside FILE if not given."),
    ] = None,
) -> None:
    """Import leads: numbers normalised, duplicates merged, continued after an interruption.

    Values that a lead already has are kept; empty ones are filled. Who asked us to stop comes in
    opted out.
    """
    from cerniq_pipeline.services.import_leads import ImportOptions, import_leads

    started = clock().now()
    vouched = _vouched(basis, basis_source, basis_date, today=started.date())
    options = ImportOptions(basis=vouched, sheet=sheet, errors=errors, dry_run=dry_run)
    try:
        with _progress_bar() as show:
            summary = import_leads(
                engine(),
                file,
                tenant_id=tenant,
                options=options,
                secret=secret(),
                now=started,
                progress=show,
            )
    except KeyboardInterrupt:
        _say(complaints, "stopped; the same command continues where it was")
        raise typer.Exit(130) from None
    if summary.already_imported:
        _say(complaints, f"already imported: {file}; nothing was changed")
    seconds = round((clock().now() - started).total_seconds(), 3)
    if as_json:
        print_json(
            {
                "rows": summary.rows,
                "good": summary.good,
                "bad": summary.bad,
                "new": summary.new,
                "merged": summary.merged,
                "suppressed": summary.suppressed,
                "without_basis": summary.without_basis,
                "columns": summary.columns,
                "kept_columns": summary.kept_columns,
                "errors_file": str(summary.errors_file) if summary.errors_file else None,
                "seconds": seconds,
            }
        )
    else:
        _print_summary(summary, file, seconds=seconds, dry_run=dry_run)


def _vouched(
    basis: LawfulBasis | None, source: str | None, since: datetime | None, *, today: date
) -> Basis | None:
    from cerniq_pipeline.domain.contacts import basis_on, clean_text

    source = clean_text(source or "")
    if basis is None and not source and since is None:
        return None
    if basis is None or not source or since is None:
        raise typer.BadParameter("--basis, --basis-source and --basis-date go together")
    if since.date() > today:
        raise typer.BadParameter("--basis-date is in the future")
    return basis_on(basis, source, since.date())


@contextmanager
def _progress_bar() -> Iterator[Callable[[int, int | None], None]]:
    """A bar with rows, rows per second and the time left; nothing where nobody looks."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=complaints,
        transient=True,
        disable=not complaints.is_terminal,
    ) as bar:
        task = bar.add_task("reading", total=None, rate="")

        def show(done: int, total: int | None) -> None:
            speed = bar.tasks[task].speed
            bar.update(
                task,
                completed=done,
                total=total,
                rate=f"{speed:,.0f} rows/s" if speed else "",
                description="merging" if done == total else "reading",
            )

        yield show


def _print_summary(summary: ImportSummary, file: Path, *, seconds: float, dry_run: bool) -> None:
    if dry_run and not summary.already_imported:
        _say(console, f"tried out, nothing was changed: {file}")
    elif summary.resumed_after:
        _say(console, f"continued after row {summary.resumed_after:,}: {file}")
    table = Table("", "rows", title=summary.format, title_justify="left")
    table.columns[1].justify = "right"
    for name, count in (
        ("read", summary.rows),
        ("refused", summary.bad),
        ("new leads", summary.new),
        ("merged into a lead", summary.merged),
        ("leads that asked us to stop", summary.suppressed),
        ("leads without a lawful basis", summary.without_basis),
        ("kept without some value", summary.noted),
        ("with a landline, not offered to WhatsApp", summary.landlines),
    ):
        table.add_row(name, f"{count:,}")
    console.print(table)
    read = ", ".join(f"{name} = {meaning}" for name, meaning in summary.columns.items())
    _say(console, f"columns recognised: {read}")
    if summary.kept_columns:
        _say(console, f"columns kept under their own names: {', '.join(summary.kept_columns)}")
    if summary.without_basis:
        _say(
            console,
            "leads without a lawful basis are never contacted; import the file again with --basis,"
            " --basis-source and --basis-date",
        )
    for warning in summary.warnings:
        _say(console, warning)
    if summary.errors_file:
        _say(console, f"what is wrong, line by line: {summary.errors_file}")
    _say(console, f"{seconds:.1f} s")


def _say(to: Console, line: str) -> None:
    to.print(line, markup=False, highlight=False, soft_wrap=True)
