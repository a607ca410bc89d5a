"""Mirrors, from listing to DONE, against the programs that copy trees.

    python -m tests.benchmarks.mirrors --rounds 3

Ours is a program whose Spark session has started, and mirrored a few other files, before the clock runs; plan, copy, decision
and all acts are counted. Peers are whole programs, which start in some hundredths of a second; the start of DistCp, which takes
seconds, is measured with a tree of one file and taken off. No one takes checksums, and each has everything on the disk at its
end: peers are followed by `sync -f`. Just before the clock of each, the source on disk is read, and the large files of the
contender before are removed, so that all find the same in memory, and are given memory that was freed just now. CPU time is that
of the client's processes. The S3-like server is a versitygw on this machine and on its disk.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.benchmarks.contenders.mirror import CONNECTION
from tests.benchmarks.contenders.reporting import begin
from tests.benchmarks.measure import SEED, Contender, Once, alternately, run_program
from tests.benchmarks.peers import FOLDER, jars, peers_python, s5cmd
from tests.benchmarks.results import JSON, Row, Target, keep, rows_of
from tests.services import s3
from tests.services.environment import use_environment

OURS = "airflow_gobblin, Spark tasks in local[2]"
RCLONE, RSYNC, CP = "rclone copy and sync -f", "rsync -a and sync -f", "cp -r and sync -f"
DISTCP, S5CMD = "Hadoop DistCp and sync -f, without its start", "s5cmd cp"
HADOOP = "3.5.0"
SMALL = 4096
FOLDER_FILES = 100
"""The number of small files in a folder."""
WARM_FILES = 4 * FOLDER_FILES
_DISTCP_ROUNDS = 2
_SLICE = 8 << 20
_LONGEST = 1800
Copy = Callable[[str, str], Sequence[str]]
"""The command that copies a tree, given source and target."""


# The programs


def make_tree(folder: Path, files: int, size: int) -> Path:
    """Write files of random bytes, all on the disk at the end."""
    chance = random.Random(SEED)
    for number in range(files):
        path = folder / f"{number // FOLDER_FILES:04d}" / f"{number:06d}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for start in range(0, size, _SLICE):
                file.write(chance.randbytes(min(_SLICE, size - start)))
        os.utime(path, (1_700_000_000,) * 2)  # older than any store's copy of it, which keeps seconds
    os.sync()
    return folder


def spread(folder: Path) -> None:
    """Let ext4 put each folder that is made in one into another part of the disk.

    For minutes it uses no freed inode again, and looks at each of them for every new file: a contender that came to the part
    where a former measurement was removed would pay for that, ten times the price of a file, and the others wouldn't.
    """
    subprocess.run(["chattr", "+T", str(folder)], capture_output=True, check=False)  # other file systems know none


def ours(source: str, target: str, warm: tuple[str, str], runs: int, access: s3.S3Access | None, own: Path) -> Once:
    """This package.

    :param warm: another source and target, mirrored first.
    :param runs: the last of which is measured.
    """
    secrets = {CONNECTION: access.connection} if access else {}
    asked = {"source": source, "target": target, "warm_source": warm[0], "warm_target": warm[1], "runs": runs}
    return run_program(Path(sys.executable), "mirror", {"folder": own, **asked}, secrets=secrets)


def program(
    command: Sequence[str],
    own: Path,
    synced: Path | None = None,
    environment: Mapping[str, str] | None = None,
    *,
    source: str = "",
) -> Once:
    """Run a program, and have everything below a folder on the disk.

    :param source: as of `begin`.
    """
    begin(own, source)
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    _do(command, environment)
    copied = time.perf_counter()
    if synced is not None:
        _do(["sync", "-f", str(synced)])
    ended, after = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Once(ended - started, {"copy": copied - started, "sync": ended - copied}, cpu=cpu)


def _do(command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    # rclone refuses a bundle of certificates, and there is no server with one here
    inherited = {name: value for name, value in os.environ.items() if name != "AWS_CA_BUNDLE"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=inherited | dict(environment or {}), timeout=_LONGEST
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")


def rclone(source: str, target: str) -> list[str]:
    return [
        "rclone",
        "copy",
        "--ignore-checksum",
        "--transfers=16",
        "--checkers=16",
        "--fast-list",
        f"--config={os.devnull}",
        source,
        target,
    ]


def rsync(source: str, target: str) -> list[str]:
    return ["rsync", "-a", f"{source}/", target]


def cp(source: str, target: str) -> list[str]:
    return ["cp", "-r", source, target]


def distcp(classes: str, source: str, target: str) -> list[str]:
    """DistCp, with as many maps at once as help, and without its limit of 100 MB/s for each."""
    maps = [f"-D{name}=4" for name in ("mapreduce.local.map.tasks.maximum", "mapreduce.job.maps")]
    options = ["-m", "4", "-bandwidth", "10000", "-update", "-skipcrccheck"]
    command = [f"{os.environ['JAVA_HOME']}/bin/java", "-XX:-UsePerfData", "-cp", classes]
    command += [
        "org.apache.hadoop.tools.DistCp",
        *maps,
    ]
    return [
        *command,
        f"-Dhadoop.tmp.dir={tempfile.gettempdir()}/hadoop",
        *options,
        f"file://{source}",
        f"file://{target}",
    ]


def hadoop_classes() -> str:
    artifacts = (f"org.apache.hadoop:{name}:{HADOOP}" for name in ("hadoop-client", "hadoop-distcp"))
    return os.pathsep.join(map(str, jars(*artifacts)))


# Local disk


def on_disk(copy: Copy, source: Path, own: Path, *, again: bool) -> Once:
    """A program on disk.

    :param again: it has copied everything before the clock runs.
    """
    target = own / "target"
    if again:
        program(copy(str(source), str(target)), own, own)
    return replace(program(copy(str(source), str(target)), own, own, source=str(source)), facts=_counted(target))


def distcp_on_disk(classes: str, source: Path, own: Path, *, again: bool) -> Once:
    """DistCp, without what it takes to copy one file."""
    one = make_tree(own / "one", 1, 1)
    start = program(distcp(classes, str(one), str(own / "one-copied")), one, own)
    once = on_disk(partial(distcp, classes), source, own, again=again)
    seconds, cpu = once.seconds - start.seconds, (once.cpu or 0) - (start.cpu or 0)
    return replace(once, seconds=seconds, cpu=cpu, phases={"start": start.seconds, **once.phases})


def ours_on_disk(source: Path, own: Path, *, again: bool) -> Once:
    warm = make_tree(own / "warm", WARM_FILES, SMALL)
    once = ours(str(source), str(own / "target"), (str(warm), str(own / "warmed")), 1 + again, None, own)
    return replace(once, facts=_counted(own / "target"))


def _counted(folder: Path) -> dict[str, int]:
    """Count the files below a folder, without our own and the checksums that Hadoop's local file system always writes."""
    shutil.rmtree(folder / "_gobblin", ignore_errors=True)
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.suffix != ".crc"]
    return {"files": len(sizes), "bytes": sum(sizes)}


