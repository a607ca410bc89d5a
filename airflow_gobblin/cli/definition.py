"""The commands and their arguments. Airflow imports this for every command of its own, so it is light: the rest loads late."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from keyword import iskeyword
from typing import Any

from airflow.cli.cli_config import (
    ARG_OUTPUT,
    ARG_VERBOSE,
    ARG_YES,
    ActionCommand,
    Arg,
    CLICommand,
    GroupCommand,
    lazy_load_command,
)

__all__ = ["get_gobblin_cli_commands"]

_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)(?:([kKMGT])(i?))?B?")
_WHOLE = re.compile("[0-9]{1,18}")


def _count(given: str) -> int:
    """Return a whole number."""
    if not _WHOLE.fullmatch(given):
        raise ArgumentTypeError(f"{given!r} is not a whole number of at most 18 digits")
    return int(given)


def _number(given: str) -> int:
    """Return a whole number that isn't zero."""
    if not (found := _count(given)):
        raise ArgumentTypeError(f"{given!r} is too little: give 1 at the least")
    return found


def _share(given: str) -> float:
    """Return a share, such as 0.05."""
    try:
        found = float(given)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise ArgumentTypeError(f"{given!r} is not a share: give one from 0 to 1, such as 0.05")
    return found


def _size(given: str) -> int:
    """Return the bytes that a size means, such as 500, 20M or 1.5Gi."""
    found = _SIZE.fullmatch(given)
    if found is None:
        raise ArgumentTypeError(f"{given!r} is not a size: give bytes, or 500k, 20M, 1.5G, or 64Ki, 20Mi, 1Gi")
    number, unit, binary = found.groups(default="")
    return int(float(number) * (1024 if binary else 1000) ** " KMGT".index(unit.upper() or " "))


def _arg(*flags: str, **options: Any) -> Arg:
    """Return an argument, as `argparse` takes it."""
    return Arg(flags, **options)  # type: ignore[no-untyped-call]


URN = _arg("urn", help="The dataset's URN")
SOME_URN = _arg("urn", nargs="?", help="A dataset's URN; all datasets without it")
DAG_ID = _arg("-d", "--dag-id", help="The DAG that has the ingestion; needed where there are several ingestions")
INGESTION = _arg("-i", "--ingestion", help="The ingestion's name; needed where the DAG has several")
THIS_DAG = _arg("-d", "--dag-id", required=True, help="The DAG, whose file is imported")
INGESTION_OF_DAG = _arg("-i", "--ingestion", help="Only this one of its ingestions")
JOURNAL = _arg(
    "--journal", metavar="URL", help="The journal of an ingestion that no DAG of this Airflow has; needs --name, too"
)
NAME = _arg("--name", metavar="INGESTION", help="The name of the ingestion in that journal")
TARGET = _arg("--target", metavar="URL", help="The target root of that ingestion, where files are looked at or changed")
MODULE = _arg(
    "--module",
    action="append",
    default=[],
    help="A module with the author's own watermarks, steps or sources, to be imported; may be given again",
)
WHERE = (DAG_ID, INGESTION, JOURNAL, NAME, TARGET, MODULE, ARG_VERBOSE)
REASON = _arg("-r", "--reason", required=True, help="Why; it is kept in the journal, with your name")
TO = _arg(
    "--to", required=True, metavar="POSITION", help="A position, such as 42, 2026-01-31T12:00:00+00:00 or '[5, null]'"
)
LOSSY = _arg(
    "--lossy", action="store_true", help="Take back also what the source doesn't have any more: its rows are lost"
)
KIND = _arg(
    "--kind",
    help="The kind of watermark (long, timestamp, multi_long or your own), of a dataset that has none yet",
)
SEARCH = _arg("--search", default="", metavar="TEXT", help="Only datasets with this text in their URN")
LIMIT = _arg("--limit", type=_count, help="How many to show at the most")
OFFSET = _arg("--offset", type=_count, default=0, help="How many to leave out at the beginning")
STEPS = _arg("--steps", type=_count, default=20, help="How many steps of a pending slot to show (default: 20)")
ACTS = _arg(
    "--acts",
    action="store_true",
    help="Of mirrors: list every act on a file or folder instead, exactly as a run would carry it out",
)
QUICK = _arg(
    "--quick", action="store_true", help="Read no file that is known by its identity: inode, size and time, or ETag"
)
DROPPED = _arg("urn", nargs="?", help="The dataset's URN")
ALL = _arg("--all", action="store_true", help="Drop each dataset of the ingestion, with the claims on their folders")
DELETE_FILES = _arg("--delete-files", action="store_true", help="Let clean-up remove the published files, too")
FOLDER = _arg("folder", help="The claimed folder, below the target root")
FILE = _arg("file", help="A JSON file as `export` writes it, or as another tool does; '-' for the standard input")
OUT_FILE = _arg("-f", "--file", help="Where to write it; without it, to the standard output")
URNS = _arg("--urn", action="append", default=[], metavar="URN", help="Only this dataset; may be given again")
GOBBLIN_KIND = _arg(
    "--kind",
    choices=("long", "multi_long", "timestamp"),
    help="The kind of watermarks that have none, as Gobblin's; with `timestamp`, 20260131120000 is a time, in UTC",
)
LAST_READ = _arg(
    "--last-read",
    action="store_true",
    help="Watermarks without a kind are the last positions that were read, and not the next to read",
)
WITHOUT_FILES = _arg(
    "--without-files",
    action="store_true",
    help="Leave the published files that the state names to the journal that published them, and take over what is covered",
)


