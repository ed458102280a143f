#!/bin/bash
# A Slurm of this machine alone, in a folder of its own, for the tests beside this file: two nodes,
# whose names are the addresses 127.0.0.2 and 127.0.0.3. Source it.
#
#   slurm_missing        prints what is not installed; nothing if all is there
#   slurm_enclose TEST   begins the test again as the first process of processes of its own, where that
#                        is possible: all others end with it, also if it is killed
#   slurm_start FOLDER   starts munged, slurmctld and two slurmd, and sets SLURM_CONF
#   slurm_stop           ends them; also after a start that failed
#
# All of it listens on loopback, and authenticates by a key of its own, so other Slurms of the machine
# see nothing of it.

slurm_pids=()

slurm_missing()
{
    local program

    for program in munged slurmctld slurmd srun scancel sinfo; do
        PATH=$PATH:/usr/sbin command -v "$program" >/dev/null || printf '%s ' "$program"
    done
}

# A step that Slurm has started is no child of the test, and outlives it if the test is killed.
slurm_enclose() # test and its arguments
{
    local enclose=(unshare --pid --fork --kill-child --mount-proc)

    if [ -z "${TEST_IS_ENCLOSED:-}" ] && "${enclose[@]}" true 2>/dev/null; then
        TEST_IS_ENCLOSED=yes exec "${enclose[@]}" bash "$@"
    fi
    unset TEST_IS_ENCLOSED
}

# Four ports that are free now: a number to begin at.
slurm_find_ports()
{
    local first i port

    for ((i = 0; i < 50; i++)); do
        first=$((5000 + RANDOM % 1000 * 4))
        for ((port = first; port < first + 4; port++)); do
            if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
                continue 2
            fi
        done
        echo "$first"
        return
    done
    echo "slurm: no free ports" >&2
    return 1
}

slurm_write_conf() # folder, first port
{
    cat >"$1/slurm.conf" <<END
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=$2
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$1/munge/socket
CredType=cred/munge
StateSaveLocation=$1/state
SlurmdSpoolDir=$1/spool/%n
TmpFS=$1/tmp/%n
SlurmctldPidFile=$1/ctld.pid
SlurmdPidFile=$1/%n.pid
SlurmctldLogFile=$1/ctld.log
SlurmdLogFile=$1/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=10
NodeName=127.0.0.[2-3] NodeHostname=$(hostname -s) Port=[$(($2 + 1))-$(($2 + 2))] CPUs=8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
}

# Waits until both nodes take jobs. The wait ends: a slurmd registers at once, or has ended.
slurm_await_nodes()
{
    local i pid

    for ((i = 0; i < 300; i++)); do
        if [ "$(sinfo --noheader --Node --states=idle --format=%N 2>/dev/null | sort -u | wc -l)" -eq 2 ]; then
            return 0
        fi
        for pid in "${slurm_pids[@]}"; do
            kill -0 "$pid" 2>/dev/null || break 2
        done
        sleep 0.1
    done
    echo "slurm: its nodes did not come up:" >&2
    tail -n 5 "$1"/*.log >&2
    return 1
}

slurm_start() # folder
{
    local folder=$1 port node

    PATH=$PATH:/usr/sbin
    mkdir -p "$folder"/{munge,state,spool,tmp/127.0.0.{2,3}}
    chmod 755 "$folder" "$folder/munge"
    head -c 1024 /dev/urandom >"$folder/munge/key"
    chmod 400 "$folder/munge/key"
    port=$(slurm_find_ports) || return
    slurm_write_conf "$folder" "$port"
    export SLURM_CONF=$folder/slurm.conf
    munged --foreground --force --key-file="$folder/munge/key" --socket="$folder/munge/socket" \
        --pid-file="$folder/munge/pid" --log-file="$folder/munge/log" \
        --seed-file="$folder/munge/seed" >"$folder/munge.log" 2>&1 &
    slurm_pids+=($!)
    while [ ! -S "$folder/munge/socket" ] && kill -0 "${slurm_pids[0]}" 2>/dev/null; do
        sleep 0.05
    done
    slurmctld -D -c >"$folder/ctld.out" 2>&1 &
    slurm_pids+=($!)
    for node in 127.0.0.2 127.0.0.3; do
        slurmd -D -c -N "$node" >"$folder/$node.out" 2>&1 &
        slurm_pids+=($!)
    done
    slurm_await_nodes "$folder"
}

# The daemons end once no step is left: a step that ends tells slurmctld first, and slurmd waits for
# it. What is left after 10 s is killed.
slurm_stop()
{
    local pid i

    if [ "${#slurm_pids[@]}" -gt 1 ]; then
        timeout 5 scancel --signal=KILL --user "$(id -un)" 2>/dev/null
        timeout 5 scancel --user "$(id -un)" 2>/dev/null
    fi
    for ((i = 0; i < 100; i++)); do
        [ -n "$(timeout 5 squeue --noheader 2>/dev/null)" ] || break
        sleep 0.1
    done
    for pid in "${slurm_pids[@]}"; do
        kill "$pid" 2>/dev/null
    done
    for ((i = 0; i < 100; i++)); do
        [ -n "$(jobs -pr)" ] || break
        sleep 0.1
    done
    for pid in "${slurm_pids[@]}"; do
        kill -KILL "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
    done
    slurm_pids=()
}
