#!/bin/bash
# The manifests of config/kubernetes: they fit the API's schema, and what they say of pods is enough to
# run. That is tried with network namespaces in place of pods: see container and pods.py. A pod whose
# container ends is started again as its manifest says.
set -uo pipefail

source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build_dir=${RUBATO_BUILD_DIR:?is the build directory whose programs run}
hosts=$source_dir/tests/jobs/hosts
render=$source_dir/config/kubernetes/render
schema=$source_dir/tests/jobs/kubernetes_schema.json
failures=0

pods()
{
    /usr/bin/python3 "$source_dir/tests/jobs/pods.py" "$@"
}

missing()
{
    local program

    for program in ip envsubst setpriv curl; do
        command -v "$program" >/dev/null || echo "$program"
    done
    /usr/bin/python3 -c 'import yaml, jsonschema' 2>/dev/null || echo "python3-yaml, python3-jsonschema"
}

if [ "${1:-}" != with-hosts ]; then
    lacking=$(missing | paste -sd ' ')
    if [ -n "$lacking" ]; then
        echo "test_kubernetes: skipped: not installed: $lacking"
        exit 77
    fi
    if [ "$(id -u)" -ne 0 ]; then
        echo "test_kubernetes: skipped: only root may start pods as their own users"
        exit 77
    fi
    exec "$hosts" "" "$0" with-hosts
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
chmod 755 "$scratch"
SECRET=$("$build_dir/bin/rubato" secret -)