def _command(name: str, text: str, *args: Arg, more: str = "", module: str = "commands") -> ActionCommand:
    function = name.replace("-", "_") + "_" * iskeyword(name)
    func = lazy_load_command(f"airflow_gobblin.cli.{module}.{function}")
    return ActionCommand(name=name, help=text, description=f"{text}. {more}".rstrip(), func=func, args=(*args, *WHERE))


def _ahead(name: str, text: str, *args: Arg, more: str) -> ActionCommand:
    """Return a command that imports the file of one DAG; otherwise only `verify` of a mirror and `take-over` do."""
    func = lazy_load_command(f"airflow_gobblin.cli.ahead.{name}")
    return ActionCommand(
        name=name,
        help=text,
        description=f"{text}, without a run. The DAG's file is imported. {more}",
        func=func,
        args=(THIS_DAG, INGESTION_OF_DAG, *args, ARG_OUTPUT, ARG_VERBOSE),
    )


def _action(name: str, text: str, *args: Arg, more: str = "") -> ActionCommand:
    return _command(name, text, *args, REASON, ARG_YES, ARG_OUTPUT, more=more)


def _copy() -> ActionCommand:
    """Return the command for one-off copies, which has the options of a mirror."""
    many = {"action": "append", "default": [], "metavar": "PATTERN"}
    options = (
        _arg(
            "source_tree",
            metavar="SOURCE",
            help="The tree to copy: a path, file:///… or s3://[connection@]bucket/prefix",
        ),
        _arg("target_tree", metavar="TARGET", help="The tree to make equal to it, likewise"),
        _arg("-n", "--dry-run", action="store_true", help="List every act, and do nothing"),
        _arg("--include", help="Only files that match, as rclone's patterns; may be given again", **many),
        _arg("--exclude", help="Leave out files and folders that match; may be given again", **many),
        _arg("--filter-file", default="", metavar="FILE", help="A file of rules as rclone's, tried after those two"),
        _arg(
            "--compare", choices=("size_and_time", "checksum"), default="size_and_time", help="When a file is unchanged"
        ),
        _arg(
            "--existing",
            choices=("fail", "update", "skip"),
            default="fail",
            help="How to treat files of the target that differ (default: fail)",
        ),
        _arg(
            "--delete",
            type=_share,
            metavar="SHARE",
            help="Delete what the source doesn't have, at most this share of the target's files, from 0 to 1",
        ),
        _arg(
            "--keep",
            default="",
            metavar="LETTERS",
            help="The attributes that copies keep: t times, p permission, u user, g group, a ACL, x extended attributes …",
        ),
        _arg("--links", choices=("skip", "copy", "follow"), default="skip", help="How to treat symbolic links"),
        _arg("--empty-folders", action="store_true", help="Copy folders without files, too"),
        _arg("--checksums", action="store_true", help="Take the SHA-256 of each file"),
        _arg(
            "--convert",
            action="append",
            default=[],
            metavar="NAME",
            help="Convert files on the way: gunzip, bunzip2, unzstd, gzip, bzip2 or zstd, these three also with a level, as in "
            "zstd:19; may be given again, for one after another",
        ),
        _arg("--unpack", action="store_true", help="Unpack archives, each into a folder with its name"),
        _arg("--at-least-files", type=_number, metavar="N", help="Publish nothing if the source has fewer files"),
        _arg("--at-least-bytes", type=_size, metavar="SIZE", help="Publish nothing if they have fewer bytes"),
        _arg(
            "--sha256sums",
            metavar="FILE",
            help="Publish nothing unless each file in this list, a file of the source as `sha256sum` writes it, has its content",
        ),
        _arg("--bandwidth", type=_size, metavar="SIZE", help="Read at most so many bytes a second, such as 20M"),
        _arg(
            "--backup",
            metavar="FOLDER",
            help="Keep there what is replaced or deleted: _gobblin/backup in the target, or a folder below --workspace",
        ),
        _arg(
            "--workspace",
            metavar="FOLDER",
            help="Work in _gobblin of this folder, the target or one above it (default: the target)",
        ),
        _arg("-j", "--jobs", type=_number, default=4, help="How many bundles to copy at once (default: 4)"),
        _arg(
            "--journal",
            metavar="URL",
            help="Keep the journal there; by default it is in the target until all is copied",
        ),
    )
    text = "Copy a tree once, as a run of a mirror does, in this process: without a DAG, a scheduler or Spark"
    more = "If it is stopped, it goes on when it is typed again. The exit status is 1 if anything failed."
    func = lazy_load_command("airflow_gobblin.cli.copying.copy")
    args = (*options, ARG_OUTPUT, ARG_VERBOSE)
    return ActionCommand(name="copy", help=text, description=f"{text}. {more}", func=func, args=args)


