"""A new user's afternoon, acted out from README and the guides that it leads to: install the package on three machines, give them a key, start them,
look at the page, live through a split, see the alert, set a conflict back, undo a wrong deletion, upgrade.

What is typed is taken out of them, so that they cannot say anything else. Each machine is a copy of this system (an
overlay in memory) with a network of its own; only `systemctl`, `sudo` and `editor` are stand-ins there, because no service
manager runs and nobody sits at a keyboard. It takes root, and a while, so it is run on request:

    DISTKV_TEST_AFTERNOON=1 DISTKV_MAN_PAGES=target/debug/examples/man_pages pytest tests/python/test_afternoon.py -s
"""

import json
import os
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import List

import nodes
import page_hosts
import pytest
from page_browser import browser_at
from playwright.sync_api import expect

GUIDES = ["operating", "monitoring", "keys-and-users", "data"]
READ = "".join((nodes.REPOSITORY / name).read_text() for name in ["README.md", *(f"docs/{guide}.md" for guide in GUIDES)])
PACKAGE = re.compile(r"distkv-node_(\S+)_amd64\.deb")

# What there is in place of a service manager: it starts the unit's node as the unit's user, and waits for READY.
SYSTEMCTL = r"""#!/bin/bash
set -euo pipefail
start() {
    rm -f /run/notify
    python3 - <<'PYTHON'
import os, re, socket, subprocess
manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
manager.bind("/run/notify")
os.chmod("/run/notify", 0o777)
unit = open("/usr/lib/systemd/system/distkv-node.service").read()
of_unit = lambda key: re.search(rf"^{key}=(.*)$", unit, re.M).group(1)
command = [word for word in of_unit("ExecStart").split() if word != "$DISTKV_OPTIONS"]
user = ["setpriv", f"--reuid={of_unit('User')}", f"--regid={of_unit('Group')}", "--clear-groups", "--no-new-privs", "--"]
log = open("/run/node.log", "ab")
node = subprocess.Popen([*user, *command], cwd=of_unit("WorkingDirectory"), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
    env={"PATH": os.environ["PATH"], "NOTIFY_SOCKET": "/run/notify"}, start_new_session=True, umask=0o077)
open("/run/node.pid", "w").write(str(node.pid))
manager.settimeout(60)
while b"READY=1" not in manager.recv(4096).split(b"\n"):
    pass
PYTHON
}
stop() {
    local node; node=$(cat /run/node.pid)
    kill "$node"
    while kill -0 "$node" 2>/dev/null; do sleep 0.05; done
    rm /run/node.pid
}
case "$*" in
    "enable --now distkv-node") start ;;
    "status distkv-node") kill -0 "$(cat /run/node.pid)"; cat /run/node.log ;;
    "try-restart distkv-node.service") if [ -f /run/node.pid ]; then stop; start; fi ;;
    daemon-reload) ;;
    stop) if [ -f /run/node.pid ]; then stop; fi ;;
    *) echo "no such service here: $*" >&2; exit 1 ;;
esac
"""
SUDO = """#!/bin/bash
[ "$1" = -u ] || exit 1
user=$2
shift 2
exec setpriv --reuid="$user" --regid="$user" --clear-groups -- "$@"
"""
# What the user does in an editor: takes the comment marks off what README and the file itself speak of.
EDITOR = """#!/bin/bash
set -e
for key in key client gossip peers; do
    sed -i "s/^#$key = /$key = /" "$1"
done
sed -i "s/^#name = .*/name = \\"$(cat /etc/name)\\"/; s/^http = .*/http = \\"0.0.0.0:27585\\"/" "$1"
sed -i "s/^#http-names = .*/http-names = [\\"$(cat /etc/name).example.org\\"]/" "$1"
[ "$(cat /etc/name)" != n1 ] || sed -i 's/^#found = /found = /' "$1"
"""


