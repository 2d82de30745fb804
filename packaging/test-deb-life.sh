# The life of the package, as packaging/test-deb.sh runs it: as root in a copy of the system, with the packages
# /test/old.deb and /test/new.deb.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
unset DISTKV_CONNECT DISTKV_LOG NOTIFY_SOCKET
cd /

fail() { echo "test-deb: $*" >&2; exit 1; }
expect() { [ "$2" = "$3" ] || fail "$1: expected '$2', found '$3'"; }
as_node() { setpriv --reuid=distkv --regid=distkv --clear-groups --no-new-privs -- "$@"; }

node=
# Starts the node as the unit does, and waits for READY at a socket of the test's own.
start() {
    rm -f /run/notify
    python3 - <<'PYTHON' &
import os, socket
manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
manager.bind("/run/notify")
os.chmod("/run/notify", 0o777)
manager.settimeout(60)
while b"READY=1" not in manager.recv(4096).split(b"\n"):
    pass
PYTHON
    local manager=$!
    until [ -S /run/notify ]; do kill -0 "$manager"; sleep 0.02; done
    (
        cd /var/lib/distkv
        export NOTIFY_SOCKET=/run/notify
        # Nothing may stand between this shell and the node: signals are for the node.
        exec setpriv --reuid=distkv --regid=distkv --clear-groups --no-new-privs -- \
            /usr/bin/distkv-node start --config /etc/distkv/node.toml >/run/node.log 2>&1
    ) &
    node=$!
    wait "$manager" || { cat /run/node.log >&2; fail "the node never said READY"; }
    distkv-node wait --timeout 60s
}
stop() {
    kill "$node"
    wait "$node" || { cat /run/node.log >&2; fail "the node ended with an error"; }
}

echo "-- first install, where the configuration is a link to nowhere"
mkdir /etc/distkv
ln -s /nowhere/node.toml /etc/distkv/node.toml
dpkg -i /test/old.deb
[ -L /etc/distkv/node.toml ] || fail "the link was replaced"
dpkg -P distkv-node
rm -rf /etc/distkv /var/lib/distkv

echo "-- install"
dpkg -i /test/old.deb
expect "the user" distkv "$(getent passwd distkv | cut -d: -f1)"
expect "the file" "root distkv 640" "$(stat -c '%U %G %a' /etc/distkv/node.toml)"
expect "the directory" "distkv distkv 750" "$(stat -c '%U %G %a' /var/lib/distkv)"
[ -z "$(find /etc/systemd/system -name distkv-node.service)" ] || fail "it is enabled"
[ -f /usr/lib/systemd/system/distkv-node.service ] || fail "there is no unit"
systemd-analyze verify --man=no /usr/lib/systemd/system/distkv-node.service
man_pages=$(dpkg -L distkv-node | grep -c '/man1/.*\.1\.gz$')
[ "$man_pages" -gt 50 ] || fail "there are $man_pages manual pages"
bash -n /usr/share/bash-completion/completions/distkv-node

echo "-- it founds nothing unasked"
status=0
checked=$(as_node distkv-node config check) || status=$?
expect "the check" 2 "$status"
grep -q 'knows no other node' <<<"$checked" || fail "the check says: $checked"
status=0
as_node /usr/bin/distkv-node start --config /etc/distkv/node.toml 2>/run/node.log || status=$?
expect "the start" 2 "$status"

echo "-- configure and start"
sed -i 's/^#found = true/found = true/; s/^#name = .*/name = "n1"/' /etc/distkv/node.toml
as_node distkv-node config check
start
distkv-node set site.lamp '{"on": true}'
curl --fail --silent http://127.0.0.1:27585/readyz >/dev/null

echo "-- upgrade, while it runs"
dpkg --force-confold -i /test/new.deb
expect "the version" 2 "$(dpkg-query -W -f '${Version}' distkv-node | sed 's/.*-//')"
grep -q '^found = true' /etc/distkv/node.toml || fail "the configuration was replaced"
expect "the file" "root distkv 640" "$(stat -c '%U %G %a' /etc/distkv/node.toml)"
expect "the old program goes on" '{"on":true}' "$(distkv-node get site.lamp | tr -d ' \n')"
stop
start
expect "the data" '{"on":true}' "$(distkv-node get site.lamp | tr -d ' \n')"
stop