STAGE = _arg("stage", help="The stage's name")
STAGES = _arg("names", nargs="+", metavar="NAME", help="A stage, or an ingestion whose runs seal versions; or several")
LAST = _arg("--to", metavar="VERSION", help="The last version that stays, such as 2026-03-01T05:00:00+00:00")
START = _arg("--start", action="store_true", help="Take back all versions")


def _of_stage(name: str, text: str, *args: Arg, of: Arg = STAGE, more: str = "") -> ActionCommand:
    """Return a command on a stage, whose name is the ingestion's.

    :param of: the argument that names it.
    """
    func = lazy_load_command(f"airflow_gobblin.cli.pipelines.{name}")
    where = (DAG_ID, JOURNAL, TARGET, MODULE, ARG_VERBOSE)
    return ActionCommand(
        name=name, help=text, description=f"{text}. {more}".rstrip(), func=func, args=(of, *args, ARG_OUTPUT, *where)
    )


OF_STAGES = (
    _of_stage(
        "show",
        "Show a stage and the stages that it is made from: their versions, and how many wait at each input",
    ),
    _of_stage("versions", "List the versions of a stage, the newest first, with what each consumed"),
    _of_stage("why", "Show what a stage waits for, or does next, and why it was taken back"),
    _of_stage(
        "rewind",
        "Take back all versions of stages and ingestions after one; they are made again",
        LAST,
        START,
        REASON,
        ARG_YES,
        of=STAGES,
        more="The stages below follow in their next runs, and are listed. Those above stay as they are, unless named: an "
        "ingestion goes back to what it had sealed up to that version. The DAGs' next runs make the versions again.",
    ),
)


