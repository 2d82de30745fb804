"""What people meet at a terminal: secrets are asked for and not shown, and `top` makes way for the shell."""

import os
import pty
import select
import time

import nodes
import pytest

# What `top` begins and ends with: the terminal's other screen.
ENTERS, LEAVES = "\x1b[?1049h", "\x1b[?1049l"
CTRL_C, CTRL_Z = "\x03", "\x1a"


class Shell:
    """A shell in a terminal of its own."""

    def __init__(self, node):
        self.shown = ""
        pid, self.terminal = pty.fork()
        if pid == 0:
            os.environ.update(PS1="ready> ", TERM="xterm", DISTKV_CONNECT=f"127.0.0.1:{node.port}")
            os.execl("/bin/sh", "sh", "-i")
        self.pid = pid
        self.until("ready> ")

    def close(self):
        """Hangs up."""
        os.close(self.terminal)
        os.waitpid(self.pid, 0)

    def type(self, text: str):
        """As a person does."""
        os.write(self.terminal, text.encode())

    def command(self, text: str):
        """Types a command of the program."""
        self.type(f"{nodes.binary()} {text}\n")

    def until(self, text: str) -> str:
        """Waits until this is shown, and gives what was shown up to there. What follows is kept."""
        deadline = time.monotonic() + nodes.START_PATIENCE
        while text not in self.shown:
            left = deadline - time.monotonic()
            readable = left > 0 and select.select([self.terminal], [], [], left)[0]
            assert readable, f"{text!r} is not shown, but {self.shown!r}"
            self.shown += os.read(self.terminal, 1 << 16).decode(errors="replace")
        before, _, self.shown = self.shown.partition(text)
        return before

    def answers(self, text: str) -> str:
        """What the shell's own command prints."""
        self.type(f"echo 'be''gins'; {text}; echo 'en''ds'\n")
        self.until("begins")
        return self.until("ends").strip()


@pytest.fixture(name="shell")
def fixture_shell(fresh_node):
    """At a node of its own."""
    shell = Shell(fresh_node)
    yield shell
    shell.close()


def test_a_new_password_is_asked_for_twice_and_not_shown(shell):
    shell.command("user add joe")
    shell.until("new password of joe: ")
    shell.type("geheimq\x7f12\n")
    shown = shell.until("new password of joe, again: ")
    shell.type("geheim12\n")
    shown += shell.until("joe (password) added")
    assert "geheim" not in shown
    # It is the one that was typed.
    assert "clients must log in now" in shell.answers(f"{nodes.binary()} auth on password")
    shell.command("whoami --user joe --secret-file -; echo code $?")
    shell.until("secret of joe: ")
    shell.type("geheim12\n")
    shown = shell.until("code 0")
    assert "geheim" not in shown and "joe" in shown, shown


def test_a_slip_in_a_new_password_changes_nothing(shell):
    for first, second, said in [("geheim12", "geheim13", "are not the same"), ("", None, "nothing was typed")]:
        shell.command("user add joe; echo code $?")
        shell.until("new password of joe: ")
        shell.type(f"{first}\n")
        if second is not None:
            shell.until("again: ")
            shell.type(f"{second}\n")
        shell.until(said)
        shell.until("code 2")
    assert "joe" not in shell.answers(f"{nodes.binary()} user list")


def test_ctrl_c_leaves_the_terminal_as_it_was(shell):
    before = shell.answers("stty -a")
    assert {"echo", "isig", "icanon"} <= set(before.split())
    shell.command("user add joe; echo code $?")
    shell.until("new password of joe: ")
    shell.type(f"geh{CTRL_C}")
    shell.until("code 130")
    assert shell.answers("stty -a") == before


def test_top_stops_and_goes_on(shell):
    before = shell.answers("stty -a")
    shell.command("top")
    shell.until(ENTERS)
    shell.until("\x1b[J")
    shell.type(CTRL_Z)
    shell.until(LEAVES)
    shell.until("ready> ")
    assert shell.answers("stty -a") == before
    shell.type("fg\n")
    shell.until(ENTERS)
    # It is drawn again.
    shell.until("\x1b[J")
    shell.type("q")
    shell.until(LEAVES)
    shell.until("ready> ")
    assert shell.answers("stty -a") == before
