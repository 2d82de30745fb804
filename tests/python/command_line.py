"""Runs the real command line of the Python DistKV, `distkv …`, in processes of their own.

Started as a program, this is a helper: it has everything imported, and forks for each command, which
saves half a second each. It reads commands from standard input, one line of JSON each, and answers with
one line: `{"pid": N}` for a command that was started, `{"code": N}` for one that has ended.

The commands of that version open no scope of their own, as they would have to; so `_main` does what
`distkv.command.cmd` does, within one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path as FilePath
from typing import Dict, List, NamedTuple, Optional

# Seconds for one command, or for what it has to print. Generous: the machine may be busy.
PATIENCE = 60.0


class Done(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


class CommandLine:
    """Runs commands against one server."""

    def __init__(self, client: str):
        self.host, self.port = client.rsplit(":", 1)
        self._dir = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        # pylint: disable-next=consider-using-with
        self._helper = subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Some commands store or print what they had in a set.
            env={**os.environ, "PYTHONHASHSEED": "0"},
        )
        self._running: Dict[str, int] = {}
        self._count = 0

    def __enter__(self) -> "CommandLine":
        return self

    def __exit__(self, *_exc) -> None:
        self._helper.communicate()
        self._dir.cleanup()

    def _ask(self, **request) -> Dict[str, int]:
        assert self._helper.stdin and self._helper.stdout
        self._helper.stdin.write(json.dumps(request) + "\n")
        self._helper.stdin.flush()
        answer: Dict[str, int] = json.loads(self._helper.stdout.readline())
        return answer

    def _start(self, name: str, args: List[str], stdin: Optional[str]) -> int:
        base = FilePath(self._dir.name) / name
        base.with_suffix(".in").write_text(stdin or "")
        where = ["client", "-h", self.host, "-p", self.port]
        # Options before the first command are the client's: `-m data foo`.
        args = args if args[0] in ("dump", "--help") else where + args
        return self._ask(args=args, files=str(base))["pid"]

    def _output(self, name: str, code: int) -> Done:
        base = FilePath(self._dir.name) / name
        out, err = (base.with_suffix(s).read_text(errors="replace") for s in (".out", ".err"))
        return Done(code, out, err)

    def run(self, args: List[str], stdin: Optional[str] = None) -> Done:
        """Runs a command to its end."""
        self._count += 1
        name = f"command-{self._count}"
        return self._output(name, self._ask(wait=self._start(name, args, stdin))["code"])

    def start(self, name: str, args: List[str]) -> None:
        """Starts a command that goes on until `stop`."""
        self._running[name] = self._start(name, args, None)

    def wait_for(self, name: str, text: str, count: int = 1) -> None:
        """Waits until such a command has printed a text so many times."""
        deadline = time.monotonic() + PATIENCE
        out = FilePath(self._dir.name) / f"{name}.out"
        while not out.exists() or out.read_text(errors="replace").count(text) < count:
            assert time.monotonic() < deadline, (name, text, self._output(name, 0))
            time.sleep(0.01)

    def stop(self, name: str) -> Done:
        """Ends such a command as Ctrl-C would; what it had printed."""
        return self._output(name, self._ask(end=self._running.pop(name))["code"])


def _main(args: List[str]) -> None:
    # pylint: disable=import-outside-toplevel
    import anyio
    from asyncscope import main_scope
    from distkv.default import CFG
    from distkv.exceptions import ClientError, ServerError
    from moat.util import wrap_main

    # By itself it waits 5 s for a greeting and a login, less than a busy machine may take.
    CFG.connect.init_timeout = PATIENCE

    async def main() -> None:
        async with main_scope(name="distkv"):
            await wrap_main(
                args=args,
                wrap=True,
                CFG=CFG,
                cfg=False,
                name="distkv",
                sub_pre="distkv.command",
                sub_post="cli",
                ext_pre="distkv_ext",
                ext_post="main.cli",
            )

    try:
        anyio.run(main, backend="trio")
    except (ClientError, ServerError) as err:
        print(type(err).__name__ + ":", *err.args, file=sys.stderr)
        sys.exit(1)


def _fork(args: List[str], files: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        for fd, suffix in ((1, ".out"), (2, ".err")):
            os.dup2(os.open(files + suffix, flags, 0o600), fd)
        os.dup2(os.open(files + ".in", os.O_RDONLY), 0)
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(fd, mode, buffering=1, closefd=False) for fd, mode in ((0, "r"), (1, "w"), (2, "w"))
        )
        # As a process of its own would have it: the width of help texts.
        os.environ["COLUMNS"] = "80"
        try:
            _main(args)
            code = 0
        except SystemExit as exc:
            code = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
        except BaseException:  # pylint: disable=broad-except
            sys.excepthook(*sys.exc_info())
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)  # pylint: disable=protected-access


def _serve() -> None:
    # pylint: disable=import-outside-toplevel,unused-import
    import distkv.client
    import distkv.command.client
    import distkv.command.client.data
    import trio

    while True:
        line = sys.stdin.readline()
        if not line:
            return
        request = json.loads(line)
        if "args" in request:
            answer = {"pid": _fork(request["args"], request["files"])}
        else:
            pid = request.get("wait") or request["end"]
            if "end" in request:
                os.kill(pid, signal.SIGINT)
            answer = {"code": _code(pid)}
        print(json.dumps(answer), flush=True)


def _code(pid: int) -> int:
    """Waits for a command's end; kills it when it takes too long."""
    deadline = time.monotonic() + PATIENCE
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


if __name__ == "__main__":
    _serve()
