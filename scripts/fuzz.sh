#!/usr/bin/env bash
# fuzz.sh TIME: runs every fuzz target of the module for TIME.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=$(mktemp)
trap 'rm -f "$out"' EXIT

# fuzz PACKAGE TARGET
fuzz() { ${GO:-go} test -run '^$' -fuzz "^$2\$" -fuzztime "$time" "$1" >"$out" 2>&1; }

# Go's fuzzer sometimes reports the end of its time as a failure. Such a run has no failing input.
only_late() { grep -q 'context deadline exceeded' "$out" && ! grep -q 'Failing input' "$out"; }

time=${1:-5s}
for package in $(${GO:-go} list ./...); do
    targets=$(${GO:-go} test -list '^Fuzz' "$package")
    for target in $(grep '^Fuzz' <<<"$targets" || true); do
        echo "$package $target"
        fuzz "$package" "$target" || { only_late && fuzz "$package" "$target"; } || { cat "$out"; exit 1; }
        tail -n 1 "$out"
    done
done