COMMANDS = (
    _ahead(
        "check",
        "See whether the ingestions of a DAG can run: connections, journal, target, tables, columns, types, Spark and Java",
        more="Each finding comes with a way out. The exit status is 1 if a run would fail.",
    ),
    _ahead(
        "plan",
        "Show what a run of a DAG would plan now: its datasets with ranges, work units, weights and packs",
        URNS,
        ACTS,
        more="Nothing is claimed or written. The exit status is 1 if a dataset can't be planned.",
    ),
    _command("datasets", "List the datasets of an ingestion", SEARCH, LIMIT, OFFSET, ARG_OUTPUT),
    _command(
        "show",
        "Show a dataset: watermark, coverage, the pending slot and the state of its steps",
        URN,
        STEPS,
        ARG_OUTPUT,
    ),
    _command("history", "List the slots of a dataset, the newest first", URN, LIMIT, OFFSET, ARG_OUTPUT),
    _command(
        "pending",
        "List the datasets with an unfinished slot, those that failed before they were ever published, the unreadable, and "
        "those that are held until more waits for a batch",
        ARG_OUTPUT,
    ),
    _command(
        "verify",
        "Compare the published files of a dataset, or of all, with its journal; the file sets of a mirror, with their source",
        SOME_URN,
        QUICK,
        ARG_OUTPUT,
        more="Of all datasets only what differs is listed, with a summary. The file of a mirror's DAG is imported. The exit "
        "status is 1 if any file is changed or missing.",
        module="verifying",
    ),
    _command(
        "audit",
        "See that the ranges, rows and files of a dataset, or of all, add up",
        SOME_URN,
        ARG_OUTPUT,
        more="The exit status is 1 if there is a problem.",
    ),
    _action(
        "rewind",
        "Take back everything from a position on, to be extracted and published anew",
        URN,
        TO,
        LOSSY,
        more="The position is widened to the bounds of the units that reach past it. It is refused where the source "
        "had removed or changed rows of these when it was last planned.",
    ),
    _action(
        "set-watermark",
        "Move the watermark forward without ingesting what lies between; or set where the first load starts",
        URN,
        TO,
        KIND,
    ),
    _action(
        "flush",
        "Publish what waits for a dataset, or for all, however little it is for a batch: by a run of the DAG",
        SOME_URN,
        more="It is done when everything that waits at its start is published.",
    ),
    _action("release", "Let a quarantined dataset be recovered again", URN),
    _action("abandon", "Give up the pending slot of a dataset: everything that it published is taken back", URN),
    _action(
        "pause",
        "Let nothing new of a dataset be published until it is resumed",
        URN,
        more="Its watermark stays, and decided slots are still finished.",
    ),
    _action("resume", "Let a paused dataset go on where it stopped", URN),
    _action(
        "drop",
        "Forget a dataset: its published data is nobody's any more, unless it is deleted",
        DROPPED,
        ALL,
        DELETE_FILES,
        more="All datasets of an ingestion are dropped one after the other; if it is stopped, it goes on when it is typed again.",
    ),
    _action("release-claim", "Free a folder that a lost journal or a dropped ingestion claims", FOLDER),
    _action(
        "take-over",
        "Make the table that a dataset is published to its own: no commit of its present owner takes hold any more",
        URN,
        more="The rows in it stay. The file of the DAG is imported, since only it names the table.",
    ),
    _action(
        "move",
        "Let an ingestion go on at the target, and with the source, that its DAG has now",
        more="All that is below the former target must have been copied there, `_gobblin` too. Another DAG may take an "
        "ingestion over by it.",
    ),
    _copy(),
    _command("export", "Write what datasets have come to as JSON", URNS, OUT_FILE),
    _action(
        "import",
        "Take over what another journal or tool knows of datasets",
        FILE,
        URNS,
        GOBBLIN_KIND,
        LAST_READ,
        WITHOUT_FILES,
        more="Each dataset must be new here, or dropped. Published files are not taken over: see --without-files.",
    ),
)
PIPELINE = GroupCommand(name="pipeline", help="View and repair the stages of pipelines", subcommands=OF_STAGES)


def get_gobblin_cli_commands() -> list[CLICommand]:
    """Return the commands that this provider adds to Airflow's."""
    return [
        GroupCommand(
            name="gobblin", help="View and repair the datasets of ingestions", subcommands=(*COMMANDS, PIPELINE)
        )
    ]