fail() # what, file to show
{
    failures=$((failures + 1))
    echo "test_kubernetes: $1"
    [ $# -lt 2 ] || tail -n 40 "$2" | sed 's/^/    | /'
}

# ---- the manifests ----

manifests_fit_the_schema()
{
    local manifest

    for manifest in volume equal-nodes roles; do
        "$render" "$source_dir/config/kubernetes/values.env" "$manifest" >"$scratch/manifest"
        pods check "$schema" <"$scratch/manifest" >"$scratch/out" 2>&1 ||
            fail "$manifest does not fit the schema:" "$scratch/out"
        # The check must be able to fail.
        if sed 's/^\( *\)spec:/\1spek:/' "$scratch/manifest" | pods check "$schema" >"$scratch/out" 2>&1
        then
            fail "a wrong field of $manifest is not found"
        fi
    done
}

expect_refusal() # text, arguments of render
{
    local text=$1

    shift
    if "$render" "$@" >"$scratch/out" 2>&1; then
        fail "render $* does not fail" "$scratch/out"
    fi
    grep -qF -- "$text" "$scratch/out" || fail "render $*: nothing of '$text' in:" "$scratch/out"
}

render_refuses_what_it_does_not_know()
{
    echo 'NODE=3' >"$scratch/wrong.env"
    expect_refusal 'wrong.env:1: there is no value NODE' "$scratch/wrong.env" roles
    echo 'three nodes' >"$scratch/wrong.env"
    expect_refusal 'wrong.env:1: this is no NAME=VALUE: three nodes' "$scratch/wrong.env" roles
    expect_refusal 'there is no file' "$scratch/no.env" roles
    : >"$scratch/empty.env"
    expect_refusal 'there is no manifest pods' "$scratch/empty.env" pods
    # shellcheck disable=SC2016 # render is to see it
    echo 'name: ${NIX}' >"$scratch/own.yaml"
    # shellcheck disable=SC2016
    expect_refusal '${NIX} is no value' "$scratch/empty.env" "$scratch/own.yaml"
}

# ---- pods ----

# What the kubelet does with a pod, but for the waits between its starts, which are 10 s and more.
keep_pod() # pod
{
    local folder=$scratch/pods/$1 address status

    address=$(<"$folder/address")
    for ((i = 0; i < 30; i++)); do
        "$hosts" on "$1" unshare --mount --pid --fork --kill-child "$source_dir/tests/jobs/container" \
            "$folder" "$scratch/claim" "$build_dir" "$address" "$SECRET" >>"$folder/log" 2>&1 &
        echo "$!" >"$folder/pid"
        wait "$!"
        status=$?
        echo "$status" >>"$folder/ends"
        if [ -e "$folder/deleted" ] || { [ "$status" -eq 0 ] && [ "$(<"$folder/restarts")" = OnFailure ]; }
        then
            break
        fi
        sleep 1
    done
}

start_pod() # pod
{
    local folder=$scratch/pods/$1 name

    rm -f "$folder"/{pid,ends,deleted}
    if [ ! -e "$folder/address" ]; then
        "$hosts" add "$1" >"$folder/address"
        while read -r name; do
            "$hosts" name "$1" "$name"
        done <"$folder/names"
    fi
    keep_pod "$1" &
    echo "$!" >"$folder/kubelet"
}

# Sends a signal to the container's process 1.
signal_pod() # pod, signal
{
    pkill "-$2" -P "$(<"$scratch/pods/$1/pid")"
}

delete_pod() # pod
{
    touch "$scratch/pods/$1/deleted"
    signal_pod "$1" TERM
}

wait_for_pods() # pods
{
    local pod

    for pod in "$@"; do
        wait "$(<"$scratch/pods/$pod/kubelet")"
    done
}

expect_end() # status, pods
{
    local status=$1 pod

    shift
    for pod in "$@"; do
        [ "$(tail -n 1 "$scratch/pods/$pod/ends")" = "$status" ] ||
            fail "$pod has not ended with $status:" "$scratch/pods/$pod/log"
    done
}

expect_starts() # how often at least, pods
{
    local starts=$1 pod

    shift
    for pod in "$@"; do
        [ "$(wc -l <"$scratch/pods/$pod/ends")" -ge "$starts" ] ||
            fail "$pod has not been started $starts times:" "$scratch/pods/$pod/log"
    done
}

# How often the pod's container has ended.
count_ends() # pod
{
    wc -l 2>/dev/null <"$scratch/pods/$1/ends" || echo 0
}

# Waits for a snapshot. One comes, or the training ends, and then the callers see too few starts; or the
# pod ends again and again, of which keep_pod makes an end.
wait_for_snapshot() # pod
{
    until [ "$("$build_dir/bin/rubato" checkpoint list "$scratch/claim/snapshots" 2>/dev/null | wc -l)" -gt 0 ] ||
        [ -e "$scratch/claim/model" ]; do
        if [ "$(count_ends "$1")" -ge 5 ]; then
            fail "$1 has ended 5 times, and there is no snapshot:" "$scratch/pods/$1/log"
            return
        fi
        sleep 0.05
    done
}

# Waits until processes of the pod have ended so often, for 30 s at most.
wait_for_ends() # pod, times
{
    local end=$((SECONDS + 30))

    until [ "$(count_ends "$1")" -ge "$2" ] || [ "$SECONDS" -ge "$end" ]; do
        sleep 0.05
    done
}

# Waits for a line of the pod's log. It comes, or the pod ends again and again, or the training ends.
wait_for_line() # pod, text
{
    until grep -qF -- "$2" "$scratch/pods/$1/log" 2>/dev/null; do
        if [ "$(count_ends "$1")" -ge 10 ] || [ -e "$scratch/claim/model" ]; then
            fail "$1 has not said '$2':" "$scratch/pods/$1/log"
            return
        fi
        sleep 0.05
    done
}

# Makes pods of a manifest, and an empty volume with training data.
make_pods() # NAME, manifest, [command, [servers]]
{
    local command='["rubato-lr", "--train", "/data/train.libsvm", "--epochs", "30", "--batch-size", "100", "--straggler", "1:2", "--checkpoint", "/data/snapshots", "--keep", "0", "--resume", "--save", "/data/model"]'

    rm -rf "$scratch/claim"
    install -d -m 777 "$scratch/claim"
    awk 'BEGIN { for (i = 0; i < 3000; i++) print i % 2, i % 7 + 1 ":1", i % 2 + 10 ":1" }' \
        >"$scratch/claim/train.libsvm"
    cat >"$scratch/values.env" <<END
NAME=$1
COMMAND=${3:-$command}
SETTINGS=timeout_ms = 3000;
THREADS=1
SERVERS=${4:-2}
END
    "$render" "$scratch/values.env" volume "$2" | pods list "$scratch/pods" ||
        fail "the pods of $2 cannot be made"
}

expect_model() # what came of it
{
    [ -e "$scratch/model" ] || cp -r "$scratch/claim/model" "$scratch/model"
    diff -r "$scratch/model" "$scratch/claim/model" >"$scratch/out" 2>&1 || fail "$1 has another model" "$scratch/out"
}

# Asks until that is the answer: a pod gets there, or the 30 s end.
expect_probe() # pod, path, status
{
    local code

    for ((i = 0; i < 300; i++)); do
        code=$(curl --silent --max-time 2 --output "$scratch/out" --write-out '%{http_code}' "http://$1:8080$2")
        [ "$code" != "$3" ] || return
        sleep 0.1
    done
    fail "$1 answers $code to $2, not $3:" "$scratch/pods/$1/log"
}

equal_nodes_train_though_their_scheduler_comes_last()
{
    make_pods calm equal-nodes
    start_pod calm-1
    start_pod calm-2
    expect_probe calm-1 /live 200
    [ "$(curl --silent --output /dev/null --write-out '%{http_code}' http://calm-1:8080/ready)" = 503 ] ||
        fail "a node that waits for others is ready"
    start_pod calm-0
    expect_probe calm-2 /ready 200
    wait_for_pods calm-0 calm-1 calm-2
    expect_end 0 calm-0 calm-1 calm-2
    expect_model "the undisturbed job"
}

a_killed_pod_costs_no_more_than_the_work_since_the_last_snapshot()
{
    make_pods killed equal-nodes
    for pod in killed-{0,1,2}; do
        start_pod "$pod"
    done
    wait_for_snapshot killed-1
    signal_pod killed-1 KILL
    wait_for_pods killed-0 killed-1 killed-2
    expect_starts 2 killed-0 killed-1 killed-2
    expect_end 0 killed-0 killed-1 killed-2
    expect_model "a job with a killed pod"
}

pods_that_are_deleted_write_a_snapshot()
{
    make_pods drained equal-nodes
    for pod in drained-{0,1,2}; do
        start_pod "$pod"
    done
    wait_for_snapshot drained-1
    for pod in drained-{0,1,2}; do
        delete_pod "$pod"
    done
    wait_for_pods drained-0 drained-1 drained-2
    expect_end 143 drained-0 drained-1 drained-2
    for pod in drained-{0,1,2}; do
        start_pod "$pod"
    done
    wait_for_pods drained-0 drained-1 drained-2
    expect_end 0 drained-0 drained-1 drained-2
    expect_model "a job that was deleted and made again"
}

servers_stay_for_the_next_job()
{
    local job=(roles-scheduler roles-workers-0 roles-workers-1)

    make_pods roles roles
    for pod in roles-servers-0 roles-servers-1 "${job[@]}"; do
        start_pod "$pod"
    done
    wait_for_pods "${job[@]}"
    expect_end 0 "${job[@]}"
    expect_probe roles-servers-1 /live 200 # it waits for the next one
    for pod in roles-servers-0 roles-servers-1; do
        delete_pod "$pod"
    done
    wait_for_pods roles-servers-0 roles-servers-1
    [ -e "$scratch/claim/model" ] || fail "no model was saved" "$scratch/pods/roles-scheduler/log"
}

# The training goes on while a pod is away, and while it has come back. SIGTERM takes one out without a
# loss: nothing but its parts has moved when it ends.
servers_that_are_killed_or_get_sigterm_take_their_places_again()
{
    local job=(replicas-scheduler replicas-workers-0 replicas-workers-1)
    local servers=(replicas-servers-{0,1,2}) killed=replicas-servers-1 drained=replicas-servers-0 pod

    make_pods replicas roles '["rubato-lr", "--train", "/data/train.libsvm", "--epochs", "60", "--batch-size", "100", "--straggler", "1:10", "--replicas", "1", "--save", "/data/model"]' 3
    for pod in "${servers[@]}" "${job[@]}"; do
        start_pod "$pod"
    done
    wait_for_line replicas-workers-0 'epoch 1/'
    signal_pod "$killed" KILL
    wait_for_line "$killed" 'has taken the place of a lost process'
    expect_probe "$killed" /ready 200
    signal_pod "$drained" TERM
    wait_for_line "$drained" 'was drained, and leaves the run'
    wait_for_line "$drained" 'has taken the place of a lost process'
    wait_for_pods "${job[@]}"
    expect_end 0 "${job[@]}"
    for pod in "${job[@]}" replicas-servers-2; do
        [ "$(count_ends "$pod")" -le 1 ] || fail "$pod was started again, too" "$scratch/pods/$pod/log"
    done
    [ -e "$scratch/claim/model" ] || fail "no model was saved" "$scratch/pods/replicas-workers-0/log"
    [ "$(head -n 1 "$scratch/pods/$drained/ends")" = 0 ] ||
        fail "the server that got SIGTERM has not ended with 0" "$scratch/pods/$drained/log"
    wait_for_ends "$killed" 2 # the one that was killed, and the one that has served, after the others
    grep -qx 0 "$scratch/pods/$killed/ends" ||
        fail "the process that has served has not ended with 0" "$scratch/pods/$killed/log"
    grep -q 'was drained, and has left the run; the run goes on' "$scratch/pods/replicas-scheduler/log" ||
        fail "the scheduler has not said that the server has left" "$scratch/pods/replicas-scheduler/log"
    for pod in "${servers[@]}"; do
        expect_probe "$pod" /live 200 # it waits for the next job
        delete_pod "$pod"
    done
    wait_for_pods "${servers[@]}"
}

manifests_fit_the_schema
render_refuses_what_it_does_not_know
equal_nodes_train_though_their_scheduler_comes_last
a_killed_pod_costs_no_more_than_the_work_since_the_last_snapshot
pods_that_are_deleted_write_a_snapshot
servers_stay_for_the_next_job
servers_that_are_killed_or_get_sigterm_take_their_places_again
if [ "$failures" -gt 0 ]; then
    echo "test_kubernetes: $failures failures"
    exit 1
fi
echo "test_kubernetes: pods of both manifests train, are killed, deleted, and go on"
