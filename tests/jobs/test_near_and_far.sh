#!/bin/bash
# Nodes of one host use shared memory while others are reached by TCP or by UCX. Two network namespaces
# stand for hosts, each with two nodes.
set -uo pipefail

source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build_dir=${RUBATO_BUILD_DIR:?is the build directory whose programs run}
hosts=$source_dir/tests/jobs/hosts
failures=0

[ "${1:-}" = with-hosts ] || exec "$hosts" east,west "$0" with-hosts

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
RUBATO_SECRET=$("$build_dir/bin/rubato" secret -)
export RUBATO_SECRET
awk 'BEGIN { for (i = 0; i < 2000; i++) print i % 2, i % 7 + 1 ":1", i % 2 + 10 ":1" }' >rows

fail() # what, file to show
{
    failures=$((failures + 1))
    echo "test_near_and_far: $1"
    [ $# -lt 2 ] || tail -n 40 "$2" | sed 's/^/    | /'
}

# Whether the process has mapped such a file.
maps() # node, text
{
    grep -qF -- "$2" "/proc/$(<"pid.$1")/maps"
}

# Trains on four nodes until they were looked at. "yes" or "no": whether they have rings, and UCX.
expect_transports() # transport, rings, ucx
{
    local node host ended
    local -a pids=()

    rm -f pid.* log.* look
    for node in 0 1 2 3; do
        host=east
        [ "$node" -lt 2 ] || host=west
        # shellcheck disable=SC2016 # the shell on the host is to see it
        RUBATO_SCHEDULER=east:4100 RUBATO_INTERFACE=eth0 \
            RUBATO_SETTINGS="timeout_ms = 30000; transport = \"$1\";" \
            "$hosts" on "$host" "$build_dir/bin/rubato" task --nodes 4 --node "$node" -- \
            sh -c 'echo $$ > pid.$RUBATO_NODE
                   exec rubato-lr --train rows --epochs 20 --batch-size 100 --straggler 1:10' \
            >"log.$node" 2>&1 &
        pids+=("$!")
    done
    until grep -q "epoch 1/" log.*; do # it comes, or the nodes end
        ended=$(jobs -rp | wc -l)
        [ "$ended" -gt 0 ] || break
        sleep 0.05
    done
    for node in 0 1 2 3; do
        [ "$(maps "$node" memfd:rubato && echo yes || echo no)" = "$2" ] ||
            fail "$1: node $node has rings in shared memory, or has none: $2 was expected" "log.$node"
        [ "$(maps "$node" libucp && echo yes || echo no)" = "$3" ] ||
            fail "$1: node $node uses UCX, or does not: $3 was expected" "log.$node"
    done
    for node in 0 1 2 3; do
        wait "${pids[node]}" || fail "$1: node $node has failed" "log.$node"
    done
}

PATH=$build_dir/bin:$PATH
expect_transports auto yes no
expect_transports tcp no no
if "$build_dir/bin/rubato-bench" --list | grep '^ucx-' >/dev/null; then
    expect_transports shm+ucx yes yes
    expect_transports ucx no yes
else
    echo "test_near_and_far: UCX is not built in; the rest was tried"
fi
if [ "$failures" -gt 0 ]; then
    echo "test_near_and_far: $failures failures"
    exit 1
fi
echo "test_near_and_far: nodes of one host share memory where the transport says so, and no others"
