"""Sessions of the real command line, in `cli/*.txt`: commands, and what the original answered.

    # text                   a comment
    | text                   a line of the file that the next `@` names
    @ NAME                   writes that file into the session's own directory
    $ ARGS…                  runs `distkv client -h HOST -p PORT ARGS…`, to its end
    & NAME ARGS…             starts one that goes on
    ? NAME COUNT TEXT        waits until that one has printed a text so many times
    . NAME                   ends it
    > text, ! text, = N      its output, its error messages, its exit code if not 0

In commands, `{dir}` is the session's directory, `{files}` goes before the name of a file on the server, and
`{node}` is what stands for the node in chains. What differs from run to run is replaced in outputs: see
`normal`."""

from __future__ import annotations

import re
import shlex
from pathlib import Path as FilePath
from typing import Dict, List, NamedTuple, Tuple

from command_line import CommandLine, Done

DIRECTORY = FilePath(__file__).parent / "cli"
OUTPUT = {"> ": 0, "! ": 1, "= ": 2}


class Step(NamedTuple):
    """One line that does something, and what the original answered."""

    kind: str
    text: str
    # Lines of the file that it writes.
    content: List[str]
    # Lines of its outcome, as in the file.
    outcome: List[str]


class Session(NamedTuple):
    """One file."""

    name: str
    # Each step with the comments before it.
    steps: List[Tuple[List[str], Step]]

    def commands(self) -> List[str]:
        """What is compared."""
        return [step.text for _, step in self.steps if step.kind in "$."]


def read(path: FilePath) -> Session:
    """Reads a session."""
    steps: List[Tuple[List[str], Step]] = []
    comments: List[str] = []
    content: List[str] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            comments.append(line)
        elif line[:1] == "|":
            content.append(line[2:])
        elif line[:2] in ("$ ", "& ", "? ", ". ", "@ "):
            steps.append((comments, Step(line[0], line[2:], content, [])))
            comments, content = [], []
        elif line[:2].ljust(2) in OUTPUT and steps:
            steps[-1][1].outcome.append(line)
        else:
            raise ValueError(f"{path}:{number}: {line!r}")
    assert not comments and not content, (path, comments, content)
    return Session(path.stem, steps)


def sessions() -> Dict[str, Session]:
    """All of them, by name."""
    return {path.stem: read(path) for path in sorted(DIRECTORY.glob("*.txt"))}


def write(session: Session, outcomes: List[List[str]]) -> str:
    """The file with other outcomes."""
    lines = []
    for (comments, step), outcome in zip(session.steps, outcomes):
        lines += comments
        lines += [f"| {line}".rstrip() for line in step.content]
        lines.append(f"{step.kind} {step.text}")
        lines += outcome
    return "\n".join(lines) + "\n"


def play(session: Session, client: str, node: str, directory: FilePath, files: str) -> List[List[str]]:
    """Runs a session; each step's outcome."""
    outcomes = []
    names = {"dir": str(directory), "files": files, "node": node}
    with CommandLine(client) as line:
        for _, step in session.steps:
            text = step.text
            for name, value in names.items():
                text = text.replace("{" + name + "}", value)
            outcome: List[str] = []
            if step.kind == "@":
                (directory / text).write_text("".join(f"{line}\n" for line in step.content))
            elif step.kind == "$":
                outcome = normal(line.run(shlex.split(text)), names)
            elif step.kind == "&":
                name, *args = shlex.split(text)
                line.start(name, args)
            elif step.kind == "?":
                name, count, wanted = text.split(" ", 2)
                line.wait_for(name, wanted, int(count))
            else:
                done = line.stop(text)
                # How it dies of Ctrl-C is its own affair.
                outcome = normal(Done(0, done.out, ""), names)
            outcomes.append(outcome)
    return outcomes


def normal(done: Done, names: Dict[str, str]) -> List[str]:
    """An outcome as lines, without what differs from run to run: tocks, times, where files are; and the
    name of the node's life, which the original does not know, becomes the node's."""
    out = [f"> {line}".rstrip() for line in done.out.splitlines()]
    err = [f"! {line}".rstrip() for line in errors(done.err)]
    lines = out + err + ([f"= {done.code}"] if done.code else [])
    return [plain(line, names) for line in lines]


def plain(line: str, names: Dict[str, str]) -> str:
    """See `normal`."""
    line = line.replace(names["node"], "n1")
    for name in ("dir", "files"):
        if len(names[name]) > 1:
            line = line.replace(names[name], "{" + name + "}")
    line = re.sub(r"\btock: \d+", "tock: TOCK", line)
    line = re.sub(r"^> _time: .*", "> _time: TIME", line)
    return re.sub(r"^> time: .*", "> time: TIME", line)


def errors(text: str) -> List[str]:
    """The error messages: of a traceback its last line. The client's own warning of a reply that it
    had not asked for is left out: the original sends one after some streams, and ours does not."""
    lines = [line for line in text.splitlines() if "Spurious message" not in line]
    if any(line.lstrip(" |+").startswith("Traceback (most recent") for line in lines):
        return [line for line in lines if line.strip(" |+-")][-1:]
    return lines
