#!/usr/bin/env bash
# Runs the tests of a layer: check, live, matrix or proof. internal/testenv/layer says what
# belongs to which. quiet is the part of proof beside which nothing else may run.
#
#   scripts/test.sh LAYER [short|full] [go test's flags and packages] [-args the tests' own flags]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
GO=${GO:-go}

layer=${1:?"usage: scripts/test.sh check|live|matrix|proof|quiet [short|full] [go test's flags and packages]"}
shift
tags=$layer
timeout=60m
at_once=1
saying= # what a test says that belongs to this layer alone
but=    # what no test of such a package says
case $layer in
    check) timeout=20m at_once=2 ;;
    live) at_once=4 ;; # more than there are CPUs: tests wait half of the time
    matrix) saying='layer\.Matrix(\|layer\.Each(\|EachRuntime(\|EachOf(\|EachOfKit(\|EachVersion(' at_once=3 ;;
    proof) saying='layer\.Proof(' but='layer\.Quiet(' at_once=2 ;;
    quiet) tags=proof saying='layer\.Quiet(' ;;
    *) echo "$0: there is no layer $layer: give check, live, matrix, proof or quiet" >&2; exit 2 ;;
esac
case ${1:-} in
    short) shift ;;
    full) tags=$tags,full timeout=6h; shift ;;
esac

packages=()
flags=()
while [ $# -gt 0 ] && [ "$1" != -args ]; do
    case $1 in
        --) ;;
        ./*|.) packages+=("$1") ;;
        *) flags+=("$1") ;;
    esac
    shift
done
# Those that take the longest come first, so that nothing waits for one of them at the end.
longest=(./why ./cmd/clrsnap ./record ./internal/matrix ./internal/session ./internal/tasks ./export
    ./internal/target/live . ./internal/naming ./internal/heapwalk ./internal/deadlock ./internal/testenv
    ./internal/agent ./internal/replay ./internal/inject ./internal/perfevent ./internal/target/core
    ./internal/proof/requests)
if [ ${#packages[@]} -eq 0 ]; then
    packages=("${longest[@]}" ./...)
    if [ -n "$saying" ]; then
        saying() { grep -rl --include='*_test.go' "$1" . | xargs -n1 dirname | sort -u; }
        said() { comm -23 <(saying "$saying") <([ -z "$but" ] || saying "$but"); }
        mapfile -t packages < <(said | { grep -xF "$(printf '%s\n' "${longest[@]}")" || true; }; said)
        if [ ${#packages[@]} -eq 0 ]; then echo "$0: no package has tests of layer $layer" >&2; exit 1; fi
    fi
fi

# A terminal sees each test as it ends, others a line for each package. Failures are repeated at
# the end. Tests of other layers are not shown.
format=pkgname
color=()
if [ -t 1 ]; then
    format=testname
    [ -n "${NO_COLOR:-}" ] || color=(--no-color=false)
fi
events=$(mktemp)
unjudged=$(mktemp)
trap 'rm -f "$events" "$unjudged"' EXIT
status=0
# Nothing is taken from go test's cache, which does not see what compilers and .NET read. make lint
# has go vet. Debug information of the tests themselves (-w: none) is a third of the linker's work.
"$GO" run gotest.tools/gotestsum@v1.13.0 --format "${CLRSNAP_TEST_FORMAT:-$format}" --format-hide-empty-pkg \
    ${color[@]+"${color[@]}"} --hide-summary skipped --jsonfile "$events" \
    -- -tags "$tags" -p "$at_once" -timeout "$timeout" -count 1 -vet off -ldflags -w \
    "${packages[@]}" ${flags[@]+"${flags[@]}"} "$@" |
    grep --line-buffered -v $'^\\(\e\\[[0-9;]*m\\)*SKIP\\(\e\\[0m\\)* ' || status=${PIPESTATUS[0]}

# told prints the tests that said something, with what they said.
told() { sed -n 's/.*"Test":"\([^"]*\)","Output":" *\([^"]*: *'"$1"'.*\)\\n".*/\1: \2/p' "$events"; }
# ended prints the tests that passed or failed, without their parts: seconds, package and name.
ended() {
    local named='"Package":"\([^"]*\)","Test":"\([^"/]*\)","Elapsed":\([^}]*\)'
    sed -n "s/.*\"Action\":\"\(pass\|fail\)\",$named.*/\4 \2 \3/p" "$events"
}
# count counts what is the same until a slash or a colon as one.
count() { sed 's,[/:].*,,' | sort -u | wc -l; }

# What was skipped although it belongs to the layer: this machine lacks something.
lacking=$(told SKIPPED)
if [ -n "$lacking" ]; then
    printf '\nNot tested:\n'
    sed 's/^/    /' <<<"$lacking"
fi
# What was tried, but shows nothing: this machine was too busy, or is another one.
told 'NOT JUDGED' >"$unjudged"
if [ -s "$unjudged" ] || [[ $layer =~ ^(proof|quiet)$ ]]; then
    printf '\nNOT JUDGED: %d of %d tests\n' "$(count <"$unjudged")" \
        "$({ ended | cut -d' ' -f3; cat "$unjudged"; } | count)"
    sed 's/^/    /' "$unjudged"
fi
printf '\nThe slowest, in seconds:\n'
ended | sort -rn | sed -n '1,10s/^/    /p'
exit "$status"
