#!/usr/bin/env bash
# get-dotnet.sh: real .NET runtimes and a C# compiler for the tests, without
# the .NET download site.
#
#   scripts/get-dotnet.sh [DIR] [MAJOR...] [builds] [aot] [musl]     majors: 8 9 10 11; default all
#
# DIR defaults to $CLRSNAP_DOTNET, then ${XDG_CACHE_HOME:-$HOME/.cache}/clrsnap-dotnet.
# The tests need only 10. A second run makes nothing again. After a change to a
# script everything is made again, from the downloads in DIR/.cache (elsewhere
# with DOTNET_KIT_CACHE). Runs at the same time wait for each other.
#
# What it leaves in DIR:
#
#   net10/, net8/  netN/dotnet app.dll ARGS runs a program. These runtimes are
#                  single-file hosts: `dotnet` holds the runtime and CoreLib, and
#                  the other framework assemblies lie beside it.
#                  net10/dotnet-10.0.8 is a second host, one without a data
#                  contract descriptor.
#   net9/          is used in the same way, but is an ordinary DOTNET_ROOT with a
#                  separate libcoreclr.so and createdump
#   netN/dotnet-*, netN/N.*/
#                  runtimes of other servicing builds, run by netN/dotnet-8.0.4 and
#                  netN/9.0.1/dotnet; scripts/dotnet/builds.txt lists them. A few come
#                  with their major version, all with `builds` (1 GB of downloads).
#   net11/         a DOTNET_ROOT, a copy of the newest installed .NET 11 with ASP.NET Core: no npm package has
#                  that runtime yet. It is looked for in $CLRSNAP_DOTNET_ROOTS/11.*, in $DOTNET_ROOT and beside the
#                  `dotnet` on PATH. If it is nowhere, the kit lacks it, and tests on .NET 11 say that they were
#                  skipped.
#   aot/library.so with `aot`: a native AOT library with a runtime of its own, 10.0.11:
#                  an add-on for Node.js.
#   net9/musl-9.0.9, musl/
#                  with `musl`: a single-file host for Alpine Linux, and what it needs to
#                  run elsewhere. musl/env PROGRAM runs a program that was made with
#                  bin/single net9:musl-9.0.9 OUT app.dll.
#   bin/csc        the C# compiler: bin/csc net10 -o+ -out:app.dll --rtc app.cs
#                  (net11: -langversion:preview -features:runtime-async=on has the runtime suspend async methods)
#   bin/single     a single-file application: bin/single net10[:HOST] OUT app.dll...
#                  (--compress: its assemblies are compressed; --base: without ASP.NET Core)
#   bin/folder     a self-contained application: bin/folder net9 OUTDIR app.dll
#   bin/apphost    a ./app beside app.dll: bin/apphost net9 app.dll
#                  (run it with DOTNET_ROOT=DIR/net9)
#   env.sh         CSC, NET8, NET9, NET10, NET11: the paths, to be sourced
#
# Where it comes from:
#   - npm packages that ship self-contained .NET programs, each pinned and
#     checked. The runtime inside is Microsoft's own build, untouched; one of them
#     also holds Roslyn. scripts/dotnet/kit.js takes them apart;
#   - apt, for commands that are missing: node, npm, mcs (the old compiler builds
#     the small program that has Roslyn build the rest), and gcc for .NET 9.
#
# An installed .NET changes nothing else of this: the tests want these versions and these
# hosts. They use installed runtimes besides (testenv.InstalledRuntimes).
set -euo pipefail

die() { echo "get-dotnet: $*" >&2; exit 1; }
note() { echo "get-dotnet: $*" >&2; }

# ------------------------------------------------------------------ command line
DIR=${CLRSNAP_DOTNET:-}
MAJORS=() ALL_BUILDS= WITH_AOT= WITH_MUSL=
case ${1:-} in
-h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
'' | 8 | 9 | 10 | 11 | builds | aot | musl) ;;
*[!0-9]*) DIR=$1; shift ;;
*) die "no .NET $1 here (8, 9, 10, 11)" ;;
esac
if [ -z "$DIR" ]; then
    cache_home=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
    [ -n "$cache_home" ] || die "neither HOME nor XDG_CACHE_HOME is set: name a directory"
    DIR=$cache_home/clrsnap-dotnet
