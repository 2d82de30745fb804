#!/bin/sh
# Counts the instructions that a whole node needs per request, in user mode, with callgrind: figures that depend little on
# what else the machine does. What the system does for the node's sockets is not in them. Needs valgrind.
#
#   benches/node-instructions.sh FOLDER [OLDER_NODE]
#
# FOLDER has the programs distkv-node and distkv-bench, target/measure say. Of that node: without a key; with one (plain
# text is taken, too, as while a network moves to a key); and with TLS. OLDER_NODE, an earlier distkv-node, is measured
# without a key. Each figure is the difference of two runs, divided by the difference of their requests.
set -eu
[ $# -ge 1 ] || { sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2; }
node=$1/distkv-node bench=$1/distkv-bench older=${2:-}
few=2000 many=12000
command -v valgrind >/dev/null || { echo "valgrind is not installed" >&2; exit 1; }
folder=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null || :; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
"$node" key new --network callgrind --to "$folder/key" >/dev/null
# With the CA, and without a login: there is none in that phase.
"$node" ticket new 127.0.0.1 --key "$folder/key" >"$folder/ticket"

# The instructions of a node in its whole life: NODE COUNT DEPTH READS BENCH-OPTIONS NODE-OPTIONS
collected() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$1" run --name n1 --peer-wait 0s --threads 1 \
        --network callgrind --client 127.0.0.1:0 --gossip 127.0.0.1:0 --json $6 \
        >"$folder/ready" 2>"$folder/said" &
    pid=$!
    while ! [ -s "$folder/ready" ]; do
        kill -0 "$pid" 2>/dev/null || { cat "$folder/said" >&2; exit 1; }
        sleep 0.1
    done
    address=$(sed -n 's/.*"client":"\([^"]*\)".*/\1/p' "$folder/ready")
    "$bench" --target "$address" --depth "$3" --reads "$4" --count "$2" --keys 1000 --keep --warm-up 0s \
        --duration 1000s $5 >"$folder/load" 2>&1 || { cat "$folder/load" >&2; exit 1; }
    kill "$pid"
    wait "$pid" || :
    pid=
    : >"$folder/ready"
    sed -n 's/.*Collected : \([0-9][0-9]*\)$/\1/p' "$folder/said"
}

printf '%12s  %-6s %-8s %s\n' INSTRUCTIONS REQUEST LOAD NODE
measure() {
    for depth in 1 16; do
        for reads in 1 0; do
            a=$(collected "$2" "$few" "$depth" "$reads" "$3" "$4")
            b=$(collected "$2" "$many" "$depth" "$reads" "$3" "$4")
            [ "$reads" = 1 ] && what=GET || what=SET
            printf '%12s  %-6s %-8s %s\n' "$(((b - a) / (many - few)))" "$what" "50 x $depth" "$1"
        done
    done
}
[ -z "$older" ] || measure "the older one" "$older" "" ""
measure "without a key" "$node" "" ""
measure "with a key" "$node" "" "--key $folder/key --plaintext-peers"
measure "by TLS" "$node" "--ticket @$folder/ticket" "--key $folder/key --plaintext-peers"
