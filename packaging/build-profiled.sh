#!/usr/bin/env bash
# Builds distkv-node optimised by what it does under load (profile-guided optimisation): a release build that counts what it
# does serves a load for a minute, and is then built again with what it counted. Prints the program's file name.
#
#   packaging/build-profiled.sh [--to FOLDER] [--seconds N]
#
# --seconds is how long each of the seven loads takes (10 by default). Needs bash, and llvm-profdata of the compiler's own
# version: `rustup component add llvm-tools`, or name one in $LLVM_PROFDATA. It takes twice as long as a release build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

to=${CARGO_TARGET_DIR:-target}/profiled seconds=10
while [ $# -gt 0 ]; do
    case "$1 ${2:+given}" in
        "--to given") to=$2 ;;
        "--seconds given") seconds=$2 ;;
        *) sed -n 's/^#   /usage: /p' "$0" >&2; exit 2 ;;
    esac
    shift 2
done
mkdir -p "$to"
to=$(cd "$to" && pwd)

profdata=${LLVM_PROFDATA:-$(rustc --print target-libdir)/../bin/llvm-profdata}
if ! "$profdata" merge --help >/dev/null 2>&1; then
    echo "$profdata cannot be run: install it (rustup component add llvm-tools), or name another one in \$LLVM_PROFDATA" >&2
    exit 1
fi

# Below $1, with the compiler's option $2. What runs only while others are built need not be counted.
build() {
    LLVM_PROFILE_FILE=/dev/null RUSTFLAGS="${RUSTFLAGS:-} $2" cargo build --locked --release --bin distkv-node --target-dir "$to/$1" >&2
}
build watched -Cprofile-generate
node=$to/watched/release/distkv-node

work=$(mktemp -d)
started=()
finish() {
    for process in "${started[@]}"; do kill "$process" 2>/dev/null || true; done
    wait
    rm -rf "$work"
}
trap finish EXIT
# Each process writes what it counted as it ends.
export LLVM_PROFILE_FILE=$work/counted/%p.profraw

# Starts node $1 with the arguments that follow; its log says where it is.
start() {
    local name=$1
    shift
    "$node" "$@" --insecure --name "$name" --network profiled --client 127.0.0.1:0 --gossip 127.0.0.1:0 \
        --data-dir "$work/$name" >"$work/$name.log" 2>&1 &
    started+=($!)
    until grep -q ' started ' "$work/$name.log"; do
        kill -0 $! 2>/dev/null || { cat "$work/$name.log" >&2; exit 1; }
        sleep 0.1
    done
}
address() { sed -n "/ started /s/.* $2=\([^ ]*\).*/\1/p" "$work/$1.log"; }

# One keeps what it is given, and so does another one, which tells a watcher.
start n1 run
start n2 join "$(address n1 gossip)"
"$node" --connect "$(address n2 client)" wait --members 2 --timeout 60s >&2
"$node" --connect "$(address n2 client)" watch : >/dev/null 2>&1 &
started+=($!)
# Requests in flight, and the share of reads.
for load in "1 1" "16 1" "100 1" "1 0" "16 0" "100 0" "4 0.5"; do
    read -r depth reads <<<"$load"
    echo "$depth in flight on each of 50 connections, $reads of them reads: $seconds s" >&2
    "$node" bench --connect "$(address n1 client)" --depth "$depth" --reads "$reads" --keep \
        --duration "${seconds}s" --warm-up 0s >"$work/bench.log" 2>&1 || { cat "$work/bench.log" >&2; exit 1; }
done
"$node" --connect "$(address n2 client)" tree distkv-bench >/dev/null
for process in "${started[@]}"; do kill "$process" && wait "$process" || true; done
started=()

"$profdata" merge -o "$to/counted.profdata" "$work/counted" >&2
build built "-Cprofile-use=$to/counted.profdata"
echo "$to/built/release/distkv-node"
