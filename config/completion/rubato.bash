# Completion in bash for Rubato's programs. Their flags are those that --help prints, so that new
# flags are completed, too; a word after the = is completed where all possible words are known.

_rubato_flags()
{
    { echo --help && "$1" --help 2>/dev/null; } | grep -oE -e '--[a-z0-9-]+=?' | sort -u
}

_rubato_words()
{
    case $1 in
    --model | -m) echo asp bsp ssp sparse_ssp ;;
    --loss) echo logistic hinge squared softmax ;;
    --init) echo plus-plus parallel ;;
    --rule) echo adagrad adam ftrl sgd ;;
    --format) echo libsvm libffm csv ratings bag_of_words text idx ;;
    --header) echo auto yes no ;;
    --checkpoint-packing | --stream-packing) echo none zstd bf16 8bit ;;
    --split) echo fixed dynamic ;;
    --cache) echo beside none ;;
    --by) echo tables allreduce ;;
    esac
}

# Bash takes "--loss=so" for three words, because = breaks words.
_rubato_program()
{
    local word=${COMP_WORDS[COMP_CWORD]} flag='' words

    if [ "$word" = = ]; then
        flag=${COMP_WORDS[COMP_CWORD - 1]} word=''
    elif [ "$COMP_CWORD" -ge 2 ] && [ "${COMP_WORDS[COMP_CWORD - 1]}" = = ]; then
        flag=${COMP_WORDS[COMP_CWORD - 2]}
    elif [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_rubato_flags "$1")" -- "$word")
        if [[ ${COMPREPLY[0]-} == *= ]]; then
            compopt -o nospace 2>/dev/null
        fi
        return
    else
        flag=${COMP_WORDS[COMP_CWORD - 1]}
    fi
    words=$(_rubato_words "$flag")
    if [ -n "$words" ]; then
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
    else
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}

_rubato_command()
{
    local word=${COMP_WORDS[COMP_CWORD]}

    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "run scheduler server worker task check place status drain history \
            timeline checkpoint follow publish secret help --version --help" -- "$word")
    elif [ "${COMP_WORDS[1]}" = history ] && [ "$COMP_CWORD" -eq 2 ]; then
        mapfile -t COMPREPLY < <(compgen -W check -- "$word")
    elif [ "${COMP_WORDS[1]}" = timeline ] && [ "$COMP_CWORD" -eq 2 ]; then
        mapfile -t COMPREPLY < <(compgen -W merge -- "$word")
    elif [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$("$1" help "${COMP_WORDS[1]}" 2>/dev/null |
            grep -oE -e '--[a-z-]+' | sort -u)" -- "$word")
    else
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        if [ "${COMP_WORDS[1]}" = run ] && [ "$COMP_CWORD" -gt 2 ]; then
            mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -c -- "$word")
        fi
    fi
}

complete -F _rubato_command rubato
complete -F _rubato_program rubato-bench rubato-conformance rubato-fm rubato-gbdt rubato-hello \
    rubato-kmeans rubato-lr rubato-mf rubato-mlp rubato-softmax rubato-wide-deep