def measure_disk(
    source: Path, work: str, asked: argparse.Namespace, targets: Sequence[Target], *, again: bool, stays: bool
) -> list[Row]:
    """The rows of a tree on a local disk.

    :param targets: of the peers that take part.
    :param stays: as of `alternately`.
    """
    copies: dict[str, Copy] = {RCLONE: rclone, RSYNC: rsync}
    if not again:
        copies[CP] = cp
    contenders = [Contender(OURS, partial(ours_on_disk, source, again=again))]
    contenders += [Contender(who, partial(on_disk, copy, source, again=again)) for who, copy in copies.items()]
    if not asked.without_distcp:
        run = partial(distcp_on_disk, hadoop_classes(), source, again=again)
        contenders.append(Contender(DISTCP, run, most=_DISTCP_ROUNDS))
    return _rows(work, contenders, asked, targets, stays=stays)


# An S3-like server


class Buckets:
    """The buckets of a server, for each program in its own words.

    :param few: a tree of a few files, to warm ours up.
    """

    def __init__(self, server: s3.S3Server, few: Path) -> None:
        self.few = few
        self.access = server.access
        self.new = server.create_bucket
        access = server.access
        self.environment = {
            "AWS_ACCESS_KEY_ID": access.key,
            "AWS_SECRET_ACCESS_KEY": access.secret,
            "AWS_REGION": s3.REGION,
            "S3_ENDPOINT_URL": access.endpoint,
            "RCLONE_CONFIG_STORE_TYPE": "s3",
            "RCLONE_CONFIG_STORE_PROVIDER": "Other",
            "RCLONE_CONFIG_STORE_ENDPOINT": access.endpoint,
            "RCLONE_CONFIG_STORE_ACCESS_KEY_ID": access.key,
            "RCLONE_CONFIG_STORE_SECRET_ACCESS_KEY": access.secret,
            "RCLONE_CONFIG_STORE_REGION": s3.REGION,
            "RCLONE_CONFIG_STORE_NO_CHECK_BUCKET": "true",
        }

    def filled(self, source: Path) -> str:
        """A bucket with a tree in it.

        :return: its name.
        """
        bucket = self.new()
        _do(_s5cmd(f"{source}/", f"s3://{bucket}/tree/"), self.environment)
        _do(_s5cmd(f"{self.few}/", f"s3://{bucket}/warm/"), self.environment)
        return bucket

    def counted(self, bucket: str, prefix: str) -> dict[str, int]:
        found = self.access.filesystem().find(f"{bucket}/{prefix}", detail=True)
        sizes = [one["size"] for path, one in found.items() if "/_gobblin/" not in path]
        return {"files": len(sizes), "bytes": sum(sizes)}

    def ours_up(self, source: str, warm: str, own: Path) -> Once:
        """Ours into a new bucket.

        :param source: a folder, or a place in the server; and so `warm`.
        """
        bucket, url = self.new(), self.access.url
        once = ours(source, url(f"{bucket}/tree"), (warm, url(f"{bucket}/warm")), 1, self.access, own)
        return replace(once, facts=self.counted(bucket, "tree"))

    def ours_down(self, source: str, warm: str, own: Path) -> Once:
        once = ours(source, str(own / "target"), (warm, str(own / "warmed")), 1, self.access, own)
        return replace(once, facts=_counted(own / "target"))

    def up(self, copy: Copy, source: str, to: str, own: Path) -> Once:
        """A program that copies into a new bucket.

        :param to: its name for that, with `{}` in it.
        """
        bucket = self.new()
        once = program(copy(source, to.format(bucket)), own, None, self.environment)
        return replace(once, facts=self.counted(bucket, "tree"))

    def down(self, copy: Copy, source: str, own: Path) -> Once:
        target = own / "target"
        target.mkdir()
        once = program(copy(source, f"{target}/"), own, target, self.environment)
        return replace(once, facts=_counted(target))


