#!/bin/bash
# The files of engine/ call those below them alone: no file calls one that calls it back, over any
# number of others. What goes up goes by a function pointer. Two files are arrays of such pointers,
# and are left out: control_messages.c and server/requests.c.
set -euo pipefail

build_dir=${RUBATO_BUILD_DIR:?is the build directory whose library is tested}
library=$build_dir/lib/librubato_internal.a

# The calls between objects that are those given, as pairs: who calls, who is called.
list_calls()
{
    nm -A --format=posix "$library" | awk -v members=" $* " '
        {
            split($1, place, /[][]/)
            object = place[2]
            if (index(members, " " object " ") == 0)
                next
            if ($3 == "U")
                wanted[object " " $2] = 1
            else if ($3 ~ /[A-Z]/)
                home[$2] = object
        }
        END {
            for (pair in wanted) {
                split(pair, part, " ")
                if (part[2] in home && home[part[2]] != part[1])
                    print part[1], home[part[2]]
            }
        }'
}

# Fails, with the files in a circle, if there is one.
check()
{
    local name=$1 calls circle
    shift

    calls=$(list_calls "$@")
    [ -n "$calls" ] || { echo "test_knots: no calls between the files of $name" && return 1; }
    circle=$(tsort <<<"$calls" 2>&1 >/dev/null) || {
        echo "test_knots: files of $name call one another:"
        echo "$circle"
        return 1
    }
}

# Those of all rooms of the engine.
list_objects()
{
    cd "$(dirname "$0")/../.."
    find engine -name '*.c' ! -name control_messages.c ! -name requests.c -printf '%f.o\n'
}

# The check must be able to fail: a file and whoever calls it through that array.
if check "what has a circle" scheduler.c.o control_messages.c.o >/dev/null; then
    echo "test_knots: a circle was not found"
    exit 1
fi
mapfile -t objects < <(list_objects)
check engine "${objects[@]}"
echo "test_knots: no file calls back the one that calls it"
