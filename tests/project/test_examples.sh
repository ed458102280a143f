#!/bin/bash
# The three example suites of docs/howto/test-a-model.md: each has less than eighty lines, passes, and
# fails when its model is broken by one line. The models "ssp" and "bsp" are compiled once more as
# plug-ins for this, under other names.
set -euo pipefail

source_dir=$(cd "$(dirname "$0")/../.." && pwd)
build_dir=${RUBATO_BUILD_DIR:?is the build directory whose library and kit are used}
page=$source_dir/docs/howto/test-a-model.md
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
unset RUBATO_TEST_SEED RUBATO_TEST_SEEDS

fail() # what, and maybe a file to show
{
    echo "test_examples: $1" >&2
    [ $# -lt 2 ] || cat "$2" >&2
    exit 1
}

cmake --install "$build_dir" --prefix "$scratch/prefix" >log || fail "the install failed" log
lib=$(dirname "$(find "$scratch/prefix" -name librubato.so)")
export PKG_CONFIG_PATH=$lib/pkgconfig LD_LIBRARY_PATH=$lib

# The block of the page that is kept as this file.
take() # file
{
    awk -v fence="name=$1( |\$)" '/^```/ { inside = !inside && $0 ~ fence; next } inside' "$page" >"$1"
    [ -s "$1" ] || fail "the page has no $1"
}

# The models of the library, without what asks for the rest of it.
cat >around.c <<'END'
#include <rubato/plugin.h>

#include "models/aggregate.h"
#include "models/model.h"

Aggregate *aggregate_new(const RubatoTableSpec *spec, RubatoShard *shard)
{
    (void)spec;
    (void)shard;
    g_error("no table of this test aggregates");
}

bool aggregate_take(Aggregate *aggregate, const RubatoRequest *request)
{
    (void)aggregate;
    (void)request;
    return false;
}

void aggregate_apply(Aggregate *aggregate)
{
    (void)aggregate;
}

bool aggregate_apply_sorted(Aggregate *aggregate, RubatoRequest *adds)
{
    (void)aggregate;
    (void)adds;
    return false;
}

void aggregate_free(Aggregate *aggregate)
{
    (void)aggregate;
}

extern const RubatoModelOps MODEL_OPS;

RUBATO_PLUGIN bool rubato_plugin_register(GError **error)
{
    return rubato_register_model(&MODEL_OPS, error);
}
END

# Has the suite use the plug-in before it begins.
cat >load.c <<'END'
#include <rubato/plugin.h>

__attribute__((constructor)) static void load(void)
{
    g_autoptr(GError) error = NULL;

    if (!rubato_load_plugin("./model.so", &error))
        g_error("%s", error->message);
}
END

compile() # program sources…
{
    # shellcheck disable=SC2046 # flags are words
    cc -O1 -o "$1" "${@:2}" $(pkg-config --cflags --libs rubato-testing) || fail "$1 cannot be built"
}

# Compiles model.c as model.so.
compile_model() # its ops if it is one of the library's
{
    if [ $# -eq 0 ]; then
        # shellcheck disable=SC2046
        cc -O1 -shared -fPIC -o model.so model.c $(pkg-config --cflags rubato)
    else
        # shellcheck disable=SC2046
        cc -O1 -fvisibility=hidden -shared -fPIC -I "$source_dir" -D "MODEL_OPS=$1" -o model.so model.c \
            around.c "$source_dir/models/request_heap.c" $(pkg-config --cflags rubato)
    fi || fail "the model cannot be built"
}

# Breaks a line of model.c, which has to be there once.
break_model() # old new
{
    awk -v old="$1" -v new="$2" '
        { line = $0; gsub(/^[ \t]+|[ \t]+$/, "", line) }
        line == old { n++; print new; next }
        { print }
        END { exit n != 1 }' model.c >broken.c || fail "the line is not there once: $1"
    mv broken.c model.c
}

check_suite() # suite
{
    [ "$(wc -l <"$1.c")" -lt 80 ] || fail "$1.c has eighty lines or more"
    "./$1" >log 2>&1 || fail "$1 fails, and nothing is broken" log
}

check_broken() # suite text
{
    if "./$1" >log 2>&1; then fail "$1 does not notice a broken model" log; fi
    grep -q "$2" log || fail "$1 does not say '$2'" log
}

# A model of the library.
check_example() # suite model old new text
{
    take "$1.c"
    sed "s/\.name = \"$2\"/.name = \"$2-copy\"/" "$source_dir/models/$2.c" >model.c
    sed "s/\"$2\"/\"$2-copy\"/" "$1.c" >copy.c
    compile_model "$2_model_ops"
    compile "$1" copy.c load.c
    check_suite "$1"
    break_model "$3" "$4"
    compile_model "$2_model_ops"
    check_broken "$1" "$5"
}

check_example test_staleness ssp \
    'return request->clock <= min || request->clock - min <= ssp->staleness;' \
    'return request->clock <= min || request->clock - min <= ssp->staleness + 1;' \
    'the Get of worker'
check_example test_bits bsp 'const bool may_apply = kept != NULL && kept->clock < min;' \
    'const bool may_apply = kept != NULL && kept->clock <= min;' 'exact: the Get of worker'

take quorum.c
take test_quorum.c
cp quorum.c model.c
compile test_quorum test_quorum.c
compile_model
cp model.so quorum.so
check_suite test_quorum
break_model 'return n > model->n_workers / 2;' 'return n > 0;'
compile_model
cp model.so quorum.so
check_broken test_quorum 'due: the Get of worker'

echo "test_examples: each suite notices when its model is broken"
