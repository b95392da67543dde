"""The list of programs: where each is from, how it starts, and every change that is made to it."""

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class ManifestError(Exception):
    """A program is not what the manifest says of it."""


@dataclass(frozen=True, slots=True)
class Change:
    """One exact substitution in a file of the program.

    Args:
        why: data, weights, size, or version (of a library that has changed since).
        old: What stands there.
        new: What stands there afterwards; {data} is the folder of what is generated.
        file: From the root; none: the program itself.
        times: How often `old` stands there.
    """

    why: str
    old: str
    new: str
    file: str = ""
    times: int = 1

    def applied(self, text: str, where: str, data: Path) -> str:
        """Return the text with the substitution made.

        Raises:
            ManifestError: `old` stands there another number of times.
        """
        found = text.count(self.old)
        if found != self.times:
            raise ManifestError(f"{where}: {self.old!r} must stand there {self.times} times, found {found}")
        return text.replace(self.old, self.new.replace("{data}", str(data)))


@dataclass(frozen=True, slots=True)
class Program:
    """One program.

    Args:
        name: In the table.
        repository: owner/name.
        commit: Of the repository.
        licence: Of the repository.
        path: From the root of the repository.
        sha256: The first digits of the digest of that file.
        uses: What it uses, in words.
        root: The folder that it needs, from the root of the repository; it runs in `cwd` under it.
        cwd: See there.
        ranks: As many as it is run on, in both places.
        trains: Whether it takes optimizer steps; one that ends without any has not run.
        words: Arguments of the command line.
        environ: Variables beside those of the driver.
        changes: What is changed in it.
        writes: Files that it needs and that the repository lacks, by path from `root`.
        blocks: Which of a page's blocks of code make the program, by number; none: all.
        stand_ins: Folders of stand_in that it needs beside what all get.
        alone: Whether it starts its own processes: gloo gets it by `python`, not by torchrun.
        noise: A pattern of printed lines that differ from run to run.
        not_emulated: Why it cannot run on emulated ranks, and what their error says of it; a change of either shows.
        not_gloo: As before, of gloo.
    """

    name: str
    repository: str
    commit: str
    licence: str
    path: str
    sha256: str
    uses: str
    root: str = ""
    cwd: str = ""
    ranks: int = 2
    trains: bool = True
    words: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    changes: tuple[Change, ...] = ()
    writes: Mapping[str, str] = field(default_factory=dict)
    blocks: tuple[int, ...] = ()
    stand_ins: tuple[str, ...] = ()
    alone: bool = False
    noise: str = ""
    not_emulated: tuple[str, str] | None = None
    not_gloo: tuple[str, str] | None = None

    @property
    def script(self) -> str:
        """The program's path from `root`."""
        return self.path.removeprefix(self.root).lstrip("/")

    def check(self, file: Path) -> None:
        """Refuse another version of the program.

        Raises:
            ManifestError: it is another, or is missing.
        """
        if not file.is_file():
            raise ManifestError(f"{self.name}: {file} is missing; fetch {self.repository} at {self.commit}")
        found = hashlib.sha256(file.read_bytes()).hexdigest()[: len(self.sha256)]
        if found != self.sha256:
            raise ManifestError(f"{self.name}: {file} is another version ({found}); fetch {self.repository} at {self.commit}")


def read(file: Path) -> list[Program]:
    """Return the programs of a manifest: a table for each repository, with its programs in it."""
    told: dict[str, dict[str, Any]] = tomllib.loads(file.read_text())
    return [
        _program({"repository": name} | {k: v for k, v in repository.items() if k != "programs"} | one)
        for name, repository in told.items()
        for one in repository["programs"]
    ]


def _program(told: dict[str, Any]) -> Program:
    changes = tuple(Change(**change) for change in told.get("changes", ()))
    lists = ("words", "blocks", "stand_ins", "not_emulated", "not_gloo")
    return Program(**told | {name: tuple(told[name]) for name in lists if name in told} | {"changes": changes})