def block(language: str, *parts: str) -> List[str]:
    """The commands of the one block that has all of these parts, without prompts and comments."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", READ, re.M | re.S)
    (found,) = [text for text in blocks if all(part in text for part in parts)]
    lines = found.replace("\\\n", "").splitlines()
    commands = [line.removeprefix("# ").split("  # ")[0].strip() for line in lines]
    return [command for command in commands if command]


def words(text: str) -> str:
    """A command that is printed within a sentence, perhaps over two lines."""
    assert text in " ".join(READ.split()), f"no page says {text!r} any more"
    return text


class Machine:
    """A copy of this system, on one of the hosts."""

    def __init__(self, host, number: int, folder: Path):
        self.name = f"n{number}"
        self.root = folder / self.name / "root"
        script = """
            set -e
            mount -t tmpfs tmpfs "$1"
            mkdir "$1/upper" "$1/work" "$1/root"
            mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
            mount --rbind /proc "$1/root/proc"
            mount --rbind /dev "$1/root/dev"
            mount -t tmpfs tmpfs "$1/root/run"
            mkdir -p "$1/root/run/systemd/system" "$1/root/usr/local/bin"
            echo made
            exec cat
        """
        (folder / self.name).mkdir()
        command = [*host.prefix, "unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", str(folder / self.name)]
        # pylint: disable-next=consider-using-with
        self._holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._holder.stdout and self._holder.stdout.readline() == b"made\n"
        self.prefix = ["nsenter", f"--target={self._holder.pid}", "--mount", "--net", "--"]
        hosts = "127.0.0.1 localhost\n" + "".join(f"10.77.0.{n} n{n}.example.org\n" for n in (1, 2, 3))
        for path, text in (
            ("etc/hosts", hosts),
            ("etc/name", self.name),
            ("usr/bin/systemctl", SYSTEMCTL),
            ("usr/local/bin/sudo", SUDO),
            ("usr/local/bin/editor", EDITOR),
        ):
            self.write(path, text.encode())
        self.run("chmod 755 /usr/bin/systemctl /usr/local/bin/sudo /usr/local/bin/editor")

    def write(self, path: str, content: bytes) -> None:
        """Writes a file there."""
        subprocess.run([*self.prefix, "tee", f"{self.root}/{path}"], input=content, stdout=subprocess.DEVNULL, check=True)

    def read(self, path: str) -> bytes:
        """Reads a file there."""
        return subprocess.run([*self.prefix, "cat", f"{self.root}/{path}"], capture_output=True, check=True).stdout

    def run(self, command: str) -> str:
        """Types a command, as root, at home."""
        environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "DEBIAN_FRONTEND": "noninteractive",
            "DISTKV_KEY": "/var/lib/distkv/key",
        }
        line = [*self.prefix, "chroot", str(self.root), "bash", "-c", f"cd /root && {command}"]
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=120, env=environment, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, (self.name, command, done.stdout, done.stderr)
        return done.stdout

    def end(self) -> None:
        """Stops the node, and takes the copy away."""
        try:
            self.run("systemctl stop")
        finally:
            assert self._holder.stdin and self._holder.stdout
            self._holder.stdin.close()
            self._holder.wait()
            self._holder.stdout.close()


class Clock:
    """Tells how long each part took."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()

    def part(self, what: str) -> None:
        """Something is done."""
        now = time.monotonic()
        print(f"{now - self._last:6.1f} s  {what}")
        self._last = now

    def end(self) -> None:
        """All is."""
        print(f"{time.monotonic() - self._began:6.1f} s  the whole afternoon")


def packages(folder: Path, clock: Clock) -> List[bytes]:
    """Two revisions of the package."""
    built = []
    for revision in "12":
        command = [str(nodes.REPOSITORY / "packaging/build-deb.sh"), "--to", str(folder), "--revision", revision]
        command += ["--binary", nodes.binary(), "--compress", "-Zgzip -z1"]
        if pages := os.environ.get("DISTKV_MAN_PAGES"):
            command += ["--man-pages-by", str(Path(pages).resolve())]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=nodes.REPOSITORY)
        assert done.returncode == 0, done.stderr
        built.append((nodes.REPOSITORY / done.stdout.strip()).read_bytes())
    clock.part("(two packages are built)")
    return built


def alerts(prefix: List[str]) -> dict:
    """The alerts that Prometheus knows of, with their states."""
    command = [*prefix, "curl", "-s", "http://127.0.0.1:9090/api/v1/alerts"]
    told = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return {alert["labels"]["alertname"]: alert["state"] for alert in told["data"]["alerts"]}


def up(prefix: List[str]) -> int:
    """How many nodes Prometheus has scraped."""
    query = "http://127.0.0.1:9090/api/v1/query?query=sum(up)"
    done = subprocess.run([*prefix, "curl", "-s", query], capture_output=True, check=False)
    if done.returncode or not done.stdout.startswith(b"{"):
        return 0
    found = json.loads(done.stdout)["data"]["result"]
    return int(found[0]["value"][1]) if found else 0


