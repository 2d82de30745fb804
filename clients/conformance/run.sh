#!/usr/bin/env bash
# Builds the node, the driver of each language and the runner, tests/conformance, plays all scenarios with all of them,
# and prints the table of scenarios and languages.
#
#   run.sh [OPTION]...
#
#   --only PATTERN   scenarios by their files' names, like '3*'; may be given again
#   --workers N      scenarios that are played at once (4)
#   --runs N         how often each is played (1)
#   --storm SECONDS  a longer storm, and one at random nodes
#   --planted        break one rule at a time: each must be found
#
# LANGUAGES names those to play (python go rust). DISTKV_NODE_BIN names another node's program than the one built here.
# Environments for Python and Go are made below the target directory, once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

wrong() {
    echo "$0: $1; see --help" >&2
    exit 2
}

# Is a number, and not zero.
is_count() { [[ $1 =~ ^[1-9][0-9]{0,8}$ ]]; }
is_time() { [[ $1 =~ ^([0-9]+\.?[0-9]*|\.[0-9]+)$ && $1 =~ [1-9] ]]; }

only=()
workers=4
# As many as the runner takes.
runs_max=10000
# The runner's options come by variables; these are ours alone.
unset "${!DISTKV_CONFORMANCE_@}"
while [ $# -gt 0 ]; do
    option=$1
    value=${2:-}
    case $option in
        --*=*)
            value=${option#*=}
            option=${option%%=*}
            ;;
        --only | --workers | --runs | --storm)
            [ $# -gt 1 ] || wrong "$option has no value"
            shift
            ;;
    esac
    shift
    case $option in
        --only)
            found=0
            # A pattern, so it is not quoted.
            for file in clients/conformance/scenarios/$value.toml; do
                if [ -e "$file" ]; then
                    only+=("$(basename "$file" .toml)")
                    found=1
                fi
            done
            [ "$found" -eq 1 ] || wrong "there is no scenario $value"
            ;;
        --workers)
            is_count "$value" || wrong "--workers $value: say how many scenarios are played at once"
            workers=$value
            ;;
        --runs)
            { is_count "$value" && [ "$value" -le "$runs_max" ]; } ||
                wrong "--runs $value: say how often each is played, 1 to $runs_max"
            export DISTKV_CONFORMANCE_RUNS=$value
            ;;
        --storm)
            is_time "$value" || wrong "--storm $value: say how many seconds the storm lasts"
            export DISTKV_CONFORMANCE_STORM=$value
            ;;
        --planted) export DISTKV_CONFORMANCE_PLANTED=1 ;;
        -h | --help)
            sed -n '2,/^set/{/^#/!d;s/^# \{0,1\}//;p}' clients/conformance/run.sh
            exit 0
            ;;
        *) wrong "there is no option $option" ;;
    esac
done
# All that may be wrong is told before anything is made.
for language in ${LANGUAGES:-python go rust}; do
    case $language in
        python | go | rust) ;;
        *) wrong "there is no driver for $language" ;;
    esac
done
if [ -n "${DISTKV_NODE_BIN:-}" ] && [ ! -x "$DISTKV_NODE_BIN" ]; then
    wrong "DISTKV_NODE_BIN names $DISTKV_NODE_BIN, which is no program"
fi
[ ${#only[@]} -eq 0 ] || export DISTKV_CONFORMANCE_ONLY="${only[*]}"

target=${CARGO_TARGET_DIR:-$PWD/target}
case $target in
    /*) ;;
    *) target=$PWD/$target ;;
esac

# With the features of all that ./test.sh builds, so that nothing is built once more for this.
build=(--locked --workspace --test conformance)
for language in ${LANGUAGES:-python go rust}; do
    case $language in
        python)
            venv=$target/python-client-venv
            clients/python/setup-venv.sh "$venv"
            export DISTKV_CONFORMANCE_PYTHON="env PYTHONPATH='$PWD/clients/python/src' \
'$venv/bin/python' clients/python/conformance/driver.py"
            ;;
        go)
            GO=${GO:-$(clients/go/setup-toolchain.sh "$target/go-toolchain")}
            (
                cd clients/go
                GOTOOLCHAIN=local GOPROXY=off GOCACHE=${GOCACHE:-$target/go-cache} \
                    "$GO/go" build -tags distkv_planted -o "$target/go-conformance" ./conformance
            )
            export DISTKV_CONFORMANCE_GO="'$target/go-conformance'"
            ;;
        rust)
            build+=(--example conformance_driver)
            export DISTKV_CONFORMANCE_RUST="'$target/debug/examples/conformance_driver'"
            ;;
    esac
done
cargo build "${build[@]}"
exec cargo test --locked --workspace --test conformance -- --test-threads "$workers"
