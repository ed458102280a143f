#!/bin/bash
# Gives each program each of its flags in a combination in which the flag has no effect, and sees it
# refused with what it needs. A flag of --help that is neither here nor among those that always have
# an effect fails the test.
set -euo pipefail

build_dir=$(cd "${RUBATO_BUILD_DIR:?is the build directory whose programs are called}" && pwd)
bin=$build_dir/bin
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset RUBATO_CLUSTER RUBATO_NODE RUBATO_ROLE

if [ ! -e "$bin/rubato" ]; then
    echo "test_effects: skipped: this build has no programs"
    exit 77
fi

cd "$scratch"
printf '1 1:1\n-1 2:1\n' > rows.svm
printf '1,2\n0,3\n' > rows.csv
n_wrong=0
declare -A seen # "PROGRAM FLAG"

fail()
{
    echo "test_effects: $*" >&2
    n_wrong=$((n_wrong + 1))
}

# refused PROGRAM FLAG TEXT ARGUMENT...: the call must fail, and say "--FLAG: TEXT".
refused()
{
    local program=$1 flag=$2 text=$3 said

    shift 3
    seen["$program $flag"]=yes
    if said=$("$bin/$program" "$@" 2>&1); then
        fail "$program $*: takes --$flag, which has no effect"
    elif [[ $said != *"--$flag: $text"* ]]; then
        fail "$program $*: expected \"--$flag: $text\", found: $said"
    fi
}

# always PROGRAM FLAG...: these have an effect in each combination, or there is another reason for
# which they are not here.
always()
{
    local program=$1 flag

    shift
    for flag in "$@"; do
        seen["$program $flag"]=yes
    done
}

training='has no effect here; it needs training'
used=(--load model --predict rows.svm) # a loaded model that is not trained
rows=(--train rows.svm)

# ---- flags of every program, with rubato-lr ----

always all help model plugin parts epochs seed json save load predict cluster
always all test format max-bad-rows cache
always all standardize # refused with a model that was trained without: test_app_lr_saved
refused rubato-lr staleness 'has no effect under --model bsp' "${rows[@]}" -s 1
refused rubato-lr speculation 'has no effect under --model ssp' "${rows[@]}" --model ssp --speculation 1
refused rubato-lr replicas 'needs several nodes' "${rows[@]}" --replicas 1
always all replicas bind-cores numa
refused rubato-lr output 'needs --predict FILE' "${rows[@]}" --output x
refused rubato-lr checkpoint-every 'needs --checkpoint DIR' "${rows[@]}" --checkpoint-every 2
refused rubato-lr checkpoint-packing 'needs --checkpoint DIR' "${rows[@]}" --checkpoint-packing zstd
refused rubato-lr full-every 'needs --checkpoint DIR' "${rows[@]}" --full-every 2
refused rubato-lr keep 'needs --checkpoint DIR' "${rows[@]}" --keep 2
refused rubato-lr resume 'needs --checkpoint DIR' "${rows[@]}" --resume
refused rubato-lr stream-every 'needs --stream URI' "${rows[@]}" --stream-every 2s
refused rubato-lr stream-packing 'needs --stream URI' "${rows[@]}" --stream-packing zstd
refused rubato-lr node 'needs --cluster FILE' "${rows[@]}" --node 1
refused rubato-lr servers 'is for a single process' "${rows[@]}" --cluster x --node 1 --servers 2
refused rubato-lr workers 'is for a single process' "${rows[@]}" --cluster x --node 1 -w 2
refused rubato-lr validate 'there is no training' "${used[@]}" --validate rows.svm
refused rubato-lr patience 'needs --validate FILE' "${rows[@]}" --patience 2
refused rubato-lr train "$training" "${used[@]}" "${rows[@]}"
refused rubato-lr train "$training" --load model --predict rows.svm --train=rows.svm
refused rubato-lr batch-size "$training" "${rows[@]}" --epochs 0 --batch-size 2
refused rubato-lr batch-size "$training" "${used[@]}" -b 2
refused rubato-lr learning-rate "$training" "${used[@]}" --learning-rate=1
refused rubato-lr learning-rate "$training" "${used[@]}" -l 1
refused rubato-lr split "$training" "${used[@]}" --split dynamic
refused rubato-lr straggler "$training" "${used[@]}" --straggler .1:1
refused rubato-lr time-limit "$training" "${used[@]}" --time-limit 1
refused rubato-lr target-loss "$training" "${used[@]}" --target-loss 1
refused rubato-lr keep-going "$training" "${used[@]}" --keep-going
refused rubato-lr plot "$training" "${used[@]}" --plot x.svg
refused rubato-lr checkpoint-every "$training" "${rows[@]}" -e 0 --checkpoint d --checkpoint-every 2
refused rubato-lr full-every "$training" "${rows[@]}" -e 0 --checkpoint d \
    --full-every 2
refused rubato-lr checkpoint-packing "$training" "${rows[@]}" -e 0 --checkpoint d \
    --checkpoint-packing bf16
refused rubato-lr keep "$training" "${rows[@]}" -e 0 --checkpoint d --keep 2
refused rubato-lr stream "$training" "${rows[@]}" -e 0 --stream file:s
refused rubato-lr stream-every "$training" "${rows[@]}" -e 0 --stream file:s --stream-every 2s
refused rubato-lr stream-packing "$training" "${rows[@]}" -e 0 --stream file:s \
    --stream-packing bf16
