#!/usr/bin/env bash
# pictures.sh: makes the pictures of README and docs, docs/img/*.png, from the sample
# service, with terminals and a browser. Needs aha, chromium and script (Debian's
# bsdutils), and `make build dotnet`. Run it on an idle machine: the pictures show pauses.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

kit=${CLRSNAP_DOTNET:-${XDG_CACHE_HOME:-$HOME/.cache}/clrsnap-dotnet}
tmp=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null; rm -rf "$tmp" /tmp/shop' EXIT
export DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1

# The pictures must not show paths of this machine.
rm -rf /tmp/shop; mkdir -p /tmp/shop docs/img
for name in Shop:net11 Store:net11 Mail:net10 Legacy:net10; do
    "$kit/bin/csc" "${name#*:}" -o+ -out:"/tmp/shop/${name%:*}.dll" --rtc \
        testdata/apps/common/*.cs testdata/apps/service/*.cs
done
"$kit/bin/csc" net11 -o+ -out:/tmp/shop/Warehouse.dll --rtc testdata/apps/common/*.cs testdata/apps/heap/*.cs
"$kit/bin/csc" net11 -o+ -out:/tmp/shop/Webshop.dll --rtc --aspnet testdata/apps/common/*.cs testdata/apps/shop/*.cs

# start HOST ARGS...: starts a program under the name dotnet
start() {
    local host=$1; shift
    (cd /tmp/shop && exec -a dotnet "$kit/$host" "$@" --max-seconds 120) >"$tmp/$1.log" &
    pids+=($!)
    until grep -qs '^READY' "$tmp/$1.log"; do sleep 0.1; done
}
start net11/dotnet Shop.dll --clients 6
service=${pids[0]}
sleep 2

# friendly replaces the ids of the service by 4242, 4243, …, and removes this machine's paths
friendly() {
    local script="s#$kit/net1[01]/##g; s#$tmp/##g; s/\x1b\[2m/\x1b[90m/g" dir tid
    local pid width=4
    for pid in "${pids[@]}"; do if [ ${#pid} -gt $width ]; then width=${#pid}; fi; done
    script+="; s/^ *$service /$(printf "%${width}d" 4242) /" # of ps: in the column of ids
    for dir in "/proc/$service/task"/*; do
        tid=${dir##*/}
        script+="; s/\b$tid\b/$((4242 + tid - service))/g"
    done
    sed "$script"
}

# screenshot NAME WIDTH HEIGHT FILE [FLAGS...]: what a browser shows of a page
screenshot() {
    chromium --no-sandbox --disable-gpu --hide-scrollbars --no-first-run --disable-background-networking \
        --user-data-dir="$tmp/chromium" --window-size="$2,$3" --screenshot="docs/img/$1.png" \
        "${@:5}" "file://$4" >/dev/null 2>&1
    echo "docs/img/$1.png"
}

# terminal COLUMNS COMMAND...: what a terminal with COLUMNS columns shows of a command of clrsnap
terminal() {
    local columns=$1; shift
    printf '\033[1;32m$\033[0m \033[1mclrsnap %s\033[0m\n' "$(sed "s/\b$service\b/4242/g; s#$tmp/##g" <<<"$*")"
    script -qec "stty cols $columns; bin/clrsnap $(printf ' %q' "$@")" /dev/null |
        sed 's/\r$//; s/.*\r\x1b\[K//' | friendly
}

# picture NAME COLUMNS COMMAND...: a picture of that terminal
picture() {
    local name=$1 columns=$2; shift 2
    terminal "$columns" "$@" >"$tmp/$name.ans" || true
    { echo '<!doctype html><meta charset="utf-8"><style>html{background:#14171c}body{margin:14px 18px;color:#d7dae0}'
      echo 'pre{font:14px/19px "DejaVu Sans Mono",monospace;margin:0;white-space:pre}</style><pre>'
      aha --no-header --black <"$tmp/$name.ans" |
          sed 's/filter: contrast(70%) brightness(190%);color:dimgray;/color:#7d8590;/g'
      echo '</pre>'; } >"$tmp/$name.html"
    local rows height
    rows=$(wc -l <"$tmp/$name.ans")
    height=$((rows * 19 + 28))
    if [ $height -lt 170 ]; then height=170; fi # chromium leaves the bottom of a lower window unpainted
    screenshot "$name" $((columns * 9)) $height "$tmp/$name.html" --headless
}

picture stack 136 stack "$service" --thread orders
picture group 136 stack "$service" --managed --group
picture doctor 225 doctor "$service"
picture tasks 118 tasks "$service"
picture heap 118 heap "$service" --limit 12

shop=$service
start net11/dotnet Store.dll --deadlock --clients 1
service=${pids[-1]}
sleep 1
picture locks 136 locks "$service"
picture why 118 why "$service"
service=$shop

# serve ARGS...: starts a web service; its address is in $url
serve() {
    local log="$tmp/web.${#pids[@]}"
    mkfifo "$log.in"
    (cd /tmp/shop && exec -a dotnet "$kit/net11/dotnet" Webshop.dll --stdin "$@" --max-seconds 120) <"$log.in" >"$log" &
    pids+=($!)
    exec {commands}>"$log.in"
    until grep -qs '^READY' "$log"; do sleep 0.1; done
    echo url >&"$commands"
    until url=$(sed -n 's/^ANSWER //p' "$log") && [ -n "$url" ]; do sleep 0.1; done
}
serve # a supplier that takes connections, and never answers
kill -STOP "${pids[-1]}"
serve --sick remote-async --supplier "${url#http://}"
service=${pids[-1]}
for n in 17 4 17 23 8; do
    { exec {client}<>"/dev/tcp/127.0.0.1/${url##*:}"
      printf 'GET /suppliers/%d/price-later HTTP/1.1\r\nHost: shop\r\n\r\n' "$n" >&"$client"; }
    sleep 0.5
done
picture requests 118 requests "$service"
kill -KILL "${pids[-2]}"
service=$shop

# page NAME FILE: a picture of a flame graph
page() { screenshot "$1" 1280 800 "$2" --headless=new --virtual-time-budget=5000; }

start net11/dotnet Warehouse.dll
bin/clrsnap heap "${pids[-1]}" --retained -o "$tmp/heap.html"
page heap-map "$tmp/heap.html"

picture record 136 record "$service" --duration 20s --output "$tmp/shop.html"
picture view 118 view "$tmp/shop.html" --mode cpu --managed --top 12
page flame "$tmp/shop.html"
bin/clrsnap view "$tmp/shop.html" --mode wall -o "$tmp/wall.html"
page flame-wall "$tmp/wall.html"
picture events 136 record "$service" --event alloc,contention --alloc-every 100KB --duration 20s \
    --output "$tmp/shop-events.html"
bin/clrsnap view "$tmp/shop-events.html" --mode alloc -o "$tmp/alloc.html"
page flame-alloc "$tmp/alloc.html"
picture view-locks 118 view "$tmp/shop-events.html" --mode contention --top 8
(cd /tmp/shop && DOTNET_DbgEnableMiniDump=1 DOTNET_DbgMiniDumpType=4 DOTNET_DbgMiniDumpName="$tmp/core.4242" \
    exec -a dotnet "$kit/net11/dotnet" Shop.dll --bankrupt --max-seconds 60 >/dev/null 2>&1) || true
picture core 118 stack --core "$tmp/core.4242" --thread billing
start net10/dotnet Mail.dll --clients 1
start net10/dotnet-10.0.8 Legacy.dll --clients 1
picture ps 150 ps
