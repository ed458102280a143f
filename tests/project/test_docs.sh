#!/bin/bash
# Runs every command and every program of README.md and docs/, and holds the reference to the
# headers, the cluster file's keys and the programs' flags. docs/README.md tells what a block's
# opening fence means here. Takes pages as arguments; without, all of them and the reference.
#
# Works with an installed copy of the build, in a scratch directory: what a reader has. Ports 41nn
# of the pages' cluster files become free ones, and are 41nn again in what comes out.
set -uo pipefail # so no pipe ends in grep -q: it leaves at its first match, and the writer fails

source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build_dir=${RUBATO_BUILD_DIR:?is the build directory whose programs the pages run}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
support=$source_dir/tests/support
patience=600 # seconds for a command that hangs
n_checked=0
failures=0

fail() # where, what, and maybe a file to show
{
    failures=$((failures + 1))
    echo "test_docs: $1: $2"
    if [ $# -gt 2 ]; then
        sed 's/^/    | /' "$3"
    fi
}

# ---- ports ----

port_is_free()
{
    ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

# Whether a page has a number that begins with $1 and two digits more, which unmap_ports would take
# for a port.
is_in_a_page()
{
    grep -rqE "\b$1[0-9][0-9]\b" "$source_dir/README.md" "$source_dir/docs" --include='*.md'
}

# A number nn such that the ports nn00 to nn19 are free.
find_ports()
{
    local start=$((RANDOM % 56)) i port

    for ((i = 0; i < 56; i++)); do
        ports=$((42 + (start + i) % 56)) # four digits, as 41nn: tables keep their widths
        is_in_a_page "$ports" && continue
        for ((port = ports * 100; port < ports * 100 + 20; port++)); do
            port_is_free "$port" || continue 2
        done
        return
    done
    echo "test_docs: no free ports" >&2
    exit 1
}

map_ports()
{
    sed -E "s/\b41([0-9][0-9])\b/$ports\1/g"
}

# A number that a program has computed, such as a loss of 0.6974, is no port: only those that the
# pages have are, and nothing of a number stands before them.
unmap_ports()
{
    sed -E "s/(^|[^0-9.,])$ports(${endings:=$(port_endings)})\b/\141\2/g"
}

# The last two digits of the pages' ports: "00|01|17".
port_endings()
{
    grep -rhoE '\b41[0-9][0-9]\b' "$source_dir/README.md" "$source_dir/docs" --include='*.md' |
        cut -c3- | sort -u | paste -sd'|'
}

check_ports()
{
    local ports=69 text

    text=$(unmap_ports <<<"6901: loss 0.6901 of 1,6902 at 127.0.0.1:6902, tcp://h:6900; 6999")
    [ "$text" = "4101: loss 0.6901 of 1,6902 at 127.0.0.1:4102, tcp://h:4100; 6999" ] ||
        fail "ports" "numbers were taken for ports: $text"
}

# ---- the reader's surroundings ----

check_ports
find_ports
log=$scratch/log
cmake --install "$build_dir" --prefix "$scratch/prefix" >"$log" || {
    fail "$build_dir" "cannot be installed" "$log"
    exit 1
}
prefix=$scratch/prefix
lib=$(dirname "$(find "$prefix" -name librubato.so)")
export PATH=$prefix/bin:$PATH LD_LIBRARY_PATH=$lib PKG_CONFIG_PATH=$lib/pkgconfig
export CMAKE_PREFIX_PATH=$prefix HOME=$scratch TERM=dumb LC_ALL=C.UTF-8
unset RUBATO_CLUSTER RUBATO_NODE MAKEFLAGS
warnings="-std=gnu11 -Wall -Wextra -Wconversion -Wshadow -Werror"
read -ra cflags <<<"$(pkg-config --cflags rubato) $warnings"

# ---- one block after the other ----

# Whether the output $2 is what the block $1 says, in which ... stands for anything. Sorted: in any
# order.
matches()
{
    local expected actual

    expected=$(in_order "$1" | sed -e 's/[][\\*?()|!+@]/\\&/g' -e 's/\.\.\./*/g')
    actual=$(in_order "$2")
    # shellcheck disable=SC2053 # the right side is a pattern
    [[ $actual == $expected ]]
}

in_order()
{
    if [ -n "$any_order" ]; then sort "$1"; else cat "$1"; fi
}

# The word key=… of a fence.
word_of()
{
    local word

    for word in $info; do
        case $word in "$1"=*) echo "${word#*=}" ;; esac
    done
}

has_word()
{
    [[ " $info " == *" $1 "* ]]
}

# Runs a command in the page's directory; what it says goes to $output. The processes that a block
# leaves behind when it fails end with it: they would hold ports and write into later blocks' output.
run_there()
{
    local status group

    (cd "$there" && exec timeout "$patience" "$@" </dev/null) >"$output.raw" 2>&1 &
    group=$! # timeout makes a process group of its own
    wait "$group"
    status=$?
    kill -KILL -- "-$group" 2>/dev/null
    unmap_ports <"$output.raw" >"$output"
    return $status
}

# What the page's programs wrote last, in the files to which its blocks send their logs.
show_logs()
{
    local log

    find "$there" -maxdepth 1 -type f \( -name log -o -name '*.log' \) | while read -r log; do
        echo "test_docs: the end of $(basename "$log"):"
        tail -n 30 "$log" | sed 's/^/    | /'
    done
}

check_status() # status
{
    if has_word fails; then
        [ "$1" -ne 0 ] || fail "$where" "was to fail and did not" "$output"
    elif [ "$1" -ne 0 ]; then
        fail "$where" "ended with status $1" "$output"
        show_logs
    fi
}

# The object stays. Optimised: gcc warns of more then.
compiles() # source [option…]
{
    cc "${cflags[@]}" "${@:2}" -O2 -c -o "$scratch/block.o" "$1" >"$output" 2>&1 && return
    fail "$where" "does not compile" "$output"
    return 1
}

build_program() # source program
{
    local package

    package=$(word_of libs)
    read -ra libs <<<"$(pkg-config --libs "${package:-rubato}")"
    compiles "$1" || return 1
    cc "$scratch/block.o" -o "$2" "${libs[@]}" -lm >"$output" 2>&1 ||
        { fail "$where" "cannot be linked" "$output"; return 1; }
}

check_fragment()
{
    {
        echo '#include <rubato/rubato.h>'
        echo '#include <math.h>'
        echo '#include <string.h>'
        echo 'bool fragment(RubatoEngine *engine, RubatoWorker *worker, void *user_data,'
        echo '              GError **error);'
        echo 'bool fragment(RubatoEngine *engine, RubatoWorker *worker, void *user_data,'
        echo '              GError **error)'
        echo '{'
        echo '(void)engine; (void)worker; (void)user_data; (void)error;'
        cat "$body"
        echo 'return true;'
        echo '}'
    } >"$there/fragment.c"
    compiles "$there/fragment.c" -Wno-unused-variable -Wno-unused-but-set-variable
}

# A C file without comments, preprocessor lines and RUBATO_API, a statement a line.
statements_of()
{
    sed -e '/^ *#/d' "$1" | tr '\n' ' ' |
        sed -e 's|/\*[^*]*\*\+\([^/*][^*]*\*\+\)*/| |g' -e 's/RUBATO_\(API\|PLUGIN\)//g' \
            -e 's/G_[A-Z_]*DECLS//g' -e 's/G_DEFINE_AUTO\(PTR_CLEANUP\|_CLEANUP_CLEAR\)_FUNC([^)]*)//g' |
        tr ';' '\n' | sed -e 's/[[:space:]]\+/ /g' -e 's/^ //' -e 's/ $//' -e '/^$/d'
}

check_quotation() # file
{
    local statement

    if [ ! -e "$source_dir/$1" ]; then
        fail "$where" "there is no $1"
        return
    fi
    statements_of "$source_dir/$1" >"$scratch/source"
    while IFS= read -r statement; do
        grep -qxF -- "$statement" "$scratch/source" ||
            fail "$where" "$1 has no such statement: $statement"
    done < <(statements_of "$body")
    statements_of "$body" >>"$scratch/quoted"
}

# Lines of a file, as they stand there.
check_excerpt() # file
{
    if ! [[ $(cat "$source_dir/$1") == *"$(<"$body")"* ]]; then
        fail "$where" "these lines do not stand in $1"
    fi
}

check_c()
{
    local name source status

    name=$(word_of name)
    source=$there/${name:-block.c}
    if [ -n "$(word_of from)" ]; then
        check_quotation "$(word_of from)"
    elif [ -n "$(word_of excerpt)" ]; then
        check_excerpt "$(word_of excerpt)"
    elif has_word fragment; then
        check_fragment
    else
        cp "$body" "$source"
        if ! grep -q '^int main(' "$body"; then
            compiles "$source"
            return
        fi
        build_program "$source" "$there/program" || return
        # The name of a program in its messages is its file's.
        mv "$there/program" "$there/$(basename "$source" .c)"
        run_there "./$(basename "$source" .c)"
        status=$?
        check_status $status
        has_output=1
    fi
}

# Commands that take long or need more than a test may ask for: each is there and can say what it
# does, each preset and package exists.
check_long_command() # words…
{
    case $1 in
    apps/* | tests/* | config/*)
        "$source_dir/$1" --help >"$output" 2>&1 </dev/null ||
            fail "$where" "$1 --help ended with status $?" "$output"
        ;;
    cmake | ctest)
        local preset

        while [ $# -gt 0 ]; do
            if [ "$1" = --preset ]; then
                preset=$2
                grep -q "\"$preset\"" < <(cd "$source_dir" && cmake --list-presets) ||
                    fail "$where" "there is no preset $preset"
            fi
            shift
        done
        ;;
    build/*/bin/*)
        [ -x "$build_dir/bin/${1##*/}" ] || fail "$where" "there is no program $1"
        ;;
    git | cd | ssh | rsync) ;;
    *) command -v "$1" >/dev/null || fail "$where" "there is no command $1" ;;
    esac
}

