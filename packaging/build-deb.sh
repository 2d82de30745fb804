#!/usr/bin/env bash
# Builds the Debian package, with dpkg-deb alone: the program, its service, manual pages, completions, alerts and
# dashboard. Prints the package's file name.
#
#   packaging/build-deb.sh [--to FOLDER] [--revision N] [--binary FILE] [--man-pages-by FILE] [--compress OPTIONS]
#
# Without --binary it makes a release build, and without --man-pages-by it builds the example `man_pages`. --compress takes options of dpkg-deb, like "-Zgzip -z1": quick and large.
# Needs dpkg-deb, binutils (strip, objdump) and gzip. The maintainer is $DEBFULLNAME <$DEBEMAIL>.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

to=target/deb binary= revision=1 compress= man_pages=
while [ $# -gt 0 ]; do
    case "$1 ${2:+given}" in
        "--to given") to=$2 ;;
        "--binary given") binary=$2 ;;
        "--revision given") revision=$2 ;;
        "--man-pages-by given") man_pages=$2 ;;
        "--compress given") compress=$2 ;;
        *) sed -n 's/^#   /usage: /p' "$0" | head -n 1 >&2; exit 2 ;;
    esac
    shift 2
done

if [ -z "$binary" ]; then
    cargo build --locked --release --bin distkv-node >&2
    binary=${CARGO_TARGET_DIR:-target}/release/distkv-node
fi
# The same tree gives the same package.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

maintainer="${DEBFULLNAME:-distkv} <${DEBEMAIL:-packages@distkv.example.org}>"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
install_file() { install -D -m "$1" "$2" "$root$3"; }
put() { mkdir -p "$(dirname "$root$1")" && cat >"$root$1" && chmod 644 "$root$1"; }

install_file 755 "$binary" /usr/bin/distkv-node
program=$root/usr/bin/distkv-node
strip --strip-unneeded --remove-section=.comment --remove-section=.note "$program"
version=$("$program" --version | awk '{print $2}')-$revision
libc=$(objdump -T "$program" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
architecture=$(dpkg --print-architecture)

install_file 644 packaging/distkv-node.service /usr/lib/systemd/system/distkv-node.service
install_file 644 packaging/distkv-node.sysusers /usr/lib/sysusers.d/distkv-node.conf
install_file 640 packaging/node.toml /etc/distkv/node.toml
install_file 644 packaging/distkv-node.default /etc/default/distkv-node
install_file 644 packaging/alerts.yml /usr/share/distkv-node/alerts.yml
install_file 644 packaging/dashboard.json /usr/share/distkv-node/dashboard.json

"$program" completions bash | put /usr/share/bash-completion/completions/distkv-node
"$program" completions zsh | put /usr/share/zsh/vendor-completions/_distkv-node
"$program" completions fish | put /usr/share/fish/vendor_completions.d/distkv-node.fish

mkdir -p "$root/usr/share/man/man1"
if [ -n "$man_pages" ]; then
    "$man_pages" "$root/usr/share/man/man1"
else
    cargo run --quiet --locked --example man_pages -- "$root/usr/share/man/man1" >&2
fi
gzip -9n "$root"/usr/share/man/man1/*.1

doc=/usr/share/doc/distkv-node
install_file 644 packaging/debian/copyright "$doc/copyright"
gzip -9nc CHANGELOG.md | put "$doc/changelog.gz"
put "$doc/changelog.Debian" <<EOF
distkv-node ($version) unstable; urgency=medium

  * See changelog.gz.

 -- $maintainer  $(date -uRd "@$SOURCE_DATE_EPOCH")
EOF
gzip -9n "$root$doc/changelog.Debian"
gzip -9nc README.md | put "$doc/README.md.gz"
# What README refers to, where it does.
for guide in docs/*.md docs/decisions/*.md docs/model/*.md docs/page/* ARCHITECTURE.md \
    packaging/alerts.yml packaging/alerts.test.yml packaging/dashboard.json \
    clients/go/README.md clients/python/README.md crates/client/README.md; do
    install_file 644 "$guide" "$doc/$guide"
done
ln -s changelog.gz "$root$doc/CHANGELOG.md.gz"

# As dpkg-gencontrol counts: what `du` says depends on the file system, and on what of it is written already.
installed_kib=$(find "$root" \( -type f -o -type l \) -printf '%s\n' -o -printf '1\n' |
    awk '{ n += int(($1 + 1023) / 1024) } END { print n }')

mkdir -p "$root/DEBIAN"
for script in postinst prerm postrm; do
    install -m 755 "packaging/debian/$script" "$root/DEBIAN/$script"
done
printf '%s\n' /etc/distkv/node.toml /etc/default/distkv-node >"$root/DEBIAN/conffiles"
cat >"$root/DEBIAN/control" <<EOF
Package: distkv-node
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Section: database
Priority: optional
Depends: libc6 (>= ${libc#GLIBC_}), libgcc-s1, systemd | systemd-standalone-sysusers
Installed-Size: $installed_kib
Description: masterless, gossip-replicated, in-memory key-value node
 Every node of a network holds all of its data, answers reads from memory, takes
 writes at any time, also while it is cut off, and spreads changes by gossip.
 There is no leader. Conflicts are resolved in the same way everywhere, and
 reported.
 .
 It is for state that many machines share and that must stay available during
 partitions: configuration, service and device state, feature flags, presence.
EOF
(cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
chmod 644 "$root/DEBIAN/control" "$root/DEBIAN/conffiles" "$root/DEBIAN/md5sums"
find "$root" -type d -exec chmod 755 {} +

mkdir -p "$to"
package=$to/distkv-node_${version}_$architecture.deb
# shellcheck disable=SC2086 # several options
dpkg-deb $compress --root-owner-group --build "$root" "$package" >&2
echo "$package"