fi
for major in "$@"; do
    case $major in
    8 | 9 | 10 | 11) MAJORS+=("$major") ;;
    builds) ALL_BUILDS=-all ;;
    aot) WITH_AOT=1 ;;
    musl) WITH_MUSL=1 ;;
    *) die "no .NET $major here (8, 9, 10, 11)" ;;
    esac
done
[ ${#MAJORS[@]} -gt 0 ] || MAJORS=(8 9 10 11)
[ "$(uname -sm)" = 'Linux x86_64' ] || die "only for x86-64 Linux"

# ------------------------------------------------------------------- directories
SRC=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/dotnet
mkdir -p "$DIR"
DIR=$(cd "$DIR" && pwd)
CACHE=${DOTNET_KIT_CACHE:-$DIR/.cache}
TMP=$DIR/.tmp
mkdir -p "$CACHE" "$DIR/bin"
exec 9>"$DIR/.lock"
flock 9
trap 'rm -rf "$TMP"' EXIT
fresh() { rm -rf "$TMP"; mkdir -p "$TMP"; }

# done_already PART, mark PART: a part is made once for each state of the sources.
SOURCES=$(cat "${BASH_SOURCE[0]}" "$SRC"/* | sha256sum | cut -c1-16)
done_already() { [ "$(cat "$DIR/.done-$1" 2>/dev/null)" = "$SOURCES" ]; }
mark() { echo "$SOURCES" >"$DIR/.done-$1"; }

# Without ICU the runtime starts only in invariant mode.
INVARIANT=''
if ! PATH=$PATH:/sbin:/usr/sbin ldconfig -p | grep -q libicuuc; then
    INVARIANT='export DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1'
    export DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1
fi

# ------------------------------------------------------------------ the packages
# name@version | archive as `npm pack` names it | SHA-256
# 8.0.30, single file, with the whole base framework:
NET8_PKG='@microsoft/sarif-multitool-linux@5.7.0|microsoft-sarif-multitool-linux-5.7.0.tgz|27d8e3e96dde578a23b7c45035b8d741fece5731e2700aa068015b8c44d1514e'
# 9.0.5, many files:
NET9_PKG='@azure/mcp-linux-x64@0.5.0|azure-mcp-linux-x64-0.5.0.tgz|93206de4023ab41c17b85bf7ec2283c08477c405e8d4227cb2627c50fa5eab81'
# 10.0.8, single file, with the whole framework, ASP.NET Core and Roslyn 5.3:
NET10_PKG='retypeapp-linux-x64@4.6.0|retypeapp-linux-x64-4.6.0.tgz|8ff1701d67b1738b3f45523fcfa8aeb138ea02a017da974f8c3ea3820d5fd7f9'
# 10.0.12, single file, of which only the native host is used: single-file hosts
# carry the runtime's data contract descriptor from 10.0.9 on.
HOST10_PKG='devsense-php-ls-linux-x64@1.0.19329|devsense-php-ls-linux-x64-1.0.19329.tgz|c45e52396139ea4724f3bf403cafbe30f019e0357262404ad2613708bb309d4e'

# a native AOT library with the runtime of 10.0.11:
AOT_PKG='node-api-dotnet@0.9.27|node-api-dotnet-0.9.27.tgz|db48db27bf50e473fa98591ee348ff72c34ed193a8fedfb21ee00dfb2a9af944'

# 9.0.9, single file, for musl:
MUSL_PKG='@vscode/vsce-sign-alpine-x64@2.0.6|vscode-vsce-sign-alpine-x64-2.0.6.tgz|049e0c79782958cf1b21fc5a46c278c52719db7002cdd20b18a822ee02dc9869'

# fetch 'SPEC|FILE|SHA256': prints the path of the checked archive
fetch() {
    local spec file sum
    IFS='|' read -r spec file sum <<<"$1"
    if ! echo "$sum  $CACHE/$file" | sha256sum -c --status 2>/dev/null; then
        note "npm pack $spec"
        rm -rf "$CACHE/.part"
        mkdir -p "$CACHE/.part"
        (cd "$CACHE/.part" && npm pack --silent --ignore-scripts "$spec" >/dev/null) || die "npm could not fetch $spec"
        echo "$sum  $CACHE/.part/$file" | sha256sum -c --status || die "$spec: wrong checksum"
        mv "$CACHE/.part/$file" "$CACHE/$file"
        rm -rf "$CACHE/.part"
    fi
    echo "$CACHE/$file"
}

# need COMMAND PACKAGE...: installs the Debian packages unless COMMAND is there
need() {
    command -v "$1" >/dev/null && return
    local missing=$1
    shift
    command -v apt-get >/dev/null || die "$missing is missing, and there is no apt-get to install $*"
    [ "$(id -u)" = 0 ] || die "$missing is missing: install it (Debian: apt-get install $*), or run this as root"
    note "apt-get install $*"
    {
        apt_install "$@" || { apt-get update && apt_install "$@"; }
    } >"$DIR/apt.log" 2>&1 || die "could not install $* (see $DIR/apt.log)"
}
apt_install() { DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; }

kit() { node "$SRC/kit.js" "$@"; }
need_npm() {
    need node nodejs
    need npm npm ca-certificates
}

# ------------------------------------------------ .NET 10: hosts, and the compiler
# mcs builds stage0; stage0, bundled with the .NET 10 host, has Roslyn build run.dll
# and csc.dll; run.dll becomes the `dotnet` of the single-file hosts.
make_net10() {
    done_already net10 && return
    need_npm
    need mcs mono-mcs
    local full_pkg host_pkg
    full_pkg=$(fetch "$NET10_PKG")
    host_pkg=$(fetch "$HOST10_PKG")
    fresh
    mkdir "$TMP/full" "$TMP/host"
    tar xzf "$full_pkg" -C "$TMP/full" package/bin/retype
    tar xzf "$host_pkg" -C "$TMP/host" package/dist/devsense.php.ls
    local full=$TMP/full/package/bin/retype host=$TMP/host/package/dist/devsense.php.ls
    local net=$TMP/net10 csc=$TMP/csc
    kit frame "$full" "$net" >&2
    kit pick "$full" "$csc" Microsoft.CodeAnalysis.dll Microsoft.CodeAnalysis.CSharp.dll
    mcs -langversion:6 -r:System.Core.dll -out:"$TMP/stage0.dll" "$SRC/stage0.cs"
    kit launch "$full" "$net" "$net/.boot" "$TMP/stage0.dll"
    "$net/.boot" "$csc" "$net" "$SRC/run.cs" "$TMP/run.dll"
    "$net/.boot" "$csc" "$net" "$SRC/csc.cs" "$csc/csc.dll"
    rm "$net/.boot"
    kit launch "$full" "$net" "$net/dotnet-10.0.8" "$TMP/run.dll"
    kit launch "$host" "$net" "$net/dotnet" "$TMP/run.dll"
    echo "$DIR/net10" >"$net/.fw"
    csc_runner "\"$DIR/net10/dotnet\"" >"$csc/run"
    chmod +x "$csc/run"
    rm -rf "$DIR/net10" "$DIR/csc"
    mv "$net" "$DIR/net10"
    mv "$csc" "$DIR/csc"
    mark net10
}

# csc_runner HOST: the script that runs the compiler driver on HOST
csc_runner() {
    cat <<END
#!/bin/sh
export DOTNET_TieredPGO=0 DOTNET_gcConcurrent=0
exec $1 "$DIR/csc/csc.dll" "\$@"
END
}

# -------------------------------------------------------- .NET 9: a DOTNET_ROOT
make_net9() {
    done_already net9 && return
    need_npm
    need gcc gcc libc6-dev
    local pkg
    pkg=$(fetch "$NET9_PKG")
    fresh
    tar xzf "$pkg" -C "$TMP"
    mkdir "$TMP/net9"
    kit root "$TMP/package/dist" "$TMP/net9" >&2
    ln -s shared/Microsoft.NETCore.App/9.0.5 "$TMP/net9/.frame"
    # The runtime's own libraries use libm, but do not name it as a dependency. The
    # real launcher loads it with libstdc++.
    gcc -O2 -o "$TMP/net9/dotnet" "$SRC/muxer.c" -Wl,--no-as-needed -lm -lpthread -ldl
    install -m755 "$TMP/package/dist/azmcp" "$TMP/net9/.apphost"
    printf '%s\n' "$DIR"/net9/shared/Microsoft.{NETCore,AspNetCore}.App/9.0.5 >"$TMP/net9/.fw"
    rm -rf "$DIR/net9"
    mv "$TMP/net9" "$DIR/net9"
    mark net9
}

# ------------------------------------------------------ .NET 8: a single-file host
make_net8() {
    done_already net8 && return
    need_npm
    local pkg
    pkg=$(fetch "$NET8_PKG")
    fresh
    tar xzf "$pkg" -C "$TMP" package/Sarif.Multitool
    kit frame "$TMP/package/Sarif.Multitool" "$TMP/net8" >&2
    "$DIR/csc/run" --fw:"$TMP/net8" -debug- -out:"$TMP/run.dll" "$SRC/run.cs"
    kit launch "$TMP/package/Sarif.Multitool" "$TMP/net8" "$TMP/net8/dotnet" "$TMP/run.dll"
    echo "$DIR/net8" >"$TMP/net8/.fw"
    rm -rf "$DIR/net8"
    mv "$TMP/net8" "$DIR/net8"
    mark net8
}

# ------------------------------------------- .NET 11: a copy of what is installed
# roots: folders that may be a DOTNET_ROOT
roots() {
    if [ -n "${CLRSNAP_DOTNET_ROOTS:-}" ]; then printf '%s\n' "$CLRSNAP_DOTNET_ROOTS"/11.*; fi
    if [ -n "${DOTNET_ROOT:-}" ]; then echo "$DOTNET_ROOT"; fi
    if command -v dotnet >/dev/null; then dirname "$(readlink -f "$(command -v dotnet)")"; fi
}

# installed11: the newest root that has .NET 11 with ASP.NET Core, and its version
installed11() {
    roots | while read -r root; do
        for web in "$root"/shared/Microsoft.AspNetCore.App/11.*; do
            if [ -d "$root/shared/Microsoft.NETCore.App/${web##*/}" ]; then echo "${web##*/} $root"; fi
        done
    done | sort -V | tail -n 1
}

make_net11() {
    local version root
    read -r version root < <(installed11) || true
    if [ -z "$version" ]; then
        [ -d "$DIR/net11" ] || note "no .NET 11 to copy: name a folder with it in CLRSNAP_DOTNET_ROOTS (see --help)"
        return 0
    fi
    if done_already net11 && [ -d "$DIR/net11/shared/Microsoft.NETCore.App/$version" ]; then return; fi
    fresh
    mkdir -p "$TMP/net11/shared"
    cp "$root/dotnet" "$TMP/net11/"
    cp -R "$root/host" "$TMP/net11/"
    local framework
    for framework in Microsoft.NETCore.App Microsoft.AspNetCore.App; do
        mkdir "$TMP/net11/shared/$framework"
        cp -R "$root/shared/$framework/$version" "$TMP/net11/shared/$framework/"
        echo "$DIR/net11/shared/$framework/$version" >>"$TMP/net11/.fw"
    done
    ln -s "shared/Microsoft.NETCore.App/$version" "$TMP/net11/.frame"
    rm -rf "$DIR/net11"
    mv "$TMP/net11" "$DIR/net11"
    mark net11
}

# ----------------------------------------------- other builds: dotnet/builds.txt
# make_builds MAJOR: those that come with it, or all
make_builds() {
    done_already "builds$1$ALL_BUILDS" && return
    local net=$DIR/net$1 frame version when kind inside pkg
    frame=$net
    if [ -e "$net/.frame" ]; then frame=$net/.frame; fi
    need_npm
    fresh
    "$DIR/csc/run" --fw:"$frame" -debug- -out:"$TMP/run.dll" "$SRC/run.cs"
    while read -r version when kind inside pkg <&3; do
        if [ "$when" != always ] && [ -z "$ALL_BUILDS" ]; then continue; fi
        pkg=$(fetch "$pkg")
        rm -rf "$TMP/package" "$TMP/root"
        tar xzf "$pkg" -C "$TMP" "$inside"
        "make_$kind" "$version" "$TMP/$inside" "$net" "$frame"
    done 3< <(grep "^$1\." "$SRC/builds.txt")
    mark "builds$1$ALL_BUILDS"
}

# make_host VERSION PROGRAM NET FRAME: a host looks for the framework's assemblies
# in the folder that it is in.
make_host() {
    kit launch "$2" "$4" "$4/dotnet-$1" "$TMP/run.dll"
    if [ "$3" != "$4" ]; then ln -sfn "$(basename "$4")/dotnet-$1" "$3/dotnet-$1"; fi
    greet "$3/dotnet-$1"
}

# make_root VERSION FOLDER NET FRAME
make_root() {
    kit root "$2" "$TMP/root" >&2
    cp "$3/dotnet" "$TMP/root/"
    rm -rf "${3:?}/$1"
    mv "$TMP/root" "$3/$1"
    greet "$3/$1/dotnet"
}

# greet HOST: checks that it runs the hello world of its major version
greet() {
    local major=${1#"$DIR/net"}
    "$1" "$DIR/.hello/hello${major%%/*}.dll" >/dev/null || die "$1: hello world failed"
}

# ------------------------------------------------------- native AOT: a library
make_aot() {
    done_already aot && return
    need_npm
    local pkg
    pkg=$(fetch "$AOT_PKG")
    fresh
    tar xzf "$pkg" -C "$TMP" package/linux-x64/Microsoft.JavaScript.NodeApi.node
    mkdir -p "$DIR/aot"
    mv "$TMP/package/linux-x64/Microsoft.JavaScript.NodeApi.node" "$DIR/aot/library.so"
    mark aot
}

# -------------------------------------------------- .NET 9 for musl (Alpine Linux)
# Debian has musl, but neither libstdc++ nor libgcc_s for it. Those for glibc work with
# what dotnet/musl.c adds, and with a substitute for glibc's dynamic linker.
make_musl() {
    [ -e "$DIR/net9/.frame" ] || die "musl: net9 must be there"
    if done_already musl && [ -e "$DIR/net9/musl-9.0.9" ]; then return; fi
    need_npm
    need gcc gcc libc6-dev
    need musl-gcc musl-tools
    local pkg lib
    pkg=$(fetch "$MUSL_PKG")
    fresh
    tar xzf "$pkg" -C "$TMP" package/bin/vsce-sign
    mkdir "$TMP/musl"
    musl-gcc -O2 -shared -fPIC -o "$TMP/musl/shim.so" "$SRC/musl.c"
    musl-gcc -shared -nostdlib -o "$TMP/musl/ld-linux-x86-64.so.2" -x c /dev/null
    for lib in libstdc++.so.6 libgcc_s.so.1; do ln -s "$(gcc -print-file-name=$lib)" "$TMP/musl/$lib"; done
    cat >"$TMP/musl/env" <<END
#!/bin/sh
exec env LD_PRELOAD="$DIR/musl/shim.so" LD_LIBRARY_PATH="$DIR/musl" "\$@"
END
    chmod +x "$TMP/musl/env"
    rm -rf "$DIR/musl"
    mv "$TMP/musl" "$DIR/musl"
    mv "$TMP/package/bin/vsce-sign" "$DIR/net9/musl-9.0.9"
    mark musl
}

# ------------------------------------------------------------ the small commands
make_commands() {
    mkdir -p "$DIR/src"
    cp "$SRC/kit.js" "$DIR/src/"     # the commands outlive this checkout
    cat >"$DIR/bin/csc" <<END
#!/usr/bin/env bash
# csc netN ARGS...: compiles for that framework; "--" begins the next program.
D="$DIR"
$INVARIANT
[ -f "\$D/\${1:-}/.fw" ] || { echo "usage: csc net8|net9|net10|net11 ARGS..." >&2; exit 2; }
F=(); while read -r l; do F+=("--fw:\$l"); done <"\$D/\$1/.fw"; shift
A=("\${F[@]}"); for x; do A+=("\$x"); [ "\$x" = -- ] && A+=("\${F[@]}"); done
exec "\$D/csc/run" "\${A[@]}"
END
    cat >"$DIR/bin/single" <<END
#!/usr/bin/env bash
# single netN[:HOST] OUT app.dll [more.dll...] [--compress] [--base]: a single-file application
# (HOST: another executable in netN/, as in net10:dotnet-10.0.8)
D="$DIR"; N=\${1%%:*}; H=dotnet; case \$1 in *:*) H=\${1#*:};; net9) H=dotnet-9.0.9;; esac; shift
F=\$D/\$N; [ -e "\$F/.frame" ] && F=\$F/.frame
[ -f "\$F/.framework.json" ] || { echo "single: \$N has no single-file host" >&2; exit 2; }
exec node "\$D/src/kit.js" single "\$D/\$N/\$H" "\$F" "\$@"
END
    cat >"$DIR/bin/folder" <<END
#!/usr/bin/env bash
# folder net9 OUTDIR app.dll: a self-contained application, OUTDIR/app
D="$DIR"
[ -f "\$D/\$1/.apphost" ] || { echo "folder: none for \$1" >&2; exit 2; }
exec node "\$D/src/kit.js" folder "\$D/\$1/.apphost" "\$D/\$1" "\$2" "\$3"
END
    cat >"$DIR/bin/apphost" <<END
#!/usr/bin/env bash
# apphost net9 app.dll: makes ./app; run it with DOTNET_ROOT=$DIR/net9
D="$DIR"
[ -f "\$D/\$1/.apphost" ] || { echo "apphost: none for \$1" >&2; exit 2; }
exec node "\$D/src/kit.js" apphost "\$D/\$1/.apphost" "\${2%.dll}" "\$2"
END
    chmod +x "$DIR"/bin/*
    {
        echo "export DOTNET_KIT='$DIR' CSC='$DIR/bin/csc' DOTNET_CLI_TELEMETRY_OPTOUT=1 DOTNET_NOLOGO=1"
        echo "$INVARIANT"
        for major in 8 9 10 11; do
            if [ -x "$DIR/net$major/dotnet" ]; then echo "export NET$major='$DIR/net$major/dotnet'"; fi
        done
    } >"$DIR/env.sh"
}

# say_hello MAJOR: compiles and runs a program, which must print that version
say_hello() {
    done_already "hello$1" && return
    local answer
    mkdir -p "$DIR/.hello"
    echo 'System.Console.WriteLine(System.Runtime.InteropServices.RuntimeInformation.FrameworkDescription);' \
        >"$DIR/.hello/hello.cs"
    "$DIR/bin/csc" "net$1" --rtc -debug- -out:"$DIR/.hello/hello$1.dll" "$DIR/.hello/hello.cs" ||
        die ".NET $1: the compiler failed"
    answer=$("$DIR/net$1/dotnet" "$DIR/.hello/hello$1.dll") || die ".NET $1: hello world failed"
    case $answer in ".NET $1."*) note "net$1: $answer" ;; *) die "net$1: unexpected answer: $answer" ;; esac
    mark "hello$1"
}

# -------------------------------------------------------------------------- build
make_net10     # the compiler first
for major in "${MAJORS[@]}"; do "make_net$major"; done
make_commands
for major in "${MAJORS[@]}"; do
    [ -x "$DIR/net$major/dotnet" ] || continue
    say_hello "$major"
    make_builds "$major"
done
if [ -n "$WITH_AOT" ]; then make_aot; fi
if [ -n "$WITH_MUSL" ]; then make_musl; fi