def wait(what: str, look, told=lambda: "") -> None:
    """Looks until something holds; `told` says more if it never does."""
    deadline = time.monotonic() + 60
    while not look():
        assert time.monotonic() < deadline, f"never: {what} {told()}"
        time.sleep(0.2)


@pytest.fixture
def hosts():
    """Three hosts, the third one at a switch of its own."""
    made = page_hosts.Hosts(0, 0, 1)
    yield made
    made.end()


@pytest.fixture
def machines(hosts, tmp_path):  # pylint: disable=redefined-outer-name
    """Three machines."""
    made: List[Machine] = []
    try:
        for number, host in enumerate(hosts.hosts, start=1):
            made.append(Machine(host, number, tmp_path))
        yield made
    finally:
        for machine in made:
            machine.end()


def install(machines, package: bytes) -> None:  # pylint: disable=redefined-outer-name
    """docs/operating.md, "As a service": on the first machine, then on the others."""
    commands = block("console", "systemctl enable --now distkv-node")
    first, *others = machines

    def on(machine: Machine) -> None:
        for command in commands:
            if found := PACKAGE.search(command):
                machine.write(f"root/{found.group(0)}", package)
            if "key new" in command and machine is not first:
                machine.write("root/key", first.read("var/lib/distkv/key"))
                command = words("install -o distkv -g distkv -m 0600 key /var/lib/distkv/key")
            machine.run(command)

    on(first)
    with ThreadPoolExecutor() as hands:
        list(hands.map(on, others))


def test_a_new_user_s_afternoon(hosts, machines, playwright, watch, tmp_path):  # pylint: disable=redefined-outer-name
    # pylint: disable=too-many-locals,too-many-statements
    if not os.environ.get("DISTKV_TEST_AFTERNOON"):
        print("not run: set DISTKV_TEST_AFTERNOON")
        return
    clock = Clock()
    old, new = packages(tmp_path, clock)
    n1, n2, n3 = machines
    install(machines, old)
    clock.part("three machines have the package, a key, a configuration, and a node")

    using = block("sh", "distkv-node members forget n3", "distkv-node wait --members 3 --timeout 30s")
    pick = lambda *parts: next(command for command in using if all(part in command for part in parts))  # noqa: E731
    n1.run(pick("wait --members 3"))
    assert n1.run(pick("members")).count(" up ") == 2
    n1.run(pick("set site.lamp true --copies 2"))
    n2.run("distkv-node set site.name --string 'Main street'")
    users = block("sh", "acl set lamps site xen", "whoami --user joe")
    for command in users:
        if command.startswith("distkv-node acl set"):
            n1.run(command)
    n1.run("distkv-node user add olga --method token --role operator --acl lamps")
    n1.run(words("user ticket NAME --to FILE").replace("NAME", "olga").replace("FILE", "olga.ticket").replace("user", "distkv-node user", 1))
    ticket = n1.read("root/olga.ticket").decode().strip()
    clock.part("three nodes see each other, have data, and a user")

    n1.run(words("distkv-node key cert --ca") + " --key /var/lib/distkv/key --to ca")
    ca = tmp_path / "ca.pem"
    ca.write_bytes(n1.read("root/ca.pem"))
    n3.write("root/ca.pem", ca.read_bytes())
    n3.run("curl --fail -s --cacert ca.pem https://n1.example.org:27585/readyz")
    # It stands where it reaches all of them, also in a split.
    switch = hosts.with_cable_of_its_own()
    with prometheus(tmp_path, n1, [*switch, "unshare", "--mount"]):
        live_through_a_split(hosts, machines, playwright, watch, ticket, switch, clock)

    undo(n1, n2)
    clock.part("a wrong deletion is undone")
    upgrade(machines, new)
    clock.part("all three are upgraded, one after the other")
    clock.end()


