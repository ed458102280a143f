#!/bin/bash
# The image of the Containerfile: it is built from the files that git has, on a Debian that is made here
# of its packages, by buildah without any daemon. Then the program of apps/quickstart trains in two
# containers of it: as the image's user, with a root file system that is read-only, no capabilities, and
# 64 MB of /dev/shm; on two hosts (network namespaces), and on one. Takes ten minutes and more, most of
# them for packages; those are kept in the build directory for the next time. Install Debian's buildah
# and mmdebstrap first: nothing else needs them, so config/setup does not.
set -uo pipefail

source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
hosts=$source_dir/tests/jobs/hosts
self=$source_dir/tests/soak/test_containerfile.sh
images=/usr/share/datasets/fashion-mnist
failures=0

fail() # what, file to show
{
    failures=$((failures + 1))
    echo "test_containerfile: $1"
    [ $# -lt 2 ] || tail -n 40 "$2" | sed 's/^/    | /'
}

missing()
{
    local program

    for program in buildah mmdebstrap ip setpriv git; do
        command -v "$program" >/dev/null || echo "$program"
    done
    [ -e "$images" ] || echo dataset-fashion-mnist
}

# ---- the image ----

# A store of its own: nothing of it is left on the machine.
buildah_here()
{
    buildah --root "$scratch/store" --runroot "$scratch/run" --storage-driver "$driver" "$@"
}

# The image that Debian publishes as debian:12-slim cannot be had everywhere; its packages can.
make_base()
{
    local container

    [ -s "$kept/base.tar" ] || mmdebstrap --variant=apt bookworm "$scratch/base.tar" &&
        { [ -s "$kept/base.tar" ] || mv "$scratch/base.tar" "$kept/base.tar"; } &&
        container=$(buildah_here from scratch) &&
        buildah_here add "$container" "$kept/base.tar" / &&
        buildah_here commit --rm "$container" localhost/debian
}

build_image()
{
    local container

    mkdir "$scratch/tree"
    git -C "$source_dir" ls-files -z | (cd "$source_dir" && tar -c --null --files-from=-) |
        tar -x -C "$scratch/tree"
    buildah_here build --isolation chroot --network host --volume "$kept/archives:/var/cache/apt/archives" \
        --build-arg DEBIAN=localhost/debian --tag localhost/rubato "$scratch/tree" &&
        container=$(buildah_here from localhost/rubato) &&
        image=$(buildah_here mount "$container")
}

expect_setting() # name, value
{
    local found

    found=$(buildah_here inspect --format "{{.OCIv1.Config.$1}}" localhost/rubato)
    [ "$found" = "$2" ] || fail "the image's $1 is $found, not $2"
}

# ---- containers of it ----

# A container, on the host where this begins: it is process 1, and ends with the command.
contain() # image, command
{
    local image=$1

    shift
    mount --make-rprivate /
    mount --bind "$image" "$image"
    mount -o remount,bind,ro "$image"
    cd "$image" || exit
    mount -t proc proc proc
    mount --rbind /dev dev
    mount -t tmpfs -o size=64m,mode=1777 shm dev/shm
    mount -t tmpfs -o mode=1777 tmp tmp
    mount -t tmpfs -o mode=755,uid=10001,gid=10001 data data
    mkdir data/images
    mount --bind "$images" data/images
    mount -o remount,bind,ro data/images
    mount --bind /etc/hosts etc/hosts
    exec chroot . setpriv --reuid=10001 --regid=10001 --clear-groups --no-new-privs --bounding-set=-all \
        --inh-caps=-all env --chdir=/data "$@"
}

run_in_container() # host, command
{
    local host=$1

    shift
    "$hosts" on "$host" unshare --mount --pid --ipc --fork --kill-child "$self" contain "$image" "$@"
}

# Node 0 prints its card to standard output.
train_on() # hosts of the two nodes
{
    local node host accuracy
    local -a pids=()

    for node in 0 1; do
        host=$1
        [ "$node" -eq 0 ] || host=$2
        RUBATO_SCHEDULER=$1:4100 RUBATO_INTERFACE=eth0 run_in_container "$host" \
            rubato task --nodes 2 --node "$node" --workers 2 -- \
            rubato-softmax --data /data/images --model ssp --staleness 2 --json - \
            >"card.$node" 2>"log.$node" &
        pids+=("$!")
    done
    for node in 0 1; do
        wait "${pids[node]}" || fail "node $node on $1 and $2 has failed" "log.$node"
    done
    accuracy=$(sed -n 's/.*"test_accuracy" *: *\([0-9.eE+-]*\).*/\1/p' card.0)
    awk -v got="${accuracy:-0}" 'BEGIN { exit got < 0.83 }' ||
        fail "the test accuracy on $1 and $2 is ${accuracy:-not told}" log.0
}

a_container_is_what_it_should_be()
{
    local line

    # shellcheck disable=SC2016 # the shell in the container is to see it
    run_in_container east sh -c 'id -u; grep CapEff /proc/self/status; touch /x 2>&1
        rubato check' >out 2>&1
    for line in '10001' 'CapEff:.*0000000000000000' '.*Read-only file system' '/dev/shm .*64.*' 'nothing is missing'; do
        grep -qx "$line" out || fail "no line '$line' in:" out
    done
}

all_programs_start()
{
    # shellcheck disable=SC2016
    run_in_container east sh -c 'for program in /usr/local/bin/rubato*; do
        "$program" --help >/dev/null || echo "$program does not start"; done' >out 2>&1
    [ ! -s out ] || fail "programs:" out
}

case ${1:-} in
contain)
    shift
    contain "$@"
    exit
    ;;
with-hosts)
    image=$2
    cd "$3" || exit 1
    RUBATO_SECRET=$(chroot "$image" rubato secret -)
    export RUBATO_SECRET
    a_container_is_what_it_should_be
    all_programs_start
    train_on east west
    train_on east east
    exit "$failures"
    ;;
esac

lacking=$(missing | paste -sd ' ')
if [ -n "$lacking" ]; then
    echo "test_containerfile: skipped: not installed: $lacking"
    exit 77
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "test_containerfile: skipped: only root may build and start containers here"
    exit 77
fi
scratch=$(mktemp -d)
kept=${RUBATO_BUILD_DIR:-$source_dir/build}/containerfile
driver=vfs
grep -qw overlay /proc/filesystems && driver=overlay
image=
trap 'buildah_here umount --all >/dev/null 2>&1; rm -rf "$scratch"' EXIT
mkdir -p "$kept/archives"
make_base >"$scratch/out" 2>&1 || {
    fail "the base image cannot be made:" "$scratch/out"
    exit 1
}
build_image >"$scratch/out" 2>&1 || {
    fail "the image cannot be built:" "$scratch/out"
    exit 1
}
expect_setting User 10001:10001
expect_setting WorkingDir /data
"$hosts" east,west "$self" with-hosts "$image" "$scratch"
status=$?
[ "$status" -ne 77 ] || exit 77
failures=$((failures + status))
if [ "$failures" -gt 0 ]; then
    echo "test_containerfile: $failures failures"
    exit 1
fi
echo "test_containerfile: the image is built, and trains on two hosts and on one, read-only and as its user"
