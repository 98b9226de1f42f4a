#!/usr/bin/env bash
# get-tools.sh: installs, as root and from Debian packages, what the tests use besides Go
# and .NET: a C compiler for the agent and for native test programs, readelf to compare
# unwind information with, gdb's gcore for core dumps, Chromium for the flame graph.
set -euo pipefail

tools=(gcc:gcc readelf:binutils gcore:gdb chromium:chromium)
if [ "${1:-}" = bench ]; then tools=(gcc:gcc wrk:wrk perf:linux-perf); fi
missing=()
for pair in "${tools[@]}"; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
done
[ -e /usr/include/stdio.h ] || missing+=(libc6-dev) # the compiler alone is not enough
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "get-tools.sh: missing: ${missing[*]}:" \
        "install them (Debian: apt-get install ${missing[*]}), or run this as root" >&2
    exit 1
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}"
