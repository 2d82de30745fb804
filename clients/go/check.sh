#!/usr/bin/env bash
# Format, vet, and all tests of the Go client, with the race detector (which needs a C compiler). DISTKV_NODE_BIN names the
# node's program. GO names the folder of the toolchain, if it is not on the PATH.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
PATH=${GO:+$GO:}$PATH
# Nothing is fetched: the client needs the standard library alone.
export GOTOOLCHAIN=local GOPROXY=off

unformatted=$(gofmt -l .)
if [ -n "$unformatted" ]; then
    echo "not formatted: $unformatted" >&2
    exit 1
fi
go vet ./...
go vet -tags distkv_planted ./...
go test -race -timeout 600s -v "$@" ./...
