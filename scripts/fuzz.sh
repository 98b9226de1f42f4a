#!/usr/bin/env bash
# fuzz.sh TIME: runs every fuzz target of the module for TIME, two at a time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export time=${1:-5s} GO=${GO:-go}

# fuzz PACKAGE TARGET
fuzz() {
    local out
    out=$(mktemp)
    once() { $GO test -run '^$' -fuzz "^$2\$" -fuzztime "$time" -parallel 1 "$1" >"$out" 2>&1; }
    # Go's fuzzer sometimes reports the end of its time as a failure. Such a run has no failing input.
    only_late() { grep -q 'context deadline exceeded' "$out" && ! grep -q 'Failing input' "$out"; }
    local status=0
    once "$@" || { only_late && once "$@"; } || status=255 # which ends xargs
    echo "$1 $2"
    if [ "$status" = 0 ]; then tail -n 1 "$out"; else cat "$out"; fi
    rm -f "$out"
    return "$status"
}
export -f fuzz

grep -r --include='*_test.go' -o '^func Fuzz[A-Za-z0-9_]*' . | sed 's#/[^/]*:func # #' | sort -u |
    xargs -r -n 2 -P 2 bash -c 'fuzz "$@"' fuzz
