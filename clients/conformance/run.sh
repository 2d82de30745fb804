#!/usr/bin/env bash
# Builds the node and the driver of each language, plays all scenarios with all of them, and prints the table of scenarios
# and languages. Options are those of play.py: see `play.py --help`.
#
#   run.sh [OPTION]...
#
# LANGUAGES names those to play (python go rust). DISTKV_NODE_BIN names another node's program than the one built here.
# Environments for Python and Go are made below the target directory, once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target=${CARGO_TARGET_DIR:-$PWD/target}
venv=$target/python-client-venv
clients/python/setup-venv.sh "$venv"
if [ -z "${DISTKV_NODE_BIN:-}" ]; then
    cargo build --locked --bin distkv-node
    export DISTKV_NODE_BIN=$target/debug/distkv-node
fi

drivers=()
for language in ${LANGUAGES:-python go rust}; do
    case $language in
        python) drivers+=("python=$venv/bin/python clients/python/conformance/driver.py") ;;
        go)
            GO=${GO:-$(clients/go/setup-toolchain.sh "$target/go-toolchain")}
            (
                cd clients/go
                GOTOOLCHAIN=local GOPROXY=off GOCACHE=${GOCACHE:-$target/go-cache} \
                    "$GO/go" build -tags distkv_planted -o "$target/go-conformance" ./conformance
            )
            drivers+=("go=$target/go-conformance")
            ;;
        rust)
            cargo build --locked --example conformance_driver
            drivers+=("rust=$target/debug/examples/conformance_driver")
            ;;
        *)
            echo "$0: there is no driver for $language" >&2
            exit 2
            ;;
    esac
done
exec "$venv/bin/python" clients/conformance/play.py "$@" "${drivers[@]}"