check_sh()
{
    local line words

    bash -n "$body" 2>"$output" || fail "$where" "is no shell script" "$output"
    if has_word long; then
        while read -r line; do
            case $line in '' | '#'*) continue ;; esac
            for line in "${line%% && *}" "${line#* && }"; do
                read -ra words <<<"$line"
                check_long_command "${words[@]}"
            done
        done <"$body"
        return
    fi
    map_ports <"$body" >"$there/.block.sh"
    run_there bash -eu .block.sh
    check_status $?
    has_output=1
}

check_cfg()
{
    local name

    name=$(word_of name)
    map_ports <"$body" >"$there/${name:=cluster.cfg}"
    run_there rubato check "$name"
    check_status $?
    has_output=1
}

check_output()
{
    local any_order=

    has_word any-order && any_order=yes
    if [ -z "$has_output" ]; then
        fail "$where" "expects the output of nothing"
    elif ! matches "$body" "$output"; then
        cp "$output" "$scratch/shown"
        fail "$where" "this came out instead" "$scratch/shown"
    fi
    has_output=
}

check_block()
{
    case $language in
    c) check_c ;;
    sh) check_sh ;;
    cfg) check_cfg ;;
    text | json)
        if [ -n "$(word_of name)" ]; then
            cp "$body" "$there/$(word_of name)"
        elif ! has_word figure; then
            check_output
        fi
        ;;
    cmake) cp "$body" "$there/$(word_of name)" ;;
    *) fail "$where" "what is a block \"$language\"? docs/README.md tells which there are" ;;
    esac
}

