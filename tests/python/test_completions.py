"""Completions, as the shells themselves make of them what is typed before Tab."""

import os
import pty
import select
import shutil
import subprocess
import time

import nodes
import pytest

# How a shell is started, and how it reads completions.
SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source ./completions"),
    "zsh": (["zsh", "-f", "-i"], "autoload -Uz compinit; compinit -u -D; source ./completions"),
}
# In the place of the program: the words that the shell gives it, and an end that is not typed.
PRINTS_WORDS = """distkv-node() { printf '<%s>' "$@"; printf '%s\\n' E'ND'; }"""

# What is typed, and the words that come of it. A letter behind Tab shows where the cursor is then.
TYPED = [
    ("ge\tX", "<get><X>"),
    ("snap\tsa\t--to X", "<snapshot><save><--to><X>"),
    ("get a --connect n1 --ra\tX", "<get><a><--connect><n1><--raw><X>"),
    # The value of an option stands apart, and a command follows.
    ("--connect n1:1 ge\tX", "<--connect><n1:1><get><X>"),
    ("--timeout 3s ge\tX", "<--timeout><3s><get><X>"),
    ("--connect n1 --key dir\tX ge\tX", "<--connect><n1><--key><directory/X><get><X>"),
    # A directory gets a slash, so that one goes on within it.
    ("run --config dir\tX", "<run><--config><directory/X>"),
    (
        "run --client n1:1 --gossip n1:2 --config directory/no\tX",
        "<run><--client><n1:1><--gossip><n1:2><--config><directory/node.toml><X>",
    ),
    ("run --key two\tX", "<run><--key><two words/X>"),
    ("snapshot restore a.dkv --into dir\tX", "<snapshot><restore><a.dkv><--into><directory/X>"),
    ("snapshot verify dir\tX", "<snapshot><verify><directory/X>"),
    ("user role joe op\tX", "<user><role><joe><operator><X>"),
    # No shell knows paths of entries, names and addresses: names of files are none.
    ("get di\tX", "<get><diX>"),
    ("ls --json di\tX", "<ls><--json><diX>"),
    ("set a.b di\tX", "<set><a.b><diX>"),
    ("get a --connect di\tX", "<get><a><--connect><diX>"),
    ("user role joe di\tX", "<user><role><joe><diX>"),
    ("log di\tX", "<log><diX>"),
    # What bash does with names of files itself, it still does.
    ("run --key $HOME/two\tX", "/two words/X>"),
    ("import $HOME/directory/no\tX", "/directory/node.toml><X>"),
]
# The same in a folder with only one file, before a letter of its name is typed.
TYPED_BESIDE_ONE_FILE = [
    ("import \tX", "<import><node.toml><X>"),
    ("diff --below a \tX", "<diff><--below><a><node.toml><X>"),
    ("import --if\t \tX", "<import><--if-new><node.toml><X>"),
]


class Terminal:
    """A shell in a terminal of its own."""

    def __init__(self, arguments, folder):
        self.shown = ""
        pid, self.terminal = pty.fork()
        if pid == 0:
            os.chdir(folder)
            os.environ.update(HOME=str(folder), TERM="dumb", PS1="> ")
            os.execvp(arguments[0], arguments)
        self.pid = pid

    def close(self):
        """Hangs up."""
        os.close(self.terminal)
        os.waitpid(self.pid, 0)

    def answers(self, line):
        """Types a line, and waits for the end of what the program prints."""
        os.write(self.terminal, f"{line}\n".encode())
        deadline = time.monotonic() + nodes.START_PATIENCE
        while "END" not in self.shown:
            left = deadline - time.monotonic()
            readable = left > 0 and select.select([self.terminal], [], [], left)[0]
            assert readable, f"{line!r} ends in {self.shown!r}"
            self.shown += os.read(self.terminal, 1 << 16).decode(errors="replace")
        before, _, self.shown = self.shown.partition("END")
        return before


def completions(shell, folder):
    """Writes them into a folder, with something to complete; skips the test where there is no such shell."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (folder / "directory").mkdir()
    (folder / "directory/node.toml").touch()
    (folder / "two words").mkdir()
    made = subprocess.run([nodes.binary(), "completions", shell], capture_output=True, check=True)
    (folder / "completions").write_bytes(made.stdout)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_commands_options_and_names_of_files(shell, tmp_path):
    completions(shell, tmp_path)
    arguments, reads = SHELLS[shell]
    terminal = Terminal(arguments, tmp_path)
    try:
        terminal.answers(f"{reads}; {PRINTS_WORDS}; distkv-node")
        found = [(typed, terminal.answers(f"distkv-node {typed}")) for typed, _ in TYPED]
        terminal.answers("cd directory; distkv-node")
        found += [(typed, terminal.answers(f"distkv-node {typed}")) for typed, _ in TYPED_BESIDE_ONE_FILE]
    finally:
        terminal.close()
    wrong = [(typed, shown) for (typed, shown), (_, words) in zip(found, TYPED + TYPED_BESIDE_ONE_FILE, strict=True) if words not in shown]
    assert wrong == []


def test_fish_completes_commands_and_names_of_files(tmp_path):
    completions("fish", tmp_path)
    (tmp_path / "site.jsonl").touch()
    for typed, first in [
        ("ge", "get"),
        ("--connect n1:1 ge", "get"),
        ("get a --connect n1 --ra", "--raw"),
        ("run --client n1:1 --config dir", "directory/"),
        ("snapshot restore a.dkv --into dir", "directory/"),
        ("import si", "site.jsonl"),
        ("import ", "completions"),
        ("get si --key si", "site.jsonl"),
        # What is below a path is no file.
        ("get si", None),
        ("get a --connect si", None),
        ("diff --below si", None),
        ("ls dir", None),
        ("user acl joe dir", None),
        ("user role joe ", "admin"),
        ("user role joe o", "operator"),
        ("user role --json joe o", "operator"),
        ("user role o", None),
    ]:
        script = f"source ./completions; complete -C 'distkv-node {typed}'"
        done = subprocess.run(
            ["fish", "--no-config", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        expected = [] if first is None else [first]
        assert done.stdout.split()[:1] == expected, (typed, done.stdout, done.stderr)
