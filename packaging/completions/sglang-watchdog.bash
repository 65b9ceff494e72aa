# Bash completion for sglang-watchdog. Installed as /usr/share/bash-completion/completions/sglang-watchdog.
# Made by packaging/write_completions.py; a test compares it with the program (tests/cli/test_completions.py).

_sglang_watchdog() {
    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command="" verb="" word words=""
    COMPREPLY=()

    case $before in
        --config | --output)
            mapfile -t COMPREPLY < <(compgen -f -- "$current")
            return
            ;;
        --channel)
            mapfile -t COMPREPLY < <(compgen -W "journal webhook alertmanager apprise" -- "$current")
            return
            ;;
    esac

    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case $word in
            -*) ;;
            *)
                if [[ -z $command ]]; then
                    command=$word
                elif [[ -z $verb ]]; then
                    verb=$word
                fi
                ;;
        esac
    done

    case $command in
        incident | alert | baseline) ;;
        *) verb="" ;;
    esac
    case "$command${verb:+ $verb}" in
        "") words="run setup verify wait status explain watch history pause resume acknowledge repaired check-config baseline incident alert replay standin --help --version" ;;
        "run") words="--config --help" ;;
        "setup") words="--dry-run --help --key-file --mode --name --no-server-drop-in --no-start --replace --server-drop-in --stacks --undo --unit --url --yes" ;;
        "verify") words="--config --deep --force --help --json --limit --max-time --max-tokens --server --strict --yes" ;;
        "wait") words="--config --help --json --server --timeout" ;;
        "status") words="--config --help --json --server" ;;
        "explain") words="--at --config --help --json --record --server" ;;
        "watch") words="--config --help --interval --json --server" ;;
        "history") words="--config --help --json --lines --server" ;;
        "pause") words="--config --help --json --reason --server" ;;
        "resume") words="--config --help --json --reason --server" ;;
        "acknowledge") words="--config --help --json --reason --server" ;;
        "repaired") words="--config --help --json --reason --server" ;;
        "check-config") words="--help --json" ;;
        "baseline") words="show diff learn accept --help" ;;
        "baseline show") words="--config --help --json --server" ;;
        "baseline diff") words="--config --help --json --server" ;;
        "baseline learn") words="--config --help --json --server" ;;
        "baseline accept") words="--config --help --json --server" ;;
        "incident") words="list show export --help" ;;
        "incident list") words="--config --help --json --server" ;;
        "incident show") words="--config --help --json --server" ;;
        "incident export") words="--config --help --json --output --server" ;;
        "alert") words="test --help" ;;
        "alert test") words="--channel --config --help --json" ;;
        "replay") words="--config --help --state --timeline" ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    if [[ $command == check-config || $command == replay ]] && [[ $current != -* ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
    fi
}

complete -o filenames -F _sglang_watchdog sglang-watchdog
