#!/usr/bin/env bash
# All tests, in one command: format, lints, tests, documentation, and the real Python DistKV
# client against real nodes. Stops at the first step that fails.
#
# Needs Rust, a C compiler, Python 3.11 with venv, `ip`, `jq`, `curl`, Prometheus' `promtool`, Redis and
# Chromium (Debian 12: apt-get install gcc python3-venv iproute2 jq curl prometheus redis-server chromium), and root or a kernel that
# lets users make namespaces; the Python client is installed into a virtual environment below the target directory, once.
# `cargo nextest` and `cargo deny` are used if they are there.
#
# As root on Debian, with `systemd-analyze` (and `lintian`), the package is built, checked and tried.
#
# Some steps run beside others, to save time; what they print comes at the end of each.
#
# The last two lines sum up: "N passed, N failed" for people, and one of JSON for programs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

target=${CARGO_TARGET_DIR:-$PWD/target}
case $target in
    /*) ;;
    *) target=$PWD/$target ;;
esac
logs=$target/test-logs
mkdir -p "$logs"
rm -f "$logs"/*

passed=0
failed=0
skipped=0
steps=0
current="(none)"
started=$SECONDS

finish() {
    status=$?
    trap - EXIT
    stop_beside
    result=passed
    if [ "$status" -ne 0 ]; then
        result=failed
        # A step without tests of its own (lints, say) that failed is a failure, too.
        [ "$failed" -gt 0 ] || failed=1
        printf '\n== FAILED: %s (exit status %s)\n' "$current" "$status"
    fi
    printf '\n%s passed, %s failed\n' "$passed" "$failed"
    printf '{"result":"%s","passed":%s,"failed":%s,"skipped":%s,"steps":%s,"seconds":%s}\n' \
        "$result" "$passed" "$failed" "$skipped" "$steps" "$((SECONDS - started))"
    exit "$status"
}
trap finish EXIT

# Tells when a step begins, and how much CPU those before it used, which is the same on a busy machine.
step() {
    current=$1
    steps=$((steps + 1))
    times >"$logs/times"
    printf '\n== %s (%ss so far, %ss of CPU)\n' "$current" "$((SECONDS - started))" \
        "$(awk -F '[ ms]+' 'NR == 2 { printf "%d", 60 * ($1 + $3) + $2 + $4 }' "$logs/times")"
}

# The steps that run beside others: their process groups by name.
declare -A beside=()

# Starts a command, with a file for what it prints, and goes on.
beside() {
    local name=$1
    shift
    set -m
    "$@" >"$logs/$name.log" 2>&1 </dev/null &
    set +m
    beside[$name]=$!
}

# The same, with only what the others leave of the machine: tests do not feel it.
beside_idle() {
    beside "$1" leave_way "${@:2}"
}
leave_way() {
    chrt --idle --pid 0 "$BASHPID" || true
    "$@"
}

# The step `title` is to wait for it.
join() {
    local name=$1 title=$2 status=0
    step "$title"
    wait "${beside[$name]}" || status=$?
    unset "beside[$name]"
    cat "$logs/$name.log"
    return "$status"
}

stop_beside() {
    local group
    for group in "${beside[@]}"; do
        kill -- "-$group" 2>/dev/null || true
    done
}

# Adds up what a test runner says at its end; it is in the log whether it failed or not.
count() {
    local sums
    sums=$(sed 's/\x1b\[[0-9;]*m//g' "$2" | awk -v kind="$1" '
        function add(line,    n, i, part) {
            n = split(line, part, /[,;:.=] *| +in +/)
            for (i = 1; i <= n; i++) {
                sub(/^ +/, "", part[i])
                if (part[i] ~ /^[0-9]+ passed/) p += part[i] + 0
                else if (part[i] ~ /^[0-9]+ (failed|errors?|timed out)/) f += part[i] + 0
                else if (part[i] ~ /^[0-9]+ (skipped|ignored)/) s += part[i] + 0
            }
        }
        kind == "cargo" && /^test result: / { sub(/^test result: [A-Za-z]+\. /, ""); add($0) }
        kind == "nextest" && /^ +Summary \[/ { last = $0 }
        kind == "go" && /^--- PASS: / { p++ }
        kind == "go" && /^--- FAIL: / { f++ }
        kind == "go" && /^--- SKIP: / { s++ }
        kind == "pytest" && /(passed|failed|errors?).* in [0-9.]+s/ { last = $0; gsub(/^=+ | =+$/, "", last) }
        END {
            if (kind == "nextest") sub(/^.* tests? run: /, "", last)
            if (kind == "nextest" || kind == "pytest") add(last)
            print p + 0, f + 0, s + 0
        }')
    read -r p f s <<<"$sums"
    passed=$((passed + p))
    failed=$((failed + f))
    skipped=$((skipped + s))
}

# Runs a test runner, shows its output and counts from it.
tests() {
    local kind=$1 log=$2 status=0
    shift 2
    "$@" 2>&1 | tee "$logs/$log" || status=$?
    count "$kind" "$logs/$log"
    return "$status"
}

# Waits for a test runner that was started beside others, and counts from what it said.
join_tests() {
    local kind=$1 name=$2 status=0
    join "$name" "$3" || status=$?
    count "$kind" "$logs/$name.log"
    return "$status"
}

# Most tests wait for nodes more than they work.
side_by_side=$((4 * $(nproc)))

export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto}

# What makes the next build quick makes the first one slower.
[ -z "${CI:-}" ] || export CARGO_INCREMENTAL=0

# They come over the network, the longest first.
environments() {
    tests/python/setup-venv.sh "$target/python-venv"
    clients/python/setup-venv.sh "$target/python-client-venv"
    clients/go/setup-toolchain.sh "$target/go-toolchain" >"$logs/go"
}
beside_idle environments environments

step "format"
cargo fmt --all --check

# `clippy-driver` is rustc with more lints, so one compilation can lint and build; `cargo clippy` beside `cargo build` looks at
# all of our code twice. It is told `-D warnings` as `cargo clippy` tells it; if this one doesn't take that, twice it is.
driver=$(rustc --print sysroot)/bin/clippy-driver
deny='-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__'
refuses() {
    printf '%s\n' "$1" >"$logs/lint.rs"
    ! CLIPPY_ARGS=$deny "$driver" rustc --crate-type=lib --emit=metadata --out-dir "$logs" "$logs/lint.rs" >"$logs/lint.log" 2>&1
}
if [ -x "$driver" ] && ! refuses 'pub fn f() {}' && refuses 'fn unused() {}' && refuses 'pub fn f(s: &str) -> bool { s.len() == 0 }'; then
    export RUSTC_WORKSPACE_WRAPPER=$driver CLIPPY_ARGS=$deny
else
    step "lints"
    cargo clippy --locked --workspace --all-targets -- -D warnings
fi

step "lints and build"
# Programs and examples, too, which tests and the steps below start: built one by one, they get other features, and
# all that they stand on is built again.
cargo build --locked --workspace --all-targets

join environments "Python and Go: environments"
GO=$(cat "$logs/go")
export GO GOCACHE=${GOCACHE:-$target/go-cache}
# The tests need no more than this to be built.
beside_idle go-lints env DISTKV_NODE_BIN="$target/debug/distkv-node" clients/go/check.sh -run '^$'
# Once the tests run, the Cargo that built them lets another one build.
documentation() {
    until grep -qsE '(Starting|Running)[^ ]* ' "$logs/rust.log"; do sleep 0.2; done
    RUSTDOCFLAGS="${RUSTDOCFLAGS:-} -D warnings" cargo doc --locked --workspace --no-deps
}
beside_idle documentation documentation

step "tests"
# Except `sim`, which follows, and `conformance`, which the last step runs.
if cargo nextest --version >/dev/null 2>&1; then
    tests nextest rust.log \
        cargo nextest run --locked --workspace --all-targets -E 'not binary(=sim) and not binary(=conformance)' \
        ${CI:+--profile ci} --test-threads "$side_by_side"
    join documentation "documentation"
    # On its own: its seeds take all cores, and nodes of other tests would be late.
    step "the simulator"
    tests nextest sim.log \
        cargo nextest run --locked --workspace --all-targets -E 'binary(=sim)' ${CI:+--profile ci}
else
    tests cargo rust.log cargo test --locked --workspace --lib --bins --examples \
        --test pure --test nodes --test program
    join documentation "documentation"
    step "the simulator"
    tests cargo sim.log cargo test --locked --workspace --test sim
fi

# They check what they show, and end with an error where it is otherwise.
for example in watch_resume shared_counter feature_flags service_presence; do
    step "the example $example"
    "$target/debug/examples/$example"
    passed=$((passed + 1))
done

join go-lints "the smart client for Go: lints and build"

step "documentation tests"
tests cargo doc.log cargo test --locked --workspace --doc

# Without what the simulator and tests plant: what follows runs the program that users get.
step "the node"
cargo build --locked --bin distkv-node
# The scenarios build the other one again, in the same place.
product=$target/product/distkv-node
install -D "$target/debug/distkv-node" "$product"

if cargo deny --version >/dev/null 2>&1; then
    step "licences, bans and sources of dependencies"
    cargo deny --offline --locked check licenses bans sources
fi

# Whether a copy of this system can be made: an overlay in a namespace of its own, so that nothing is installed here.
can_copy_system() {
    local place done=0
    [ "$(id -u)" -eq 0 ] || return 1
    place=$(mktemp -d)
    unshare --mount --net bash -c '
        mount -t tmpfs tmpfs "$1" && mkdir "$1/upper" "$1/work" "$1/root" &&
            mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
    ' bash "$place" || done=1
    rmdir "$place"
    return "$done"
}

export DISTKV_NODE_BIN=${DISTKV_NODE_BIN:-$product}

step "the Python client, with thousands of streams"
# By itself: the library ends a connection where it has to wait for its own queue for a second, as it does beside other tests.
many_streams=tests/python/test_limits.py
tests pytest python-streams.log "$target/python-venv/bin/python" -m pytest "$many_streams"

# They wait for nodes more than they work.
beside go-client clients/go/check.sh
step "the Python client"
# A worker that has run out of tests takes some of another's: a few take long, and stand together in their files.
tests pytest python.log "$target/python-venv/bin/python" -m pytest tests/python --ignore "$many_streams" \
    -n "$((2 * $(nproc)))" --dist worksteal

if command -v dpkg-deb >/dev/null 2>&1 && command -v systemd-analyze >/dev/null 2>&1 && can_copy_system; then
    beside debian timeout 600 packaging/test-deb.sh "$product" "$target/debug/examples/man_pages"
fi

# A client that breaks one of the rules is found; that waits more than it works.
beside planted clients/conformance/run.sh --planted
# Our own client for Python; its longer tests: clients/python/README.md.
step "the smart client for Python"
tests pytest python-client.log "$target/python-client-venv/bin/python" -m pytest clients/python -n "$side_by_side" --dist worksteal
join_tests go go-client "the smart client for Go"

if [ -n "${beside[debian]:-}" ]; then
    join debian "the Debian package"
    passed=$((passed + 1))
else
    skipped=$((skipped + 1))
fi

# All three clients do the same: clients/conformance/README.md. The runner is a test program that waits for their drivers.
step "the smart clients: scenarios"
tests cargo scenarios.log clients/conformance/run.sh
join_tests cargo planted "the smart clients: a rule broken at a time"

current="(none)"
