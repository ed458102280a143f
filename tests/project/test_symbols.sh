#!/bin/bash
# The shared library exports exactly the functions that the public headers mark with RUBATO_API,
# each named rubato_…; so does the static one, and librubato-testing with what testing.h marks.
set -euo pipefail

source_dir=$(cd "$(dirname "$0")/../.." && pwd)
build_dir=${RUBATO_BUILD_DIR:?is the build directory whose library is tested}
failed=0

# RUBATO_API type name(…, over any number of lines: the name is the word before the first bracket.
# Functions that a header has as a pattern, in a comment or a macro, are not declared by it.
declared_by() # headers
{
    local header

    for header in "$@"; do
        sed -e '/^ *#/d' "$header" | tr '\n' ' ' | sed -e 's|/\*[^*]*\*\+\([^/*][^*]*\*\+\)*/| |g' |
            { grep -o 'RUBATO_API [^;(]*(' || true; } | sed -e 's/ *($//' -e 's/.*[ *]//'
    done | sort
}

compare()
{
    local exported

    # What begins with _ is the compiler's and the linker's; mangle_path comes with line coverage.
    exported=$(nm "$@" --defined-only |
        awk 'NF == 3 && $2 ~ /[A-Z]/ && $3 !~ /^_/ && $3 != "mangle_path" { print $3 }' | sort)
    if ! diff -u <(echo "$declared") <(echo "$exported"); then
        echo "test_symbols: ${*: -1}: - is declared but not exported, + exported but not declared"
        failed=1
    fi
}

# $declared is what the headers declare of a library.
check_names()
{
    if [ -z "$declared" ] || grep -v '^rubato_' <<<"$declared"; then
        echo "test_symbols: the names above are public and do not begin with rubato_"
        failed=1
    fi
    if uniq -d <<<"$declared" | grep .; then
        echo "test_symbols: the names above are declared twice"
        failed=1
    fi
}

of_library=()
for header in "$source_dir"/include/rubato/*.h; do
    [[ $header == */testing.h ]] || of_library+=("$header")
done
declared=$(declared_by "${of_library[@]}")
check_names
compare -D "$build_dir/lib/librubato.so"
if [ -z "${RUBATO_SANITIZE:-}" ]; then
    compare -g "$build_dir/lib/librubato.a"
fi
declared=$(declared_by "$source_dir/include/rubato/testing.h")
check_names
compare -g "$build_dir/lib/librubato-testing.a"
exit $failed