check_page() # relative to the root
{
    local page=$1 blocks info body where language line
    local there output has_output=

    there=$(mktemp -d "$scratch/page.XXXXXX")
    output=$scratch/output
    blocks=$(mktemp -d "$scratch/blocks.XXXXXX")
    mkdir "$there/config"
    for file in "$source_dir"/config/*.cfg; do
        map_ports <"$file" >"$there/config/${file##*/}"
    done
    awk -v dir="$blocks" -f "$support/doc_blocks.awk" "$source_dir/$page" 2>"$log" ||
        fail "$page" "cannot be cut" "$log"
    for info in "$blocks"/*.info; do
        [ -e "$info" ] || continue # no blocks
        body=${info%.info}.body
        read -r line language info <"$info"
        where=$page:$line
        n_checked=$((n_checked + 1))
        check_block
    done
}

# ---- links ----

# The anchors of a page's headings, as the usual viewers make them.
anchors_of()
{
    # shellcheck disable=SC2016 # backquotes
    sed -n '/^```/,/^```/d; s/^##* //p' "$1" | tr '[:upper:]' '[:lower:]' |
        sed -e 's/[^[:alnum:]_ -]//g' -e 's/ /-/g'
}

check_links() # page
{
    local page=$1 link target anchor

    # shellcheck disable=SC2016 # backquotes
    while read -r link; do
        case $link in http:* | https:*) continue ;; esac
        target=${link%%#*}
        anchor=
        [[ $link == *#* ]] && anchor=${link#*#}
        if [ -n "$target" ]; then
            target=$(dirname "$page")/$target
        else
            target=$page
        fi
        if [ ! -e "$source_dir/$target" ]; then
            fail "$page" "links to $link, which is not there"
        elif [ -n "$anchor" ] && ! grep -qxF -- "$anchor" < <(anchors_of "$source_dir/$target"); then
            fail "$page" "links to $link, but there is no such heading"
        fi
    done < <(sed '/^ *```/,/^ *```/d' "$source_dir/$page" | grep -o '](\([^) ]*\))' |
        sed -e 's/^](//' -e 's/)$//')
}

# Functions that a page calls are there.
check_functions() # page
{
    local name

    while read -r name; do
        grep -qxF -- "$name" "$scratch/functions" ||
            fail "$1" "speaks of $name(), which no header has"
    done < <(grep -o 'rubato_[a-z0-9_]*(' "$source_dir/$1" | tr -d '(' | sort -u)
}

# ---- the reference ----

check_reference()
{
    local header statement name key program page where keys

    cat "$source_dir"/docs/reference/*.md >"$scratch/reference"
    for header in "$source_dir"/include/rubato/*.h; do
        # Macros and the bodies of functions are described, not quoted.
        [[ $header == */update_loops.h ]] || while IFS= read -r statement; do
            grep -qxF -- "$statement" "$scratch/quoted" ||
                fail docs/reference "does not quote from ${header##*/}: $statement"
        done < <(statements_of "$header")
        while read -r name; do
            grep -q "\b$name\b" "$scratch/reference" ||
                fail docs/reference "does not speak of $name (${header##*/})"
        done < <(grep -o '\bRUBATO_[A-Z0-9_]*' "$header" | sort -u |
            grep -v -e '_H$' -e '^RUBATO_[_A-Z]*_$')
    done

    keys=$(sed -n '/^static const char \*const [A-Z]*_KEYS\[\]/,/;/p' \
        "$source_dir/engine/cluster/cluster_file.c" | grep -o '"[a-z_]*"' | tr -d '"' | sort -u)
    [ -n "$keys" ] || fail engine/cluster/cluster_file.c "has no keys"
    for key in $keys; do
        grep -q "\`$key\`" "$source_dir/docs/reference/cluster-file.md" ||
            fail docs/reference/cluster-file.md "does not speak of the key $key"
    done

    for program in "$prefix"/bin/*; do
        name=$(basename "$program")
        where=docs/reference/programs.md
        page=$source_dir/docs/man/$name.1
        [ -e "$page" ] || {
            fail "docs/man/$name.1" "is not there"
            continue
        }
        awk 'length > 100 { exit 1 }' < <(LC_ALL=C "$program" --help) ||
            fail "$name --help" "has lines of more than 100 columns"
        grep -q "^## $name\$" "$source_dir/$where" || fail "$where" "has no heading for $name"
        while read -r key; do
            # A flag of one program may be one of another too: look below the right heading.
            grep -q -- "\`${key}[ \`]" < <(awk -v heading="## $name" \
                '/^## / { here = $0 == heading || /^## Flags that/ } here' "$source_dir/$where") ||
                fail "$where" "does not speak of $key of $name"
            grep -q -- "Fl -${key#--}\b" < <(sed 's/\\-/-/g' "$page") ||
                fail "docs/man/$name.1" "does not speak of $key"
        done < <({
            "$program" --help
            if [ "$name" = rubato ]; then
                "$program" run --help
                "$program" check --help
            fi
        } | sed -n 's/^  \(-., \)\{0,1\}\(--[a-z0-9-]*\).*/\2/p' | sort -u)
    done
}

