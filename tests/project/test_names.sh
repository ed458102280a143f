#!/bin/bash
# Nobody outside a kind's folder compares names of models, storages, records or update rules: what is
# special about one is a member of its ops. With a folder as argument it checks that instead of the
# project.
set -euo pipefail

cd "${1:-$(dirname "$0")/../..}"

# The names that the constant ops of the library give.
names()
{
    local -a sources

    shopt -s globstar nullglob
    sources=(models/**/*.c)
    awk '/^(static )?const (Rubato)?[A-Za-z]*Ops / { inside = 1 }
         /^};/ { inside = 0 }
         inside && match($0, /\.name = "[^"]+"/) { print substr($0, RSTART + 9, RLENGTH - 10) }' \
        "${sources[@]}" | sort -u
}

check_names()
{
    local -a sources
    local pattern

    pattern=$(names | paste -sd'|')
    [ -n "$pattern" ] || { echo "test_names: no ops found" && return 1; }
    shopt -s globstar nullglob
    sources=({io,models,tables,engine,apps}/**/*.[ch])
    ! grep -nE "(strn?cmp|g_strcmp0|g_str_equal|strcasecmp)\([^;]*\"($pattern)\"" "${sources[@]}"
}

# The check must be able to fail.
check_itself()
{
    local scratch bad=0

    scratch=$(mktemp -d)
    mkdir -p "$scratch"/{models,tables}
    printf 'const RubatoModelOps a_ops = {\n    .name = "fast",\n};\n' >"$scratch/models/a.c"
    echo 'x = strcmp(name, "slow") == 0;' >"$scratch/tables/b.c"
    (cd "$scratch" && check_names >/dev/null) || { echo "refused: no name of ours" && bad=1; }
    echo 'x = strcmp(spec->model, "fast") == 0;' >"$scratch/tables/b.c"
    (cd "$scratch" && check_names >/dev/null) && echo "missed: a name" && bad=1
    rm -rf "$scratch"
    return $bad
}

check_itself
check_names || { echo "test_names: the lines above ask for a name; their ops should say it" && exit 1; }
echo "test_names: nobody asks for a name"
