#!/usr/bin/env bash
# Installs the unmodified Python DistKV client, with pytest, into a virtual environment.
#
#   setup-venv.sh DIR
#
# Does nothing, quickly, when DIR already holds exactly what requirements.txt asks for.
# The client is old: it needs Python 3.11, a pip before 24 (later ones refuse its metadata)
# and setuptools before 66 (later ones refuse its version strings). PYTHON names another
# interpreter than the python3.11 that is found on the PATH.
set -euo pipefail

if [ $# -ne 1 ]; then
    echo "usage: $0 DIR" >&2
    exit 2
fi
dir=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
requirements=$here/requirements.txt
stamp=$dir/.installed-requirements

if [ -x "$dir/bin/python" ] && cmp -s "$requirements" "$stamp"; then
    exit 0
fi

python=${PYTHON:-}
if [ -z "$python" ]; then
    for candidate in python3.11 python3; do
        if command -v "$candidate" >/dev/null 2>&1 &&
            "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
            python=$candidate
            break
        fi
    done
fi
if [ -z "$python" ]; then
    echo "$0: Python 3.11 not found (the DistKV client needs it); name one in PYTHON" >&2
    exit 1
fi

rm -rf "$dir"
"$python" -m venv "$dir"
"$dir/bin/python" -m pip install --quiet 'pip<24' 'setuptools<66' wheel
# No build isolation: it would fetch a setuptools that the old packages cannot be built with.
"$dir/bin/python" -m pip install --quiet --no-build-isolation -r "$requirements"
cp "$requirements" "$stamp"