# What the sources and programs say of pages.
check_mentions()
{
    local file page

    while IFS=: read -r file page; do
        [ -e "$source_dir/$page" ] || fail "${file#"$source_dir"/}" "sends the reader to $page"
    done < <(grep -roE 'docs/[a-z_/-]*\.md' "$source_dir"/{include,apps,config,engine,models,tables,io,CONTRIBUTING.md})
}

# CONTRIBUTING.md's map: what it sends to is there. A path without a folder is in the folder of the
# path before it in its row; NAME is any name.
check_map()
{
    local map=$source_dir/CONTRIBUTING.md row path folder rows=0

    while read -r row; do
        rows=$((rows + 1))
        folder=
        # shellcheck disable=SC2016 # the quotes are Markdown's
        while read -r path; do
            path=${path%/}
            if compgen -G "$source_dir/${path//NAME/*}" >/dev/null; then
                [[ $path == */* ]] && folder=${path%/*}/
            elif [ -z "$folder" ] || ! compgen -G "$source_dir/$folder$path" >/dev/null; then
                fail CONTRIBUTING.md "sends the reader to $path, which is not there"
            fi
        done < <(cut -d'|' -f2- <<<"$row" |
            grep -oE '`[A-Za-z0-9_.*/-]+(/|\.[a-z]+|[*])`|`config/packages`' | tr -d '`')
        while read -r path; do
            [ -e "$source_dir/$path" ] || fail CONTRIBUTING.md "sends the reader to $path, which is not there"
        done < <(grep -oE '\]\([^)#]+' <<<"$row" | cut -c3-)
    done < <(sed -n '/^### To change/,/^## /s/^| \(.*\)/\1/p' "$map" | tail -n +2)
    [ $rows -ge 30 ] || fail CONTRIBUTING.md "has a map of $rows rows, which should be 30 at least"
}

check_figures()
{
    local figure

    bash "$source_dir/docs/figures/draw" "$scratch/figures" || fail docs/figures/draw "failed"
    for figure in "$source_dir"/docs/figures/*.svg; do
        cmp -s "$figure" "$scratch/figures/${figure##*/}" ||
            fail "docs/figures/${figure##*/}" "is not what docs/figures/draw draws"
    done
}

