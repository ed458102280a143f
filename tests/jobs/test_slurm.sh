#!/bin/bash
# Runs as steps of a real Slurm, which this test starts in a folder of its own (slurm.sh): nodes,
# ranks, exit status, scancel, a process that is killed. Two nodes of Slurm are one machine here.
set -uo pipefail

source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build_dir=${RUBATO_BUILD_DIR:?is the build directory whose programs run}
# shellcheck source=tests/jobs/slurm.sh
. "$source_dir/tests/jobs/slurm.sh"

missing=$(slurm_missing)
if [ -n "$missing" ]; then
    echo "test_slurm: skipped: not installed: $missing(Debian's slurm-wlm and munge)"
    exit 77
fi

slurm_enclose "$0" "$@"
scratch=$(mktemp -d)
trap 'slurm_stop; rm -rf "$scratch"' EXIT
PATH=$build_dir/bin:$PATH
failures=0

fail() # what, and maybe a file to show
{
    failures=$((failures + 1))
    echo "test_slurm: $1"
    if [ $# -gt 1 ]; then
        sed 's/^/    | /' "$2"
    fi
}

# Runs srun with these arguments; its output is in $scratch/out.
step() # wanted exit code, arguments
{
    local wanted=$1 code

    shift
    timeout 60 srun "$@" >"$scratch/out" 2>&1 </dev/null
    code=$?
    [ "$code" -eq "$wanted" ] || fail "srun $*: exit code $code, not $wanted" "$scratch/out"
}

says() # a line
{
    grep -qxF -- "$1" "$scratch/out" || fail "no line '$1' in:" "$scratch/out"
}

mentions()
{
    grep -qF -- "$1" "$scratch/out" || fail "nothing of '$1' in:" "$scratch/out"
}

# Waits until the file has the text, or the process has ended without.
await_text() # process, file, text
{
    while ! grep -qF -- "$3" "$2" 2>/dev/null; do
        if ! kill -0 "$1" 2>/dev/null; then
            fail "it ended without '$3':" "$2"
            return 1
        fi
        sleep 0.05
    done
}

tasks_become_nodes()
{
    step 0 --label -N 2 rubato task -- rubato-hello
    says '0: key 42: 400'
    says '1: key 42: 400'
}

# More tasks than machines; the program itself sees that it is a step.
a_program_sees_that_it_is_a_step()
{
    export RUBATO_SECRET
    RUBATO_SECRET=$(rubato secret -)
    step 0 --label -N 2 -n 4 rubato-hello
    says '3: key 42: 800'
    unset RUBATO_SECRET
}

# Where Slurm offers the tasks PMIx, too, they still ask Slurm itself.
a_step_with_pmix_is_no_other()
{
    [ -n "$has_pmix" ] || return 0
    step 0 --mpi=pmix --label -N 2 rubato task -- rubato-hello
    says '1: key 42: 400'
}

all_are_right() # processes
{
    local n

    n=$(grep -cE '^[0-9]+: collectives are right$' "$scratch/out")
    [ "$n" -eq "$1" ] || fail "$n of $1 nodes say that collectives are right:" "$scratch/out"
}

# Open MPI's library carries collectives between the tasks of srun --mpi=pmix: the conformance suite, on
# two hosts with one task each, and with two. A step without PMIx is told so before MPI ends it.
collectives_go_by_mpi()
{
    local node=$build_dir/tests/collectives_node

    if [ -z "$has_pmix" ]; then
        echo "test_slurm: collectives over MPI are left out: this srun has no --mpi=pmix"
        return
    fi
    if ! ldconfig -p | grep 'libmpi\.so\.40' >/dev/null || [ ! -x "$node" ]; then
        echo "test_slurm: collectives over MPI are left out: there is no libmpi.so.40, or no $node"
        return
    fi
    export RUBATO_SETTINGS='collectives = "mpi";'
    step 0 --mpi=pmix --label -N 2 "$node"
    all_are_right 2
    mentions 'to begin MPI'
    step 0 --mpi=pmix --label -N 2 -n 4 "$node" numbers sets
    all_are_right 4
    step 1 --mpi=none --label -N 2 "$node" numbers
    mentions 'its tasks have no PMIx'
    # A task is killed in the middle of collectives: srun ends the others, and says which it was.
    step 137 --mpi=pmix --label -N 2 -n 3 "$node" loses
    mentions 'task 1: Killed'
    unset RUBATO_SETTINGS
}

# One task, or RUBATO_ROLE=alone, is a process of its own. So is a batch script.
one_task_is_alone()
{
    step 0 -n 1 rubato-hello
    says 'key 42: 200'
    RUBATO_ROLE=alone step 0 -N 2 rubato-hello
    says 'key 42: 200'
    # shellcheck disable=SC2016 # the job expands it
    printf '#!/bin/bash\nrubato-hello\n' >"$scratch/batch"
    timeout 60 sbatch --wait -N 2 -o "$scratch/out" "$scratch/batch" >/dev/null ||
        fail "sbatch failed" "$scratch/out"
    says 'key 42: 200'
}

what_is_wrong_is_said_before_the_program_starts()
{
    step 1 -n 1 --export=ALL,RUBATO_PORT=many rubato task -- rubato-hello
    mentions 'RUBATO_PORT is "many"'
    step 1 -n 1 rubato task -- no-such-program
    mentions "no program 'no-such-program' in PATH"
}

# Trains for so long that it does not end by itself.
start_training() # file for the output, further flags
{
    local i

    for ((i = 0; i < 200; i++)); do
        echo "$((i % 2)) $((i % 7 + 1)):1 $((i % 11 + 10)):0.5"
    done >"$scratch/rows"
    srun --label -N 2 --job-name=train rubato task -- rubato-lr --train "$scratch/rows" \
        --epochs 10000000 "${@:2}" >"$1" 2>&1 </dev/null &
    training=$!
}

# Slurm sends SIGTERM, as it does at the end of a job's time. The run writes the snapshot that was asked
# for, and ends in order.
a_cancelled_job_ends_in_order()
{
    start_training "$scratch/out" --checkpoint "$scratch/snapshots" --checkpoint-every 1000000s
    await_text "$training" "$scratch/out" 'epoch 3' || return
    scancel --name=train --signal=TERM
    wait "$training"
    mentions 'signal 15'
    mentions '1: '
    [ "$(rubato checkpoint list "$scratch/snapshots" 2>>"$scratch/out" | wc -l)" -gt 0 ] ||
        fail "no snapshot was written:" "$scratch/out"
    if grep -q 'srun: error: .*Killed' "$scratch/out"; then
        fail "Slurm had to kill it:" "$scratch/out"
    fi
}

# The secret comes in the step's environment, which a node overwrites once it has read it. Others than
# the user could not read it either.
the_secret_is_in_no_environment_of_a_node()
{
    local pid n_looked_at=0

    for pid in $(pgrep -f "^rubato-lr --train $scratch/rows"); do
        n_looked_at=$((n_looked_at + 1))
        if grep -qF "$RUBATO_SECRET" "/proc/$pid/environ"; then
            fail "the environment of a node has the secret"
        fi
        if [ "$(id -u)" -eq 0 ] &&
            setpriv --reuid=65534 --regid=65534 --clear-groups cat "/proc/$pid/environ" >/dev/null 2>&1; then
            fail "other users can read the environment of a node"
        fi
    done
    [ "$n_looked_at" -eq 2 ] || fail "there are $n_looked_at nodes to look at, not 2"
}

# The other nodes notice, and say who is gone.
a_killed_task_ends_the_run()
{
    RUBATO_SECRET=$(rubato secret -)
    export RUBATO_SECRET
    start_training "$scratch/out"
    await_text "$training" "$scratch/out" 'epoch 3' || return
    the_secret_is_in_no_environment_of_a_node
    unset RUBATO_SECRET
    pkill -KILL --newest -f "^rubato-lr --train $scratch/rows"
    wait "$training"
    mentions 'lost'
}

slurm_start "$scratch/slurm" || exit 1
has_pmix=$(srun --mpi=list 2>&1 | grep -w pmix)
tasks_become_nodes
a_program_sees_that_it_is_a_step
a_step_with_pmix_is_no_other
collectives_go_by_mpi
one_task_is_alone
what_is_wrong_is_said_before_the_program_starts
a_cancelled_job_ends_in_order
a_killed_task_ends_the_run
if [ "$failures" -gt 0 ]; then
    echo "test_slurm: $failures failures"
    exit 1
fi
echo "test_slurm: tasks of Slurm become nodes, alone, cancelled and killed ones too"
