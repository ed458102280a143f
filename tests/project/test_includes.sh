#!/bin/bash
# Includes go down only: apps → engine → {tables, models} → io, all of them to include/rubato; apps
# see include/rubato alone; no header includes one that includes it back. zmq.h, sodium.h,
# intel-ipsec-mb.h, ucp/api/ucp.h, hwloc.h, curl/curl.h and
# libconfig.h are included in few places. With a folder as argument it checks that instead of the
# project.
set -euo pipefail

cd "${1:-$(dirname "$0")/../..}"

check_layers()
{
    local -a sources

    shopt -s globstar nullglob
    sources=({include,io,models,tables,engine,apps}/**/*.[ch])
    # shellcheck disable=SC2016 # what awk reads is not for the shell
    awk '
        BEGIN {
            allowed["include"] = " "
            allowed["io"] = " io "
            allowed["models"] = " models io "
            allowed["tables"] = " tables io "
            allowed["engine"] = " engine tables models io "
            allowed["apps"] = " apps "
            split("include io models tables engine apps", names, " ")
            for (i in names)
                folder[names[i]] = 1
            only["zmq.h"] = " io/net/transport/zmq/transport_zmq.c io/net/transport/zmq/zmq_curve.c io/net/transport/zmq/zmq_gate.c io/stream/zmq/zmq_stream.c io/stream/zmq/zmq_publisher.c io/stream/zmq/zmq_reader.c io/stream/zmq/questions.c apps/bench/limits/zmq.c "
            only["sodium.h"] = " io/net/secure/secret.c io/net/secure/handshake.c io/net/secure/seal.c io/net/secure/aes_gcm.c io/net/secure/curve_keys.c io/net/secure/agreed_key.c "
            only["intel-ipsec-mb.h"] = " io/net/secure/aes_gcm.c io/net/secure/curve_keys.c "
            only["ucp/api/ucp.h"] = " io/net/transport/ucx/ucx_library.h "
            only["mpi.h"] = " engine/collectives/backend/mpi/mpi_library.h "
            only["hwloc.h"] = " engine/binding/core_topology.c "
            only["curl/curl.h"] = " io/store/s3/curl_library.h "
            only["libconfig.h"] = " engine/cluster/cluster_setting.h "
            failed = 0
        }
        function complain(what) {
            printf "%s:%d: %s\n", FILENAME, FNR, what
            failed = 1
        }
        match($0, /^[ \t]*#[ \t]*include[ \t]*["<][^">]+[">]/) {
            text = substr($0, RSTART, RLENGTH)
            quoted = text ~ /"/
            sub(/^[^"<]*["<]/, "", text)
            sub(/[">]$/, "", text)
            split(FILENAME, from, "/")
            split(text, to, "/")

            if (text in only && index(only[text], " " FILENAME " ") == 0)
                complain(text " is for" only[text] "alone")
            if (text ~ /\.\./)
                complain(text ": write the path from the project root")
            else if (to[1] == "rubato") {
                if (quoted)
                    complain("write <" text ">: a public header")
            } else if (quoted) {
                if (!(to[1] in folder) || text !~ /\//)
                    complain("\"" text "\": write the path from the project root")
                else if (index(allowed[from[1]], " " to[1] " ") == 0)
                    complain(from[1] " must not include " text)
            } else if (to[1] in folder && text ~ /\//)
                complain("write \"" text "\": a header of the project")
            if (text !~ /^rubato\// && !quoted && from[1] == "include" &&
                index(" glib.h math.h stdbool.h stddef.h stdint.h stdatomic.h ", " " text " ") == 0)
                complain("a public header must not need " text)
        }
        END { exit failed }' "${sources[@]}"
}

# The check must be able to fail: each line is a file, what it includes, and whether that is right.
check_itself()
{
    local file include verdict scratch bad=0

    scratch=$(mktemp -d)
    while read -r file include verdict; do
        rm -rf "${scratch:?}"/*
        mkdir -p "$scratch/$(dirname "$file")"
        echo "  # include $include" >"$scratch/$file"
        if (cd "$scratch" && check_layers >/dev/null); then
            [ "$verdict" = right ] || { echo "missed: $file includes $include" && bad=1; }
        else
            [ "$verdict" = wrong ] || { echo "refused: $file includes $include" && bad=1; }
        fi
    done <<'END'
io/net/mailbox.c "io/net/mailbox.h" right
io/net/mailbox.c <rubato/types.h> right
io/net/mailbox.c "rubato/types.h" wrong
io/net/mailbox.c "mailbox.h" wrong
io/net/mailbox.c "../data/idx.h" wrong
io/net/mailbox.c "models/model.h" wrong
io/net/mailbox.c "engine/engine.h" wrong
io/net/mailbox.c <zmq.h> wrong
io/net/transport/zmq/transport_zmq.c <zmq.h> right
models/ssp.c "io/net/message.h" right
models/ssp.c "tables/partition.h" wrong
tables/kv_table.c "models/model.h" wrong
tables/kv_table.c "engine/engine.h" wrong
engine/engine.c "tables/kv_table.h" right
engine/engine.c "models/model.h" right
engine/engine.c "apps/kit/app.h" wrong
engine/engine.c <libconfig.h> wrong
engine/engine.c "tests/support/runner.h" wrong
engine/cluster/cluster_setting.h <libconfig.h> right
apps/lr/lr.c "apps/kit/app.h" right
apps/lr/lr.c "tables/partition.h" wrong
apps/lr/lr.c <models/model.h> wrong
include/rubato/table.h <rubato/types.h> right
include/rubato/table.h "io/net/message.h" wrong
include/rubato/table.h <zmq.h> wrong
include/rubato/table.h <pthread.h> wrong
END
    rm -rf "$scratch"
    return $bad
}

# Headers that include one another in a circle: tsort names those that are in it.
check_circles()
{
    local -a headers
    local circle

    shopt -s globstar nullglob
    headers=({include,io,models,tables,engine,apps}/**/*.h)
    [ ${#headers[@]} -gt 0 ] || return 0
    circle=$(sed -nE 's/^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">].*/\1/p;T;F' "${headers[@]}" |
        awk '{ if (NR % 2) included = $1; else { sub(/^include\//, "", $1); print $1, included } }' |
        tsort 2>&1 >/dev/null) || {
        echo "$circle"
        return 1
    }
}

check_circles_itself()
{
    local scratch bad=0

    scratch=$(mktemp -d)
    mkdir "$scratch/io"
    echo '#include "io/b.h"' >"$scratch/io/a.h"
    echo '#include "io/c.h"' >"$scratch/io/b.h"
    (cd "$scratch" && check_circles >/dev/null) || { echo "refused: no circle" && bad=1; }
    echo '#include "io/a.h"' >"$scratch/io/c.h"
    (cd "$scratch" && check_circles >/dev/null) && echo "missed: a circle" && bad=1
    rm -rf "$scratch"
    return $bad
}

check_itself
check_circles_itself
check_circles || { echo "test_includes: the headers above include one another" && exit 1; }
check_layers || { echo "test_includes: the includes above go the wrong way" && exit 1; }
echo "test_includes: all includes go down"
