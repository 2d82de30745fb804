#!/usr/bin/env bash
# Prints the folder with a Go toolchain for this client's tests: that of the PATH if it is new enough, else one that it
# installs into DIR, from what requirements-test.txt pins.
#
#   setup-toolchain.sh DIR
#
# Does nothing, quickly, when DIR already holds exactly that. PYTHON names another interpreter than that of the PATH.
set -euo pipefail

if [ $# -ne 1 ]; then
    echo "usage: $0 DIR" >&2
    exit 2
fi
dir=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

if go=$(command -v go) && found=$("$go" env GOVERSION 2>/dev/null) && [[ $found =~ ^go1\.([0-9]+) ]] &&
    [ "${BASH_REMATCH[1]}" -ge 25 ]; then
    dirname "$go"
    exit 0
fi

"$here/../python/setup-venv.sh" "$dir" "$here/requirements-test.txt" >&2
found=$(echo "$dir"/lib/python3*/site-packages/go/bin)
if ! [ -x "$found/go" ]; then
    echo "$0: there is no go in $found" >&2
    exit 1
fi
echo "$found"
