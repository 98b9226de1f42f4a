#!/usr/bin/env bash
# build-agent.sh [--optional] [ARCH [CC]]: compiles the in-process agent for ARCH
# (amd64 unless given) into internal/inject/lib, where go build embeds it. Without a C
# compiler for ARCH this fails; with --optional it says what will be missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

optional=
if [ "${1-}" = --optional ]; then optional=1; shift; fi
arch=${1:-amd64}
cc=${2:-${CC:-cc}}
lib=internal/inject/lib/libclrsnap-agent-linux-$arch.so

# usable: whether the compiler makes libraries for ARCH from files that use libc. It does
# not compile the agent: an error in the agent's sources always fails the build.
usable() {
    case $arch in
    amd64) macro=__x86_64__ ;;
    arm64) macro=__aarch64__ ;;
    *) echo "no such architecture"; return 1 ;;
    esac
    printf '#include <pthread.h>\n#ifndef %s\n#error compiles for another architecture\n#endif\n' "$macro" |
        $cc -shared -fPIC -x c -o /dev/null - 2>&1
}
if ! why=$(usable); then
    rm -f "$lib"
    echo "build-agent.sh: $cc is no C compiler for $arch${why:+: $why}" >&2
    [ -n "$optional" ] || exit 1
    echo "build-agent.sh: clrsnap is built without the in-process agent;" \
        "install a C compiler (Debian: apt-get install gcc libc6-dev) and run make build again to have it" >&2
    exit 0
fi

# Moved into place, and only if it has changed: other builds that run now see a whole
# file, and go build has nothing to do if the file is the same.
mkdir -p bin
new=$(mktemp bin/agent.XXXXXX)
trap 'rm -f "$new"' EXIT
$cc @agent/cflags -o "$new" agent/*.c
chmod 644 "$new"
cmp -s "$new" "$lib" || mv "$new" "$lib"
