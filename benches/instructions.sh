#!/bin/sh
# Counts the instructions of each part of benches/parts.rs, with callgrind: figures that do not depend on
# what else the machine does. Needs valgrind.
#
#   benches/instructions.sh [PROFILE]
#
# PROFILE is a profile of Cargo.toml: bench (the default), or measure, which is built sooner.
set -eu
cd "$(dirname "$0")/.."
profile=${1:-bench}
command -v valgrind >/dev/null || { echo "valgrind is not installed" >&2; exit 1; }

# The last line that names an executable is the benchmark's.
program=$(cargo bench --profile "$profile" --bench parts --no-run 2>&1 |
    sed -n 's/.*Executable .*(\(.*\))$/\1/p' | tail -n 1)
[ -n "$program" ] || { echo "the benchmark cannot be built: try cargo bench --no-run" >&2; exit 1; }

printf '%14s  %s\n' 'INSTRUCTIONS' 'PER OPERATION OF'
"$program" --names | while IFS= read -r name; do
    # Only what happens in `measured` is counted.
    if ! said=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null --collect-atstart=no \
        --toggle-collect='*parts*measured*' "$program" --once "$name" 2>&1); then
        printf '%s\n' "$said" >&2
        exit 1
    fi
    operations=$(printf '%s\n' "$said" | sed -n 's/^\([0-9][0-9]*\)$/\1/p')
    total=$(printf '%s\n' "$said" | sed -n 's/.*Collected : \([0-9][0-9]*\)$/\1/p')
    printf '%14s  %s\n' "$((total / operations))" "$name"
done
