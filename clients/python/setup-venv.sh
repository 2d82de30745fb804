#!/usr/bin/env bash
# Makes the environment that the tests of this client run in: what requirements-test.txt pins, or another file.
#
#   setup-venv.sh DIR [REQUIREMENTS]
#
# Does nothing, quickly, when DIR already holds exactly that. PYTHON names another interpreter than
# the python3 that is found on the PATH; 3.11 and newer will do.
set -euo pipefail

if [ $# -ne 1 ] && [ $# -ne 2 ]; then
    echo "usage: $0 DIR [REQUIREMENTS]" >&2
    exit 2
fi
dir=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
requirements=${2:-$here/requirements-test.txt}
stamp=$dir/.installed-requirements

if [ -x "$dir/bin/python" ] && cmp -s "$requirements" "$stamp"; then
    exit 0
fi

python=${PYTHON:-}
if [ -z "$python" ]; then
    for candidate in python3.11 python3.12 python3.13 python3; do
        if command -v "$candidate" >/dev/null 2>&1 &&
            "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            python=$candidate
            break
        fi
    done
fi
if [ -z "$python" ]; then
    echo "$0: Python 3.11 or newer not found; name one in PYTHON" >&2
    exit 1
fi

rm -rf "$dir"
"$python" -m venv "$dir"
"$dir/bin/python" -m pip install --quiet -r "$requirements"
cp "$requirements" "$stamp"
