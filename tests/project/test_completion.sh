#!/bin/bash
# Completes words as the shells do, and compares them with the flags that --help prints: in bash by
# calling what it calls; in zsh, where it is installed, by asking a shell that has a terminal.
set -euo pipefail

source_dir=$(cd "$(dirname "$0")/../.." && pwd)
build_dir=$(cd "${RUBATO_BUILD_DIR:?is the build directory whose programs are completed}" && pwd)
bin=$build_dir/bin
export PATH=$bin:$PATH
scratch=$(mktemp)
trap 'rm -f "$scratch"' EXIT

if [ ! -e "$bin/rubato" ]; then
    echo "test_completion: skipped: this build has no programs"
    exit 77
fi

fail()
{
    echo "test_completion: $*" >&2
    exit 1
}

# shellcheck disable=SC1091
source "$source_dir/config/completion/rubato.bash"

# What bash would offer for the last of these words.
offers()
{
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    COMPREPLY=()
    if [ "$1" = rubato ]; then
        _rubato_command "$1"
    else
        _rubato_program "$1"
    fi
    echo "${COMPREPLY[*]}"
}

expect()
{
    local wanted=$1 found

    shift
    found=$(offers "$@")
    [ "$found" = "$wanted" ] || fail "bash: after '$*' it offers '$found', not '$wanted'"
}

cd "$source_dir/config"
expect "--standardize" rubato-lr --stand
expect "--header=" rubato-fm --head
expect "squared softmax" rubato-lr --loss = s
expect "adagrad adam ftrl sgd" rubato-lr --rule =
expect "sparse_ssp" rubato-softmax -m sparse
expect "allreduce" rubato-softmax --by = a
expect "pair.cfg" rubato-lr --cluster = pai
expect "scheduler server status secret" rubato s
expect "--watch" rubato status --w
expect "--secret-file" rubato drain --s
expect "--restart" rubato run --r
expect "--join" rubato run --j
expect "--measured" rubato place --m
expect "check" rubato history c
expect "merge" rubato timeline m
expect "--json" rubato check --j
expect "pair.cfg" rubato run pai
[[ " $(offers rubato run pair.cfg rubato-l) " == *" rubato-lr "* ]] || fail "bash: no programs"

for program in "$bin"/rubato-*; do
    name=${program##*/}
    complete -p "$name" >/dev/null || fail "bash: $name has no completion"
    head -1 completion/_rubato | grep -w -- "$name" >/dev/null || fail "zsh: $name has no completion"
    [[ " $(offers "$name" --) " == *" --help "* ]] || fail "bash: $name has no --help"
done

if ! command -v zsh >/dev/null; then
    echo "test_completion: bash is completed; zsh is not installed, so its cases are skipped"
    exit 0
fi
# zsh completes in a terminal only: a shell in a pseudo-terminal is sent the words and a tab. Reading
# ends when the completed word is seen; if it never comes, after half a minute.
cat >"$scratch" <<'END'
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1=; fpath=($1 \$fpath); autoload -U compinit; compinit -D; echo rea\"\"dy"
zpty -r shell seen '*ready*'
zpty -w -n shell $'rubato-lr --stand\t'
zpty -r shell seen '*--standardize*'
zpty -w -n shell $' --header=\C-u rubato chec\t'
zpty -r shell seen '*rubato check*'
zpty -d shell
END
timeout 30 zsh -f "$scratch" "$source_dir/config/completion" >/dev/null ||
    fail "zsh: rubato-lr --stand and rubato chec are not completed"
echo "test_completion: bash and zsh are completed"
