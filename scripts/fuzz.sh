#!/usr/bin/env bash
# fuzz.sh TIME: every fuzz target of the module for TIME each.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=$(mktemp)
trap 'rm -f "$out"' EXIT

# fuzz PACKAGE TARGET
fuzz() { ${GO:-go} test -run '^$' -fuzz "^$2\$" -fuzztime "$time" "$1" >"$out" 2>&1; }

time=${1:-5s}
for package in $(${GO:-go} list ./...); do
    targets=$(${GO:-go} test -list '^Fuzz' "$package")
    for target in $(grep '^Fuzz' <<<"$targets" || true); do
        echo "$package $target"
        # The fuzzer itself now and then takes the end of its time for a failure:
        # such a run has no failing input.
        fuzz "$package" "$target" ||
            { grep -q 'context deadline exceeded' "$out" && ! grep -q 'Failing input' "$out" && fuzz "$package" "$target"; } ||
            { cat "$out"; exit 1; }
        tail -n 1 "$out"
    done
done
