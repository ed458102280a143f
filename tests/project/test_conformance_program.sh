#!/bin/bash
# rubato-conformance says that the model, the storage and the rule of a plug-in file hold, and catches
# each of them when one of its lines is broken.
set -uo pipefail

source_dir=$(cd "$(dirname "$0")/../.." && pwd)
build_dir=${RUBATO_BUILD_DIR:?is the build directory whose program is tested}
program=$build_dir/bin/rubato-conformance
plugin=$source_dir/tests/outside/plugin/plugin.c
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export LC_ALL=C.UTF-8
unset RUBATO_TEST_SEED RUBATO_TEST_SEEDS

fail() # what, and maybe a file to show
{
    echo "test_conformance_program: $1" >&2
    [ $# -lt 2 ] || cat "$2" >&2
    exit 1
}

compile() # source object
{
    # shellcheck disable=SC2046 # flags are words
    cc -Wall -Wextra -Werror -O1 -ffp-contract=off -shared -fPIC -I "$source_dir/include" -o "$2" "$1" \
        $(pkg-config --cflags glib-2.0) -lm || fail "$1 does not compile"
}

# Runs the program; what it says is in $scratch/out.
run()
{
    "$program" "$@" >"$scratch/out" 2>"$scratch/error"
}

expect_status() # status, arguments…
{
    local expected=$1 status

    shift
    run "$@"
    status=$?
    [ $status -eq "$expected" ] || fail "$* ended with $status, not $expected" <(cat "$scratch"/{out,error})
}

expect_error() # text
{
    grep -qF -- "$1" "$scratch/error" || fail "no error like '$1'" "$scratch/error"
}

expect_line() # pattern
{
    grep -qE -- "$1" "$scratch/out" || fail "no line like '$1'" "$scratch/out"
}

compile "$plugin" "$scratch/plugin.so"
expect_status 0 --plugin "$scratch/plugin.so" --seeds 100 patient --storage shelf --rule heavy
expect_line '^model patient +holds \(.*lead, staleness, own'
expect_line '^storage shelf +holds '
expect_line '^rule heavy +holds '
[ "$(wc -l <"$scratch/out")" -eq 3 ] || fail "more lines than one each" "$scratch/out"

# Breaks a line; then the thing of that name fails, with a story that has the text.
breaks() # flag name old-line new-line text
{
    local seed

    awk -v old="$3" -v new="$4" '
        function trimmed(s) { gsub(/^[ \t]+|[ \t\\]+$/, "", s); return s }
        trimmed($0) == old { n++; print new ($0 ~ /\\$/ ? " \\" : ""); next }
        { print }
        END { exit n != 1 }' "$plugin" >"$scratch/broken.c" || fail "the line is not there once: $3"
    compile "$scratch/broken.c" "$scratch/broken.so"
    # shellcheck disable=SC2086 # no flag, or one
    expect_status 1 --plugin "$scratch/broken.so" --json "$scratch/json" $1 "$2"
    expect_line "^[a-z]+ $2 +FAILS "
    expect_line "^    .*$5"
    expect_line '^    seed [0-9]+: '
    [ "$(wc -l <"$scratch/out")" -le 30 ] || fail "the story is not short" "$scratch/out"
    grep -q '"holds" : false' "$scratch/json" || fail "the JSON does not say so" "$scratch/json"
    seed=$(sed -n 's/^    seed \([0-9]*\): .*/\1/p' "$scratch/out")
    # shellcheck disable=SC2086
    expect_status 1 --plugin "$scratch/broken.so" --seed "$seed" $1 "$2"
}

breaks '' patient 'return request->clock <= min || request->clock - min <= patient->staleness;' \
    'return request->clock <= min || request->clock - min <= patient->staleness + 1;' 'lead [0-9]'
breaks '' patient '*link = request->next;' '*link = NULL;' 'waits for ever|given back'
breaks --storage shelf 'rubato_init_row(shelf->init, key, row);' \
    'memset(row, 0, shelf->row_bytes);' 'it has to be'
breaks --storage shelf 'return number == 0 ? NULL : shelf->rows[number - 1];' \
    'return number == 0 || key == UINT64_MAX ? NULL : shelf->rows[number - 1];' '18446744073709551615'
breaks --storage shelf 'void *row = g_try_malloc(shelf->row_bytes);' \
    'void *row = g_malloc(shelf->row_bytes);' 'no memory: its process was ended'
breaks --rule heavy 'velocity[i] = momentum * velocity[i] + gradients[i];' \
    'velocity[i] = momentum * velocity[0] + gradients[i]; row[width * 2] = 1;' 'beside its rows'
breaks --rule heavy 'const type momentum = (type)update->rule.momentum;' \
    'static double kept; kept += 0.125; const type momentum = (type)kept;' 'in one call'

# Plug-ins of another version.
sed 's/^bool rubato_plugin_register(/bool rubato_plugin_register_77(/' "$plugin" >"$scratch/newer.c"
compile "$scratch/newer.c" "$scratch/newer.so"
expect_status 2 --plugin "$scratch/newer.so" patient
expect_error 'newer.so was compiled for version 77 of plug-ins, and this library has version 3;'
sed 's/^#include .*plugin.h>/&\n#undef rubato_plugin_register/' "$plugin" >"$scratch/older.c"
compile "$scratch/older.c" "$scratch/older.so"
expect_status 2 --plugin "$scratch/older.so" patient
expect_error 'older.so was compiled for version 0 of plug-ins, and this library has version 3;'

# What it is told wrongly.
expect_status 2 nobody
expect_status 2 --seeds 0
expect_status 2 --plugin "$scratch/none.so"
expect_status 0 --list --plugin "$scratch/plugin.so"
expect_line '^rule heavy$'
"$program" --list >/dev/full 2>/dev/null && fail "lost output is not noticed"
ldd "$program" | grep libcheck >/dev/null && fail "the program needs check"

echo "test_conformance_program: what is broken is caught"
