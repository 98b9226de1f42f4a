#!/usr/bin/env bash
# demo.sh: starts the sample service of testdata/apps and looks at it with
# bin/clrsnap. Called by `make demo`, which has built both.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

kit=${CLRSNAP_DOTNET:-${XDG_CACHE_HOME:-$HOME/.cache}/clrsnap-dotnet}
out=$(mktemp -d)
service=''
finish() {
    if [ -n "$service" ]; then
        exec 3>&-   # the service ends when its stdin does
        wait "$service" 2>/dev/null || true
    fi
    rm -rf "$out"
}
trap finish EXIT
trap 'exit 130' INT TERM

# show COMMAND...: prints the command, then runs it
show() {
    printf '\n$ %s\n' "$*"
    "$@"
}

echo "building and starting the sample service ..."
net=net10
[ ! -x "$kit/net11/dotnet" ] || net=net11
"$kit/bin/csc" "$net" -o+ -out:"$out/service.dll" --rtc testdata/apps/common/*.cs testdata/apps/service/*.cs
export DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1
exec 3> >(exec "$kit/$net/dotnet" "$out/service.dll" --stdin --max-seconds 120 >"$out/log")
service=$!
for ((i = 0; i < 300; i++)); do
    if grep -qs '^READY' "$out/log"; then break; fi
    kill -0 "$service" 2>/dev/null || { echo "the service did not start" >&2; exit 1; }
    sleep 0.1
done
sleep 1     # some load

show bin/clrsnap ps
show bin/clrsnap stack "$service"
show bin/clrsnap record "$service" --duration 5s --output bin/demo.html
show bin/clrsnap view bin/demo.html --mode cpu --managed --top 8
