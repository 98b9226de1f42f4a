#!/usr/bin/env bash
# get-speedscope.sh: the published JSON schema of speedscope's file format, and a
# validator for it, for the tests of package export.
#
#   scripts/get-speedscope.sh [DIR]
#
# DIR defaults to $CLRSNAP_SPEEDSCOPE, then ${XDG_CACHE_HOME:-$HOME/.cache}/clrsnap-speedscope.
# The packages come from npm, each pinned and checked. What is in place is not
# fetched again; a changed script makes everything anew.
set -euo pipefail

die() { echo "get-speedscope: $*" >&2; exit 1; }

DIR=${1:-${CLRSNAP_SPEEDSCOPE:-}}
if [ -z "$DIR" ]; then
    cache_home=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
    [ -n "$cache_home" ] || die "neither HOME nor XDG_CACHE_HOME is set: name a directory"
    DIR=$cache_home/clrsnap-speedscope
fi

# name@version SHA-256 of the archive
PACKAGES='
speedscope@1.25.0 2831f1e0d26df914b477e522d78b8485511495a6af81a0b88158f8b48f9e0d03
ajv@8.20.0 b2f0b3a893bbb8cc5efb6814f08b1499e19e31d5dd73683f5893382f48f6e7b3
fast-deep-equal@3.1.3 b019a0980f27638dc3f85836b0e478f188e00d7a6e5852c0819fa86f56e47b8f
fast-uri@3.0.1 c6a4384688609de189ca2a33c7e6d4363beed2ad4d6291ed9ca450e30cfff1c1
json-schema-traverse@1.0.0 023222622df29fc274bde5d3590e47aa1d4a8e3c1d6e2aba029948ed79799b21
require-from-string@2.0.2 cb694a4965908f7775a0c757f00cf4e624d193cd71d77988fbcca0f597b88d82
'

mkdir -p "$DIR"
DIR=$(cd "$DIR" && pwd)
exec 9>"$DIR/.lock"
flock 9
SOURCES=$(sha256sum <"${BASH_SOURCE[0]}" | cut -c1-16)
[ "$(cat "$DIR/.done" 2>/dev/null)" != "$SOURCES" ] || exit 0

command -v npm >/dev/null || die "npm is missing: install it (Debian: apt-get install npm)"
TMP=$DIR/.tmp
trap 'rm -rf "$TMP"' EXIT
rm -rf "$TMP" "$DIR/node_modules"
mkdir -p "$TMP"
while read -r spec sum; do
    [ -n "$spec" ] || continue
    echo "get-speedscope: npm pack $spec" >&2
    file=$(cd "$TMP" && npm pack --silent --ignore-scripts "$spec") || die "npm could not fetch $spec"
    echo "$sum  $TMP/$file" | sha256sum -c --status || die "$spec: wrong checksum"
    mkdir -p "$DIR/node_modules/${spec%@*}"
    tar xzf "$TMP/$file" -C "$DIR/node_modules/${spec%@*}" --strip-components=1
done <<<"$PACKAGES"
echo "$SOURCES" >"$DIR/.done"