def _s5cmd(source: str, target: str) -> list[str]:
    return [str(s5cmd()), "--log=error", "cp", source, target]


def measure_s3(
    buckets: Buckets, tree: Path, what: str, asked: argparse.Namespace, up: float, down: float, *, stays: bool
) -> list[Row]:
    """The rows of a tree to and from a server.

    :param up: the smallest ratio of s5cmd's seconds to ours; and so `down`.
    :param stays: as of `alternately`.
    """
    where, url, own_words = "an S3-like server (versitygw)", buckets.access.url, "s3://{}/tree/"
    contenders = [
        Contender(OURS, partial(buckets.ours_up, str(tree), str(buckets.few))),
        Contender(S5CMD, partial(buckets.up, _s5cmd, f"{tree}/", own_words)),
        Contender(RCLONE, partial(buckets.up, rclone, str(tree), "store:{}/tree")),
    ]
    rows = _rows(f"A mirror of {what} to {where}", contenders, asked, [Target(S5CMD, up)], stays=stays)
    bucket = buckets.filled(tree)
    contenders = [
        Contender(OURS, partial(buckets.ours_down, url(f"{bucket}/tree"), url(f"{bucket}/warm"))),
        Contender(S5CMD, partial(buckets.down, _s5cmd, f"s3://{bucket}/tree/*")),
        Contender(RCLONE, partial(buckets.down, rclone, f"store:{bucket}/tree")),
    ]
    return rows + _rows(f"A mirror of {what} from {where}", contenders, asked, [Target(S5CMD, down)], stays=stays)


