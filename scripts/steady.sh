#!/usr/bin/env bash
# Are the tests green whatever else the machine does? Runs a target of make again and again, some of the times beside
# four processes that compute and one that writes to the disk, and prints a line for each run, and what failed.
#
#   scripts/steady.sh [target (check)] [runs (5)] [how many of them are loaded (2)]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=${1:-check} runs=${2:-5} loaded=${3:-2}
logs=$(mktemp -d -t clrsnap-steady-XXXXXX)
load=()

compute() { while :; do :; done; }
write() { while :; do dd if=/dev/zero of="$logs/written" bs=1M count=256 conv=fsync status=none; done; }
burden() {
    set -m # each has a process group of its own, which relieve ends
    for _ in 1 2 3 4; do
        compute &
        load+=($!)
    done
    write &
    load+=($!)
    set +m
}
relieve() {
    for group in ${load[@]+"${load[@]}"}; do kill -- "-$group" && wait "$group"; done 2>/dev/null || true
    load=()
    rm -f "$logs/written"
}
trap relieve EXIT

red=0
for ((i = 1; i <= runs; i++)); do
    beside=
    if ((i * loaded / runs > (i - 1) * loaded / runs)); then # spread over the runs
        beside=', loaded'
        burden
    fi
    log=$logs/$i.log
    began=$SECONDS
    if CLRSNAP_TEST_FORMAT=pkgname make "$target" >"$log" 2>&1; then
        printf '%2d: green, %d s%s\n' "$i" $((SECONDS - began)) "$beside"
    else
        red=$((red + 1))
        printf '%2d: RED, %d s%s: %s\n' "$i" $((SECONDS - began)) "$beside" "$log"
        grep -E '^=== FAIL|^make: \*\*\*' "$log" | sort -u | sed 's/^/        /' || true
    fi
    relieve
done
printf '%s: %d of %d runs were green\n' "$target" $((runs - red)) "$runs"
[ "$red" -eq 0 ]