check_man_pages()
{
    local page

    command -v mandoc >/dev/null || return
    for page in "$source_dir"/docs/man/*.[15]; do
        [ -e "$page" ] || continue
        mandoc -T lint -W warning "$page" >"$log" 2>&1 || fail "${page#"$source_dir"/}" "mandoc" "$log"
        # Quotes with nothing in them: mdoc took a bracket for punctuation.
        if mandoc -T utf8 "$page" | grep -F $'\u2018\u2019' >"$log"; then
            fail "${page#"$source_dir"/}" "quotes without anything in them" "$log"
        fi
    done
}

: >"$scratch/quoted"
for header in "$source_dir"/include/rubato/*.h; do
    statements_of "$header"
done | grep -o 'rubato_[a-z0-9_]*(' | tr -d '(' | sort -u >"$scratch/functions"

if [ $# -gt 0 ]; then
    pages=("$@")
else
    mapfile -t pages < <(cd "$source_dir" && ls README.md && find docs -name '*.md' | sort)
fi
for page in "${pages[@]}"; do
    check_page "$page"
    check_links "$page"
    check_functions "$page"
done
if [ $# -eq 0 ]; then
    check_reference
    check_mentions
    check_map
    check_figures
    check_man_pages
fi
echo "test_docs: $n_checked blocks of ${#pages[@]} pages, $failures failures"
[ $failures -eq 0 ]
