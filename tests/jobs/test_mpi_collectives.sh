#!/bin/bash
# The conformance suite of collectives over MPI (collectives = "mpi"), between processes of a real
# mpirun of Open MPI; and what is said where MPI cannot be used.
set -uo pipefail

build_dir=${RUBATO_BUILD_DIR:?is the build directory whose programs run}
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
remote=$source_dir/tests/jobs/remote_here
node=$build_dir/tests/collectives_node
PATH=$build_dir/bin:$PATH
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export TMPDIR=$scratch
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export RUBATO_SETTINGS='collectives = "mpi";'
failures=0

skip()
{
    echo "test_mpi_collectives: skipped: $1"
    exit 77
}

fail() # what, file to show
{
    failures=$((failures + 1))
    echo "test_mpi_collectives: $1"
    sed 's/^/    | /' "$2"
}

on() # processes, command
{
    timeout 120 mpirun.openmpi --oversubscribe --bind-to none -np "$@" >"$scratch/out" 2>&1 </dev/null
}

expect_right() # processes, command
{
    local n

    on "$@" || fail "$*: exit code $?" "$scratch/out"
    n=$(grep -cxF 'collectives are right' "$scratch/out")
    [ "$n" -eq "$1" ] || fail "$*: $n of $1 nodes say that all is right:" "$scratch/out"
}

expect_failure() # text, processes, command
{
    local text=$1

    shift
    if on "$@"; then
        fail "$* does not fail" "$scratch/out"
    fi
    grep -qF -- "$text" "$scratch/out" || fail "$*: nothing of '$text' in:" "$scratch/out"
}

command -v mpirun.openmpi >/dev/null || skip "Debian's openmpi-bin is not installed"
[ -x "$node" ] || skip "$node is not built"
RUBATO_SETTINGS='collectives = "mpi";' RUBATO_ROLE=alone "$node" numbers >"$scratch/out" 2>&1 ||
    fail "one node needs no MPI" "$scratch/out"

expect_right 2 "$node"
expect_right 2 "$node" --workers 2
expect_right 4 "$node" operations sets numbers much

# A process that exits while it has an engine does not wait for MPI to end, for which the other one
# would have to come. One that has ended MPI itself leaves it so.
on 2 "$node" exits
code=$?
if [ "$code" -eq 0 ] || [ "$code" -eq 124 ]; then
    fail "a node that exits with its engine: exit code $code" "$scratch/out"
fi
expect_right 2 "$node" finalizes

# One of mpirun's processes is killed in the middle of collectives. mpirun ends the others and says
# which it was. Where it lets them go on, what is pending there fails with that node's name, and each
# process ends; over TCP, too, where Open MPI writes to the lost process's socket, and may then handle
# that socket's event for ever, with a line each time.
on 3 "$node" loses
code=$?
[ "$code" -eq 137 ] || fail "mpirun ends with $code behind a killed process" "$scratch/out"
grep -q 'process rank 1 .*exited on signal 9' <<<"$(tr '\n' ' ' <"$scratch/out")" ||
    fail "mpirun does not say which process was killed:" "$scratch/out"

expect_survival() # how many nodes, part, variables of MPI
{
    local survivors=$1 part=$2 n

    shift 2
    # shellcheck disable=SC2016 # the node's arguments are of that shell
    OMPI_MCA_orte_enable_recovery=1 RUBATO_SETTINGS='collectives = "mpi"; timeout_ms = 1000;' \
        on 3 env "$@" bash -c \
        '"$@" 2> >(grep -vF "invalid connection state" >&2)' bash "$node" "$part" ||
        fail "$part $*: exit code $?" "$scratch/out"
    n=$(grep -cxF 'collectives are right' "$scratch/out")
    [ "$n" -eq "$survivors" ] || fail "$part $*: $n of $survivors go on:" "$scratch/out"
}
expect_survival 2 loses
expect_survival 2 loses-scheduler
expect_survival 2 loses OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self

# A process that is no node would never begin MPI, and the others would wait for it.
# shellcheck disable=SC2016 # the variables are those of the processes
expect_failure 'the run has 2 nodes, but MPI 3 process' 3 bash -c '
    export RUBATO_NODE=$OMPI_COMM_WORLD_RANK RUBATO_NODES=2 RUBATO_ROLE=node
    [ "$RUBATO_NODE" -eq 2 ] && exec sleep 100
    export RUBATO_SCHEDULER=127.0.0.1:$1
    exec "$0" numbers' "$node" $((19000 + $$ % 900))

# The messages go by MPI indeed: without a way between processes it does not even begin.
expect_failure '' 2 env OMPI_MCA_btl=self OMPI_MCA_pml=ob1 "$node" numbers
RUBATO_SETTINGS='' expect_right 2 env OMPI_MCA_btl=self OMPI_MCA_pml=ob1 "$node" numbers

# A process that no mpirun has started is alone for MPI.
port=$((20000 + $$ % 9000))
alone() # node
{
    RUBATO_ROLE=node RUBATO_NODES=2 RUBATO_NODE=$1 RUBATO_SCHEDULER=127.0.0.1:$port \
        timeout 60 "$node" numbers >"$scratch/alone.$1" 2>&1 </dev/null
}
alone 0 &
alone 1
wait
grep -qF 'the run has 2 nodes, but MPI 1 process' "$scratch/alone.0" ||
    fail "nodes without mpirun are not told so" "$scratch/alone.0"

# Nor does MPICH's mpiexec start processes of Open MPI's library; it is no such one that is missing.
if command -v mpirun.mpich >/dev/null; then
    if timeout 60 mpirun.mpich -np 2 "$node" numbers >"$scratch/out" 2>&1 </dev/null; then
        fail "Open MPI's library works under MPICH" "$scratch/out"
    fi
    grep -qF "MPICH's mpiexec has started this process" "$scratch/out" ||
        fail "nothing of MPICH in:" "$scratch/out"
fi

# On two hosts Rubato asks mpirun where node 0 runs, unless it is told; MPI cannot begin behind that.
on_two_hosts() # processes, command
{
    RUBATO_SECRET=$(rubato secret -) timeout 120 mpirun.openmpi --oversubscribe --bind-to none \
        --mca plm_rsh_agent "$remote" --host 127.0.0.2:1,127.0.0.3:1 -x RUBATO_SECRET \
        -x RUBATO_SETTINGS -np "$@" >"$scratch/out" 2>&1 </dev/null
}
if on_two_hosts 2 "$node" numbers; then
    fail "MPI begins behind PMIx" "$scratch/out"
fi
grep -qF 'set RUBATO_SCHEDULER=HOST:PORT' "$scratch/out" ||
    fail "nothing of what to do on two hosts in:" "$scratch/out"
on_two_hosts 2 env RUBATO_SCHEDULER=127.0.0.2:$((port + 1)) "$node" numbers ||
    fail "two hosts" "$scratch/out"

if [ "$failures" -gt 0 ]; then
    echo "test_mpi_collectives: $failures failures"
    exit 1
fi
echo "test_mpi_collectives: the suite is right over MPI, on 2 and on 4 nodes"