always all checkpoint # it has an effect without training, too: a snapshot is restored from it

# Formats: as the name of the file says, or the flag.
for flag in label-column header categorical; do
    value=0
    [ $flag != header ] || value=yes
    refused rubato-lr $flag 'has no effect here; it needs the format csv' "${rows[@]}" --$flag $value
    refused rubato-lr $flag 'has no effect here; it needs the format csv' \
        --train rows.csv --format ratings --loss squared --$flag $value
done
refused rubato-lr hash-bits 'has no effect here; it needs the format text' "${rows[@]}" --hash-bits 9
refused rubato-lr hash-bits 'has no effect here; it needs the format text' --train rows.csv --hash-bits 9

# ---- their own ----

always rubato-lr loss no-bias
for flag in rule=sgd l1=1 l2=1; do
    refused rubato-lr ${flag%=*} "$training" "${used[@]}" --$flag
    refused rubato-fm ${flag%=*} "$training" "${used[@]}" --$flag
done

# The factors of keys that the model has not seen are drawn whenever they are read.
always rubato-fm factors loss init-stddev
refused rubato-fm ffm 'has no --loss softmax' "${rows[@]}" --ffm --loss softmax
refused rubato-fm l1 'needs --rule ftrl' "${rows[@]}" --l1 1
refused rubato-fm l2-factors "$training" "${used[@]}" --l2-factors 1
refused rubato-fm max-mib "$training" "${used[@]}" --max-mib 9
refused rubato-fm admit-count "$training" "${used[@]}" --admit-count 2
refused rubato-fm evict "$training" "${used[@]}" --evict lru
refused rubato-fm evict 'has no effect here; it needs --max-mib' "${rows[@]}" --evict lru

always rubato-kmeans clusters
refused rubato-kmeans init 'has no effect with --load' "${rows[@]}" --load model --init parallel
refused rubato-kmeans init "$training" "${rows[@]}" --epochs 0 --init parallel
refused rubato-kmeans tolerance "$training" "${used[@]}" --tolerance .1
refused rubato-kmeans tolerance 'has no effect here; it needs steps over all rows' \
    "${rows[@]}" -b 10 --tolerance .1
refused rubato-kmeans tolerance 'has no effect here; it needs a model' \
    "${rows[@]}" --model asp --tolerance .1
refused rubato-kmeans validate 'has no effect here' "${rows[@]}" --validate rows.svm
refused rubato-kmeans learning-rate 'rubato-kmeans has none' "${rows[@]}" -l 1

always rubato-gbdt loss
for flag in max-depth=2 bins=9 l2=1 min-weight=1 min-gain=1; do
    refused rubato-gbdt ${flag%=*} "$training" "${used[@]}" --$flag
done
refused rubato-gbdt max-depth "$training" "${used[@]}" -d 2
refused rubato-gbdt split 'dynamic has no effect here' "${rows[@]}" --split dynamic
refused rubato-gbdt batch-size 'rubato-gbdt has no batches' "${rows[@]}" -b 2
refused rubato-gbdt standardize 'has no effect on trees' "${rows[@]}" --standardize

always rubato-mf factors
for flag in rule=sgd l2=1 l2-bias=1 init-stddev=1; do
    refused rubato-mf ${flag%=*} "$training" "${used[@]}" --$flag
done
refused rubato-mf split 'dynamic has no effect here' "${rows[@]}" --split dynamic
refused rubato-mf batch-size 'rubato-mf has no batches' "${rows[@]}" -b 2
refused rubato-mf standardize 'rows of users and items have no values' "${rows[@]}" --standardize

always rubato-mlp hidden
refused rubato-mlp by "$training" "${used[@]}" --by allreduce
refused rubato-mlp rule "$training" "${used[@]}" --rule sgd

always rubato-wide-deep only
refused rubato-wide-deep cross 'has no effect with --only deep' "${rows[@]}" --only deep --cross 0:1
refused rubato-wide-deep hidden 'has no effect with --only wide' "${rows[@]}" --only wide --hidden 8
refused rubato-wide-deep embedding 'has no effect with --only wide' "${rows[@]}" --only wide -k 8
refused rubato-wide-deep rule "$training" "${used[@]}" --rule sgd

refused rubato-softmax data 'has no effect with --generated' --data x --generated
refused rubato-softmax data "$training" "${used[@]}" -d x
refused rubato-softmax by "$training" "${used[@]}" --by allreduce
for program in rubato-softmax rubato-mlp; do
    by='has no effect with --by allreduce'
    refused $program staleness "$by" --by allreduce --staleness 2
    refused $program speculation "$by" --by allreduce --speculation 2
    refused $program 'model ssp' "$by" --by allreduce --model ssp --staleness 2
    refused $program replicas 'have no use with --by allreduce' --by allreduce --replicas 1
done
refused rubato-softmax generated "$training" "${used[@]}" --generated

# ---- no flag is left out ----

for program in rubato-lr rubato-fm rubato-kmeans rubato-gbdt rubato-mf rubato-mlp \
    rubato-softmax rubato-wide-deep; do
    for flag in $("$bin/$program" --help | sed -nE 's/^ +(-., )?--([a-z0-9-]+).*/\2/p'); do
        [ -n "${seen["$program $flag"]-}${seen["all $flag"]-}${seen["rubato-lr $flag"]-}" ] ||
            fail "$program: nobody has said when --$flag has an effect"
    done
done
[ $n_wrong -eq 0 ]
