#!/usr/bin/env bash
# pictures.sh: makes the pictures of the README, docs/img/*.png, from the sample
# service. Needs aha and chromium (Debian packages) and `make build dotnet`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

kit=${CLRSNAP_DOTNET:-${XDG_CACHE_HOME:-$HOME/.cache}/clrsnap-dotnet}
tmp=$(mktemp -d)
service=''
trap '[ -z "$service" ] || kill "$service" 2>/dev/null; rm -rf "$tmp"' EXIT
export DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1 COLUMNS=118

# A place without the paths of this machine, for what the pictures show.
shop=/tmp/shop
rm -rf "$shop"; mkdir -p "$shop" docs/img
"$kit/bin/csc" net10 -o+ -out:"$shop/Shop.dll" --rtc testdata/apps/common/*.cs testdata/apps/service/*.cs
(cd "$shop" && exec -a dotnet "$kit/net10/dotnet" Shop.dll --clients 12 --max-seconds 120) >"$tmp/log" &
service=$!
until grep -qs '^READY' "$tmp/log"; do sleep 0.1; done
sleep 2

# picture NAME LINES COMMAND...: a terminal of 118 columns that shows the first LINES lines
picture() {
    local name=$1 lines=$2; shift 2
    { printf '\033[1;32m$\033[0m \033[1mclrsnap %s\033[0m\n' "${*//$service/4242}"  | sed "s/\([^ ]*|[^ \x1b]*\)/'\1'/"
      script -qec "stty cols 118; bin/clrsnap $(printf ' %q' "$@")" /dev/null | tr -d '\r' |
          sed "s/\b$service\b/4242/g; s#$kit/net10/##g; s/\x1b\[2m/\x1b[90m/g"; } >"$tmp/$name.ans" || true
    if [ "$(wc -l <"$tmp/$name.ans")" -gt "$lines" ]; then
        head -n "$lines" "$tmp/$name.ans" >"$tmp/cut"; echo '…' >>"$tmp/cut"; mv "$tmp/cut" "$tmp/$name.ans"
    fi
    local rows; rows=$(wc -l <"$tmp/$name.ans")
    { echo '<!doctype html><meta charset="utf-8"><style>html{background:#14171c}body{margin:14px 18px;color:#d7dae0}'
      echo 'pre{font:14px/19px "DejaVu Sans Mono",monospace;margin:0;white-space:pre}</style><pre>'
      cut -c1-400 "$tmp/$name.ans" | aha --no-header --black | sed 's/filter: contrast(70%) brightness(190%);color:dimgray;/color:#7d8590;/g'
      echo '</pre>'; } >"$tmp/$name.html"
    # chromium leaves the bottom of a very low window unpainted
    chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --no-first-run --disable-background-networking \
        --user-data-dir="$tmp/chromium" --window-size=1040,$((rows * 19 + 28 > 170 ? rows * 19 + 28 : 170)) \
        --screenshot="docs/img/$name.png" "file://$tmp/$name.html" >/dev/null 2>&1
    echo "docs/img/$name.png"
}

picture ps 8 ps
picture stack 46 stack "$service" --group=never --thread 'orders|pricing|listener|Main|dotnet'
picture group 30 stack "$service" --managed --group
picture doctor 30 doctor "$service"
rm -rf "$shop"
