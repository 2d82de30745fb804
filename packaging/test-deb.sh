#!/usr/bin/env bash
# Tests the Debian package: lintian, the unit, and a whole life of it: install, start, upgrade, remove, purge.
#
#   packaging/test-deb.sh BINARY
#
# It is installed into a copy of this system that exists for the test only: an overlay over `/` in a namespace of its
# own, in memory, with a network of its own. Nothing outside changes. That takes root. Needs dpkg-deb, systemd and
# python3; lintian is used if it is there.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
binary=$(realpath "${1:?usage: packaging/test-deb.sh BINARY}")
cd "$here/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say() { printf -- '-- %s\n' "$*"; }

say "build: two revisions, one of them twice"
old=$(packaging/build-deb.sh --to "$work" --binary "$binary" --revision 1 --compress "-Zgzip -z1")
new=$(packaging/build-deb.sh --to "$work" --binary "$binary" --revision 2 --compress "-Zgzip -z1")
again=$(packaging/build-deb.sh --to "$work/again" --binary "$binary" --revision 2 --compress "-Zgzip -z1")
cmp "$new" "$again"

if command -v lintian >/dev/null 2>&1; then
    say "lintian"
    # A user other than root is what it wants to be; the errors are what counts.
    lintian --allow-root --fail-on error "$old"
fi

say "the unit"
mkdir "$work/unit"
sed 's#^ExecStart=[^ ]*#ExecStart=/bin/true#' packaging/distkv-node.service >"$work/unit/distkv-node.service"
systemd-analyze verify --man=no "$work/unit/distkv-node.service"
systemd-analyze security --offline=yes --threshold=20 "$work/unit/distkv-node.service" | tail -n 1

say "its life, in a copy of this system"
cp packaging/test-deb-life.sh "$old" "$new" "$work"
unshare --mount --net --propagation private bash -euo pipefail -c '
    work=$1 old=$2 new=$3
    ip link set lo up
    mkdir "$work/overlay"
    mount -t tmpfs tmpfs "$work/overlay"
    mkdir "$work/overlay/upper" "$work/overlay/work" "$work/overlay/root"
    root=$work/overlay/root
    mount -t overlay overlay -o "lowerdir=/,upperdir=$work/overlay/upper,workdir=$work/overlay/work" "$root"
    mount --rbind /proc "$root/proc"
    mount --rbind /dev "$root/dev"
    # No service manager is there, whatever runs outside.
    mount -t tmpfs tmpfs "$root/run"
    mkdir -p "$root/test"
    cp "$work/test-deb-life.sh" "$root/test/life.sh"
    cp "$old" "$root/test/old.deb"
    cp "$new" "$root/test/new.deb"
    exec chroot "$root" bash /test/life.sh
' bash "$work" "$work/$(basename "$old")" "$work/$(basename "$new")"
say "done"
