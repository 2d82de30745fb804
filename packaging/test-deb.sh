#!/usr/bin/env bash
# Tests the Debian package: lintian, the unit, and a whole life of it: install, start, upgrade, remove, purge.
#
#   packaging/test-deb.sh BINARY MAN_PAGES
#
# BINARY is the program, MAN_PAGES the built example `man_pages`.
#
# It is installed into a copy of this system that exists for the test only: an overlay over `/` in a namespace of its
# own, in memory, with a network of its own. Nothing outside changes. That takes root. Needs dpkg-deb, systemd and
# python3; lintian is used if it is there.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
usage="usage: packaging/test-deb.sh BINARY MAN_PAGES"
binary=$(realpath "${1:?$usage}")
man_pages=$(realpath "${2:?$usage}")
cd "$here/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say() { printf -- '-- %s\n' "$*"; }

say "build: two revisions, one of them twice"
build() { packaging/build-deb.sh --binary "$binary" --man-pages-by "$man_pages" --compress "-Zgzip -z1" "$@"; }
old=$(build --to "$work" --revision 1)
new=$(build --to "$work" --revision 2)
again=$(build --to "$work/again" --revision 2)
cmp "$new" "$again"

say "what its documents refer to is in it, but for the sources"
mkdir "$work/unpacked"
dpkg-deb -x "$old" "$work/unpacked"
(
    cd "$work/unpacked/usr/share/doc/distkv-node"
    gunzip -k README.md.gz
    find . -name '*.md' | while read -r document; do
        { grep -oE '\]\([a-zA-Z0-9_./-]+(\.(md|png|yml|json)|/[a-z]+)[)#]' "$document" || true; } | tr -d '](#)' | while read -r link; do
            place=$(dirname "$document")/$link
            case $link in
            */examples | */conformance/*) ;;
            *) [ -e "$place" ] || [ -e "$place.gz" ] || { echo "$document: $link is not there" >&2; exit 1; } ;;
            esac
        done
    done
)

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
unshare --mount --net --propagation private bash -euo pipefail -c '
    work=$1 old=$2 new=$3 life=$4
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
    cp "$life" "$root/test/life.sh"
    cp "$old" "$root/test/old.deb"
    cp "$new" "$root/test/new.deb"
    exec chroot "$root" bash /test/life.sh
' bash "$work" "$old" "$new" packaging/test-deb-life.sh
say "done"
