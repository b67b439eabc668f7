# SPDX-License-Identifier: Apache-2.0
# bash completion of tide; source it, or install it as .../bash-completion/completions/tide

_tide_jobs()
{
    tide ps --names 2>/dev/null
}

_tide_policies()
{
    tide policy list 2>/dev/null | sed -n 's/^[* ] \([a-z-]*\)  *.*/\1/p'
}

_tide_waiting()
{
    tide queue --quiet 2>/dev/null
}

# $1: options beyond those of `tide run`.
_tide_run()
{
    local i
    # Behind the options begins another command line.
    for ((i = 2; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --) ((i++)); break ;;
        --name | -n | --min | --max | --threads | --weight | --placement) ((i++)) ;;
        --priority | --class | --request | --memory | --deadline | --output | -o) ((i++)) ;;
        -*) ;;
        *) break ;;
        esac
    done
    if ((i < COMP_CWORD)) || [[ ${COMP_WORDS[i - 1]} == -- ]]; then
        if declare -F _command_offset >/dev/null; then
            _command_offset "$i"
        elif ((i == COMP_CWORD)); then
            COMPREPLY=($(compgen -c -- "$cur"))
        else
            COMPREPLY=($(compgen -f -- "$cur"))
        fi
        return
    fi
    case $prev in
    --placement) COMPREPLY=($(compgen -W "shared exclusive quota" -- "$cur")) ;;
    --name | -n | --min | --max | --threads | --weight) ;;
    --priority | --class | --request | --memory | --deadline) ;;
    --output | -o) COMPREPLY=($(compgen -f -- "$cur")) ;;
    *)
        if [[ $cur == -* ]]; then
            COMPREPLY=($(compgen -W "--name --min --max --threads --weight --placement --priority \
                --class --request --memory --deadline $1 --help --" -- "$cur"))
        else
            COMPREPLY=($(compgen -c -- "$cur"))
        fi
        ;;
    esac
}

_tide_containers()
{
    docker ps --format '{{.Names}}' 2>/dev/null
}

# Docker's own completion knows the rest of the options.
_tide_docker()
{
    case $prev in
    --placement) COMPREPLY=($(compgen -W "shared exclusive quota" -- "$cur")); return ;;
    --min | --max | --weight | --priority | --class | --request | --deadline) return ;;
    esac
    if ((COMP_CWORD == 2)); then
        COMPREPLY=($(compgen -W "run create --help" -- "$cur"))
    elif [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "--min --max --weight --placement --priority --class --request \
            --deadline --name --help" -- "$cur"))
    else
        COMPREPLY=($(compgen -W "$(docker image ls --format '{{.Repository}}' 2>/dev/null)" -- \
            "$cur"))
    fi
}

_tide()
{
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
    local command=${COMP_WORDS[1]} words=
    local commands="run pin unpin adopt submit queue cancel hold release docker ps set top explain history events
        policy setup sim record signal doctor version help"

    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        words="$commands --help --version"
    else
        case $command in
        run) _tide_run; return ;;
        submit) _tide_run "--hold --patience --output --wait --quiet"; return ;;
        queue) words="--all --json --quiet --help" ;;
        cancel) words="$(_tide_jobs) --all --help" ;;
        hold | release) words="$(_tide_waiting) --help" ;;
        docker) _tide_docker; return ;;
        pin)
            case $prev in
            --cores | --threads) return ;;
            esac
            words="$(_tide_jobs) --cores --threads --help"
            ;;
        unpin) words="$(_tide_jobs) --help" ;;
        adopt)
            case $prev in
            --min | --max | --weight | --priority | --class | --request | --memory | --deadline) return ;;
            --placement) words="shared exclusive quota" ;;
            --undo) words=$(_tide_jobs) ;;
            *) words="$(_tide_containers) --min --max --weight --priority --class --request --memory
                --deadline --placement --undo --json --help" ;;
            esac
            ;;
        setup)
            case $prev in
            --config | --pidfile | --socket) COMPREPLY=($(compgen -f -- "$cur")); return ;;
            --plugins) COMPREPLY=($(compgen -d -- "$cur")); return ;;
            esac
            words="docker --undo --user --config --pidfile --socket --plugins --help"
            ;;
        ps) words="--json --quiet --names --verbose --help" ;;
        set)
            case $prev in
            --threads | --intra | --inter | --min | --max | --weight | --wait | -w) return ;;
            --priority | --class | --request | --memory | --deadline) return ;;
            esac
            if ((COMP_CWORD == 2)); then
                words=$(_tide_jobs)
            else
                words="--threads --intra --inter --auto --min --max --weight --priority --class
                    --request --memory --deadline --wait --json --help"
            fi
            ;;
        explain)
            ((COMP_CWORD == 2)) && words=$(_tide_jobs) || words="--json --help" ;;
        history)
            case $prev in
            --since | -s | --lines | -n) return ;;
            esac
            words="$(_tide_jobs) --since --lines --json --help"
            ;;
        events)
            case $prev in
            --since | -s) return ;;
            --type | -t)
                COMPREPLY=($(compgen -W "job-added job-changed job-ended policy-changed" -- "$cur"))
                return
                ;;
            esac
            words="$(_tide_jobs) --follow --since --type --json --help"
            ;;
        signal)
            ((COMP_CWORD == 2)) && words=$(_tide_jobs) ;;
        policy)
            case $COMP_CWORD-$prev in
            2-*) words="list show set --json --help" ;;
            3-show | 3-set) words=$(_tide_policies) ;;
            *) words="--json --help" ;;
            esac
            ;;
        help) words=$commands ;;
        sim)
            case $prev in
            --seeds | --jobs) return ;;
            --policy | -p) COMPREPLY=($(compgen -W "none $(_tide_policies)" -- "$cur")); return ;;
            --placement) COMPREPLY=($(compgen -W "shared exclusive quota" -- "$cur")); return ;;
            esac
            if [[ $cur != -* || $prev == --csv || $prev == --gantt || $prev == --html ]]; then
                COMPREPLY=($(compgen -f -- "$cur"))
                return
            fi
            words="--policy --seeds --placement --jobs --all --json --csv --gantt --html --check
                --help"
            ;;
        record)
            case $prev in
            --for) return ;;
            -o | --output) COMPREPLY=($(compgen -f -- "$cur")); return ;;
            esac
            words="--output --for --help"
            ;;
        doctor)
            words="$(ps -o pid= -u "$(id -u)" 2>/dev/null) --json --help" ;;
        top | version) words="--help" ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}

complete -F _tide tide