@contextmanager
def prometheus(folder: Path, n1, prefix: List[str]):
    """Prometheus with the package's alerts, and the configuration in docs/security.md."""
    (folder / "alerts.yml").write_bytes(n1.read("usr/share/distkv-node/alerts.yml"))
    (folder / "hosts").write_bytes(n1.read("etc/hosts"))
    guide = (nodes.REPOSITORY / "docs/security.md").read_text()
    (scrapes,) = re.findall(r"^```yaml\n(.*?)^```", guide, re.M | re.S)
    of_guide = ('"n2.example.org:27585"', "/etc/prometheus/distkv-ca.pem")
    assert all(text in scrapes for text in of_guide), scrapes
    scrapes = scrapes.replace(of_guide[0], '"n2.example.org:27585", "n3.example.org:27585"')
    scrapes = scrapes.replace(of_guide[1], str(folder / "ca.pem"))
    every = "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\nrule_files: [alerts.yml]\n"
    (folder / "prometheus.yml").write_text(every + scrapes)
    script = 'mount --bind "$1/hosts" /etc/hosts && cd "$1" && exec prometheus --config.file=prometheus.yml --storage.tsdb.path=tsdb --web.listen-address=127.0.0.1:9090'
    with (folder / "prometheus.log").open("wb") as log:
        running = subprocess.Popen([*prefix, "sh", "-c", script, "sh", str(folder)], stderr=log)
        try:
            yield
        finally:
            running.terminate()
            running.wait()


def live_through_a_split(hosts, machines, playwright, watch, ticket, switch, clock):  # pylint: disable=redefined-outer-name
    """On the page, with the alert."""
    n1, _, n3 = machines
    told = "curl", "-s", "http://127.0.0.1:9090/api/v1/targets"
    wait("Prometheus sees all", lambda: up(switch) == 3, lambda: subprocess.run([*switch, *told], capture_output=True, check=False))
    with browser_at(playwright, hosts.browser()) as browser:
        address = words("http://127.0.0.1:27585/").rstrip("/")
        watched = watch(address, within=browser)
        page = watched.open()
        box = page.get_by_role("dialog")
        box.get_by_label("Your ticket").fill(ticket)
        box.get_by_role("button", name="Log in").click()
        expect(page.locator("#state")).to_have_text("● all is well")
        clock.part("the page says that all is well")
        hosts.cut()
        split = page.get_by_role("region", name="Split")
        expect(split).to_contain_text("this side: 2 of 3")
        expect(split).to_contain_text("not heard: 1 of 3n3silent")
        clock.part("the cable is cut, and the page shows the split")
        n1.run("distkv-node set site.lamp '\"bright\"'")
        n3.run("distkv-node set site.lamp '\"dark\"'")
        # It fires when that has lasted for 30 s.
        wait("the alert", lambda: alerts(switch).get("DistkvSplit") in ("pending", "firing"))
        assert set(alerts(switch)) == {"DistkvSplit"}
        clock.part("Prometheus tells of it")
        hosts.mend()
        expect(page.get_by_role("region", name="Healed")).to_be_visible()
        expect(page.locator("#state")).to_have_text("● all is well")
        page.get_by_role("link", name="Conflicts").click()
        expect(page.get_by_role("article", name="site.lamp")).to_contain_text("kept: written by n")
        wait("the alert", lambda: alerts(switch).get("DistkvConflicts") == "firing")
        clock.part("it has healed, and the conflict is on the page")
        watched.close()


def undo(n1, n2) -> None:
    """docs/data.md, "Snapshots and history": a colleague deletes too much; another machine's node is asked for what was."""
    dry, real = block("sh", "distkv-node undo --below site --at 10m --dry-run")
    before = n1.run("distkv-node tree site")
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 1))
    time.sleep(2)  # moments are told in seconds
    n1.run("distkv-node delete -r site")
    assert n1.run("distkv-node tree site") == ""
    at = lambda command: command.replace("10m", moment) + " --connect n1.example.org"  # noqa: E731
    assert "site.lamp" in n2.run(at(dry))
    n2.run(at(real))
    assert n1.run("distkv-node tree site") == before


def upgrade(machines, package: bytes) -> None:  # pylint: disable=redefined-outer-name
    """docs/operating.md, "As a service"."""
    commands = block("console", "wait --members 3 --timeout 60s")
    for machine in machines:
        before = machine.read("run/node.pid")
        for command in commands:
            if found := PACKAGE.search(command):
                machine.write(f"root/{found.group(0)}", package)
            machine.run(command)
        assert machine.run("dpkg-query -W -f '${Version}' distkv-node").endswith("-2")
        assert machine.read("run/node.pid") != before, "it was restarted"
        assert '"bright"' in machine.run("distkv-node tree site") or '"dark"' in machine.run("distkv-node tree site")
