#!/bin/bash
# The files of a room of the engine call those below them alone: no file calls one that calls it back,
# over any number of others. What goes up goes by a function pointer, as the rows of
# control_messages.c do, which is therefore left out.
set -euo pipefail

build_dir=${RUBATO_BUILD_DIR:?is the build directory whose library is tested}
library=$build_dir/lib/librubato_internal.a

# The calls between objects that are members of the room, as pairs: who calls, who is called.
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
check_room()
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

objects_in()
{
    local folder=$1

    cd "$(dirname "$0")/.."
    for file in "$folder"/*.c; do
        echo "$(basename "$file").o"
    done
}

# The check must be able to fail: a room and whoever calls down into it through that array.
if check_room "a room with a circle" scheduler.c.o control_messages.c.o >/dev/null; then
    echo "test_knots: a circle was not found"
    exit 1
fi
failed=0
for room in engine/scheduler engine/task; do
    mapfile -t objects < <(objects_in "$room")
    check_room "$room" "${objects[@]}" || failed=1
done
[ "$failed" = 0 ] || exit 1
echo "test_knots: no file calls back the one that calls it"
