#!/bin/bash
# Installs to a temporary prefix, moves that, and builds the project tests/outside against it: by
# pkg-config and by CMake, against the shared and the static library. Then runs each.
set -euo pipefail

source_dir=$(cd "$(dirname "$0")/../.." && pwd)
build_dir=${RUBATO_BUILD_DIR:?is the build directory whose install is tested}
outside=$source_dir/tests/outside
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail()
{
    echo "test_install: $*" >&2
    exit 1
}

expect()
{
    local output

    output=$("$@") || fail "$* ended with $?"
    [ "$output" = f32 ] || fail "$* printed '$output', not 'f32'"
}

cmake --install "$build_dir" --prefix "$scratch/first" >"$scratch/log" ||
    fail "the install failed: $(cat "$scratch/log")"
mv "$scratch/first" "$scratch/prefix"
prefix=$scratch/prefix
lib=$(dirname "$(find "$prefix" -name librubato.so)")
export PKG_CONFIG_PATH=$lib/pkgconfig

for header in "$source_dir"/include/rubato/*.h; do
    [ -e "$prefix/include/rubato/${header##*/}" ] || fail "${header##*/} was not installed"
    echo "#include <rubato/${header##*/}>" >"$scratch/alone.c"
    # shellcheck disable=SC2046 # flags are words
    cc -std=c11 -Wall -Wextra -Werror -fsyntax-only "$scratch/alone.c" \
        $(pkg-config --cflags rubato) || fail "${header##*/} does not compile alone"
done
for name in rubato rubato-lr rubato-bench; do
    [ -e "$prefix/share/bash-completion/completions/$name" ] || fail "bash cannot complete $name"
done
[ -e "$prefix/share/zsh/site-functions/_rubato" ] || fail "zsh cannot complete"
if grep -q '^RUBATO_CMARK:.*=/' "$build_dir/CMakeCache.txt"; then
    [ -e "$prefix/share/doc/rubato/html/reference/engine.html" ] ||
        fail "the documentation was not installed as HTML"
fi
if grep -rIl -e "$source_dir" -e "$build_dir" "$prefix"; then
    fail "these installed files name the build's directories"
fi

# shellcheck disable=SC2046
cc "$outside"/*.c -o "$scratch/by_pkgconfig" $(pkg-config --cflags --libs rubato)
expect env LD_LIBRARY_PATH="$lib" "$scratch/by_pkgconfig"

# shellcheck disable=SC2046
cc "$outside"/*.c -o "$scratch/by_pkgconfig_static" $(pkg-config --cflags --libs rubato-static)
expect "$scratch/by_pkgconfig_static"

for step in "-S $outside -B $scratch/build -DCMAKE_PREFIX_PATH=$prefix" "--build $scratch/build"; do
    # shellcheck disable=SC2086
    cmake $step >"$scratch/log" 2>&1 || fail "CMake could not do it: $(cat "$scratch/log")"
done
expect "$scratch/build/outside"
expect "$scratch/build/outside_static"

# A suite of one's own against the testing kit.
# shellcheck disable=SC2046
cc "$outside/suite/test_ssp.c" -o "$scratch/test_ssp" $(pkg-config --cflags --libs rubato-testing)
env LD_LIBRARY_PATH="$lib" "$scratch/test_ssp" >"$scratch/log" ||
    fail "the suite of the testing kit failed: $(cat "$scratch/log")"

# A plug-in file, and a program with the kit but without check.
# shellcheck disable=SC2046
cc -O2 -ffp-contract=off -shared -fPIC "$outside/plugin/plugin.c" -o "$scratch/plugin.so" \
    $(pkg-config --cflags --libs rubato) -lm
cat >"$scratch/bare.c" <<'END'
#include <rubato/testing.h>

int main(void)
{
    char *story = rubato_test_storage_story(
        &(RubatoStorageTest){ .spec = { .storage = "hash" }, .n_seeds = 5 });

    return story != NULL;
}
END
# shellcheck disable=SC2046
cc "$scratch/bare.c" -o "$scratch/bare" "$lib/librubato-testing.a" $(pkg-config --cflags --libs rubato) -lm
env LD_LIBRARY_PATH="$lib" "$scratch/bare" || fail "a program with the kit and without check failed"

if [ -e "$build_dir/bin/rubato" ]; then
    "$prefix/bin/rubato-conformance" --plugin "$scratch/plugin.so" --seeds 20 patient --storage shelf \
        --rule heavy >"$scratch/log" || fail "rubato-conformance: $(cat "$scratch/log")"
    version=$("$prefix/bin/rubato" --version) || fail "the installed rubato does not run"
    [[ $version == *"$(pkg-config --modversion rubato)"* ]] ||
        fail "rubato --version says '$version', pkg-config $(pkg-config --modversion rubato)"
fi
echo "test_install: all was found where it was installed"