def measure_within(buckets: Buckets, tree: Path, what: str, asked: argparse.Namespace) -> list[Row]:
    """The rows of a tree that goes from bucket to bucket of a server."""
    bucket, url = buckets.filled(tree), buckets.access.url
    contenders = [
        Contender(OURS, partial(buckets.ours_up, url(f"{bucket}/tree"), url(f"{bucket}/warm"))),
        Contender(S5CMD, partial(buckets.up, _s5cmd, f"s3://{bucket}/tree/*", "s3://{}/tree/")),
        Contender(RCLONE, partial(buckets.up, rclone, f"store:{bucket}/tree", "store:{}/tree")),
    ]
    return _rows(f"A mirror of {what} within an S3-like server (versitygw)", contenders, asked, [], stays=False)


def _rows(
    work: str, contenders: Sequence[Contender], asked: argparse.Namespace, targets: Sequence[Target], *, stays: bool
) -> list[Row]:
    print(f"{work}:", flush=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        spread(Path(folder))
        figures = alternately(contenders, asked.rounds, Path(folder), stays=stays, former=not stays)
    found = {contender.who for contender in contenders}
    return rows_of(
        work,
        figures,
        f"python -m tests.benchmarks.mirrors --rounds {asked.rounds}",
        ours=OURS,
        targets=[target for target in targets if target.who in found],
        versions={
            "rclone": _version("rclone"),
            "rsync": _version("rsync"),
            "s5cmd": _version(str(s5cmd())),
            "DistCp": HADOOP,
        },
    )


def _version(name: str) -> str:
    words = [name, "version"] if name != "rsync" else [name, "--version"]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return next(word for word in text.replace("version ", "").split() if any(char.isdigit() for char in word))


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000, help="small ones, on disk")
    parser.add_argument("--s3-files", type=int, default=10_000, help="small ones, to and from a server")
    parser.add_argument("--large", type=int, default=20, help="large files on disk; half as many to and from a server")
    parser.add_argument("--mb", type=int, default=200, help="the size of a large file")
    parser.add_argument("--without-distcp", action="store_true", help="which takes minutes")
    parser.add_argument("--only", choices=["disk", "s3"], help="a part of it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=JSON)
    asked = parser.parse_args(words)
    use_environment()
    for peer in ("rclone", "rsync"):
        if shutil.which(peer) is None:
            sys.exit(f"{peer} is missing: install it, for example by `apt-get install {peer}`")
    FOLDER.mkdir(parents=True, exist_ok=True)
    peers_python()
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        if asked.only != "s3":
            all_on_disk(Path(folder), asked)
        if asked.only != "disk":
            with s3.running(s3.versitygw(Path(folder) / "s3")) as server:
                few = make_tree(Path(folder) / "few", WARM_FILES, SMALL)
                all_in_s3(Buckets(server, few), Path(folder), asked)


def all_on_disk(folder: Path, asked: argparse.Namespace) -> None:
    tree, what = make_tree(folder / "small", asked.files, SMALL), f"{asked.files:,} files of 4 KiB on local disk"
    targets = [Target(RCLONE, 1 / 1.5), Target(DISTCP, 20)]
    keep(measure_disk(tree, f"A mirror of {what}", asked, targets, again=False, stays=True), asked.results)
    targets = [Target(RCLONE, 1 / 5), Target(DISTCP, 50)]
    keep(
        measure_disk(tree, f"A mirror of {what}, nothing changed", asked, targets, again=True, stays=True),
        asked.results,
    )
    tree = make_tree(folder / "large", asked.large, asked.mb << 20)
    targets = [Target(CP, 1 / 1.15), Target(RCLONE, 1), Target(DISTCP, 1)]
    work = f"A mirror of {asked.large} files of {asked.mb} MiB on local disk"
    keep(measure_disk(tree, work, asked, targets, again=False, stays=False), asked.results)
    shutil.rmtree(tree)


def all_in_s3(buckets: Buckets, folder: Path, asked: argparse.Namespace) -> None:
    tree = make_tree(folder / "small for S3", asked.s3_files, SMALL)
    keep(
        measure_s3(buckets, tree, f"{asked.s3_files:,} files of 4 KiB", asked, 1 / 3, 1 / 1.5, stays=True),
        asked.results,
    )
    large = max(1, asked.large // 2)
    tree, what = make_tree(folder / "large for S3", large, asked.mb << 20), f"{large} files of {asked.mb} MiB"
    keep(measure_s3(buckets, tree, what, asked, 1 / 1.1, 1 / 1.1, stays=False), asked.results)
    keep(measure_within(buckets, tree, what, asked), asked.results)


if __name__ == "__main__":
    main()
