#!/usr/bin/env bash
# fuzz.sh TIME: runs every fuzz target of the module for TIME, two at a time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export time=${1:-5s} GO=${GO:-go}
cache=$($GO env GOCACHE)/fuzz/$($GO list -m) # where go test has it
export cache

# fuzz PACKAGE TARGETS: the tests of a package are built once for all of its targets.
fuzz() {
    local package=$1 dir status=0
    shift
    dir=$(mktemp -d)
    $GO test -c -fuzz . -o "$dir/tests" "$package" || return 255 # which ends xargs
    once() {
        (cd "$package" && "$dir/tests" -test.run '^$' -test.fuzz "^$1\$" -test.fuzztime "$time" -test.parallel 1 \
            -test.fuzzcachedir "$cache/$package") >"$dir/out" 2>&1
    }
    # Go's fuzzer sometimes reports the end of its time as a failure. Such a run has no failing input, and is repeated,
    # twice at most.
    only_late() { grep -q 'context deadline exceeded' "$dir/out" && ! grep -q 'Failing input' "$dir/out"; }
    for target; do
        once "$target" || { only_late && once "$target"; } || { only_late && once "$target"; } || status=255
        echo "$package $target"
        if [ "$status" != 0 ]; then cat "$dir/out"; break; fi
        tail -n 2 "$dir/out"
    done
    rm -rf "$dir"
    return "$status"
}
export -f fuzz

grep -r --include='*_test.go' -o '^func Fuzz[A-Za-z0-9_]*' . | sed 's#/[^/]*:func # #' | sort -u |
    awk '{ if ($1 != p) printf "%s%s", (p ? "\n" : ""), $1; p = $1; printf " %s", $2 } END { print "" }' |
    xargs -r -L 1 -P 2 bash -c 'fuzz "$@"' fuzz