echo "-- who may read the configuration"
configuration=/etc/distkv/node.toml
cp -p "$configuration" /run/node.toml
reinstall() { dpkg --force-confmiss --force-confold -i /test/new.deb; }
rm "$configuration"
reinstall
expect "a file that was restored" "root distkv 640" "$(stat -c '%U %G %a' "$configuration")"
as_node test -r "$configuration" || fail "the node cannot read it"
rm "$configuration"
dpkg --force-confold -i /test/new.deb
[ ! -e "$configuration" ] || fail "what was removed is back unasked"
# What an administrator has chosen stays, unless the node is shut out by the group alone.
for chosen in "root root 644" "root root 600" "distkv root 640" "root staff 640"; do
    read -r owner group mode <<<"$chosen"
    install -o "$owner" -g "$group" -m "$mode" /run/node.toml "$configuration"
    expected=$chosen
    [ "$group" != staff ] || expected="root distkv 640"
    reinstall
    expect "a file of $chosen" "$expected" "$(stat -c '%U %G %a' "$configuration")"
done
usermod -aG staff distkv
chgrp staff "$configuration"
reinstall
expect "a file of a group of the node's" "root staff 640" "$(stat -c '%U %G %a' "$configuration")"
gpasswd -d distkv staff
cp -p /run/node.toml "$configuration"

echo "-- remove"
dpkg -r distkv-node
[ ! -e /usr/bin/distkv-node ] || fail "the program is still there"
[ -e /etc/distkv/node.toml ] || fail "the configuration is gone"
[ -e /var/lib/distkv/data ] || fail "the data is gone"

echo "-- install again: it continues"
dpkg -i /test/new.deb
start
expect "the data" '{"on":true}' "$(distkv-node get site.lamp | tr -d ' \n')"
stop

echo "-- a directory that somebody has removed is made again"
mv /var/lib/distkv /run/kept
reinstall
expect "the directory after an upgrade" "distkv distkv 750" "$(stat -c '%U %G %a' /var/lib/distkv)"
dpkg -r distkv-node
rmdir /var/lib/distkv
dpkg -i /test/new.deb
expect "the directory after a removal" "distkv distkv 750" "$(stat -c '%U %G %a' /var/lib/distkv)"
rmdir /var/lib/distkv
ln -s /nowhere /var/lib/distkv
reinstall
[ -L /var/lib/distkv ] || fail "the link was replaced"
rm /var/lib/distkv
mv /run/kept /var/lib/distkv
# Of one that is there, nothing is changed.
chmod 0700 /var/lib/distkv
reinstall
expect "a directory of its own mode" "distkv distkv 700" "$(stat -c '%U %G %a' /var/lib/distkv)"

echo "-- upgrade to a package with another configuration, without a terminal"
dpkg-deb -R /test/new.deb /run/other
sed -i 's/^\(Version: .*-\).*/\13/' /run/other/DEBIAN/control
echo "# another line" >>/run/other/etc/distkv/node.toml
dpkg-deb -Zgzip -z1 --root-owner-group --build /run/other /test/other.deb
status=0
dpkg -i /test/other.deb </dev/null || status=$?
expect "without being told what to do" 1 "$status"

echo "-- removed while it is unpacked only, it is stopped and not enabled any more"
# dpkg runs no prerm then. A service manager that notes what it is told stands in for systemd, which is not here.
enabled=/etc/systemd/system/multi-user.target.wants/distkv-node.service
mkdir -p /run/systemd/system /usr/local/sbin "$(dirname "$enabled")"
ln -s /usr/lib/systemd/system/distkv-node.service "$enabled"
printf '#!/bin/sh\necho "$*" >>/run/told\n' >/usr/local/sbin/systemctl
chmod 755 /usr/local/sbin/systemctl
(PATH=/usr/local/sbin:$PATH dpkg -r distkv-node)
grep -q '^stop distkv-node.service$' /run/told || fail "it was not stopped: $(cat /run/told)"
[ ! -L "$enabled" ] || fail "it is still enabled"
rm -r /run/systemd /usr/local/sbin/systemctl
dpkg --force-confold -i /test/other.deb </dev/null
expect "the version" 3 "$(dpkg-query -W -f '${Version}' distkv-node | sed 's/.*-//')"
cmp /run/node.toml "$configuration"
grep -q 'another line' "$configuration.dpkg-dist" || fail "the package's own is not beside it"

echo "-- purge"
dpkg -P distkv-node
[ ! -e /etc/distkv ] || fail "the configuration is still there"
[ -e /var/lib/distkv/data ] || fail "the data is gone"
expect "its owner" distkv "$(stat -c %U /var/lib/distkv/data)"
echo "-- the data is still there"
