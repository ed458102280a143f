#!/bin/bash
# Runs as processes of real mpiruns, that of Open MPI and that of MPICH (Hydra): on one host, and on
# two, which are addresses of this machine.
set -uo pipefail

source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build_dir=${RUBATO_BUILD_DIR:?is the build directory whose programs run}
remote=$source_dir/tests/jobs/remote_here
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export TMPDIR=$scratch
PATH=$build_dir/bin:$PATH
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
failures=0

fail() # what, file to show
{
    failures=$((failures + 1))
    echo "test_mpi: $1"
    sed 's/^/    | /' "$2"
}

open_mpi() # processes, command
{
    timeout 60 mpirun.openmpi --oversubscribe -np "$@"
}

open_mpi_on_two_hosts()
{
    timeout 60 mpirun.openmpi --oversubscribe --mca plm_rsh_agent "$remote" \
        --host 127.0.0.2:2,127.0.0.3:2 -np "$@"
}

mpich()
{
    timeout 60 mpirun.mpich -np "$@"
}

mpich_on_two_hosts()
{
    timeout 60 mpirun.mpich -launcher ssh -launcher-exec "$remote" -hosts 127.0.0.2,127.0.0.3 -np "$@"
}

# Starts this; each of so many processes has to print the line.
expect_lines() # number, line, starter with its arguments
{
    local wanted=$1 line=$2 n

    shift 2
    "$@" >"$scratch/out" 2>&1 </dev/null || fail "$*: exit code $?" "$scratch/out"
    n=$(grep -cxF -- "$line" "$scratch/out")
    [ "$n" -eq "$wanted" ] || fail "$*: $n lines '$line', not $wanted:" "$scratch/out"
}

expect_failure() # text, starter with its arguments
{
    local text=$1

    shift
    if "$@" >"$scratch/out" 2>&1 </dev/null; then
        fail "$* does not fail" "$scratch/out"
    fi
    grep -qF -- "$text" "$scratch/out" || fail "$*: nothing of '$text' in:" "$scratch/out"
}

processes_become_nodes() # a starter on one host
{
    expect_lines 3 'key 42: 600' "$1" 3 rubato-hello
    expect_lines 2 'key 42: 400' "$1" 2 rubato task -- rubato-hello
    expect_lines 2 'key 42: 200' "$1" 2 env RUBATO_ROLE=alone rubato-hello
    expect_lines 1 'key 42: 200' "$1" 1 rubato-hello
}

# The library that says where the first process runs may be missing, but then this is said.
hosts_find_each_other() # a starter on two hosts
{
    expect_lines 4 'key 42: 800' "$1" 4 rubato task -- rubato-hello
    expect_lines 2 'key 42: 400' "$1" 2 rubato-hello
}

# A node that fails ends all; a wrong variable is named before the program begins.
faults_end_all() # a starter on one host
{
    expect_failure 'RUBATO_PORT is "many"' "$1" 2 env RUBATO_PORT=many rubato task -- rubato-hello
    expect_failure 'no-such-file' "$1" 2 rubato-lr --train no-such-file
}

# Only one of MPI and Rubato can ask the job system, so a program that uses MPI is told what to do.
# The library stands for an MPI that has not begun.
say_what_users_of_mpi_have_to_do() # text, starter
{
    cc -shared -fPIC -o "$scratch/mpi.so" -x c - <<<'int MPI_Initialized(int *flag) { return *flag = 0; }'
    expect_failure "$1" "$2" 4 env LD_PRELOAD="$scratch/mpi.so" rubato-hello
}

ran=
RUBATO_SECRET=$(rubato secret -)
export RUBATO_SECRET
if command -v mpirun.openmpi >/dev/null; then
    processes_become_nodes open_mpi
    faults_end_all open_mpi
    if ldconfig -p | grep 'libpmix\.so\.2' >/dev/null; then # it reads all, so nobody gets SIGPIPE
        hosts_find_each_other open_mpi_on_two_hosts
        say_what_users_of_mpi_have_to_do 'calls MPI_Init after it makes the engine' open_mpi_on_two_hosts
    fi
    ran="$ran Open MPI"
fi
if command -v mpirun.mpich >/dev/null; then
    processes_become_nodes mpich
    faults_end_all mpich
    hosts_find_each_other mpich_on_two_hosts
    say_what_users_of_mpi_have_to_do 'the program uses MPI itself' mpich
    ran="$ran${ran:+,} MPICH"
fi
if [ -z "$ran" ]; then
    echo "test_mpi: skipped: neither Debian's openmpi-bin nor mpich is installed"
    exit 77
fi
if [ "$failures" -gt 0 ]; then
    echo "test_mpi: $failures failures"
    exit 1
fi
echo "test_mpi: processes of$ran become nodes, on one host and on two"
