/* script.c - completion scripts for shells */
#include "cli/pages/pages.h"

#include <stddef.h>
#include <string.h>

/* `muster complete -- WORD...` prints a candidate a line, with a tab and its meaning
 * behind; ":files" stands for the files of the shell. What ends with a slash goes on. */

static const char bash[] =
    "# bash completion for muster\n"
    "_muster() {\n"
    "    local word cur line words=()\n"
    "    for word in \"${COMP_WORDS[@]:1:COMP_CWORD}\"; do\n"
    "        # '=' is a word of its own here, but not for the program\n"
    "        if [[ ${#words[@]} -gt 0 &&\n"
    "            ($word == '=' || ${words[-1]} == --*=) ]]; then\n"
    "            words[-1]+=$word\n"
    "        else\n"
    "            words+=(\"$word\")\n"
    "        fi\n"
    "    done\n"
    "    cur=${words[-1]}\n"
    "    COMPREPLY=()\n"
    "    while IFS= read -r line; do\n"
    "        if [[ $line == :files ]]; then\n"
    "            compopt -o filenames 2>/dev/null\n"
    "            mapfile -t COMPREPLY < <(compgen -f -- \"${cur#--*=}\")\n"
    "            return\n"
    "        fi\n"
    "        line=${line%%$'\\t'*}\n"
    "        [[ $cur == --*=* ]] && line=${line#*=}\n"
    "        COMPREPLY+=(\"$line\")\n"
    "    done < <(\"${COMP_WORDS[0]}\" complete -- \"${words[@]}\" 2>/dev/null)\n"
    "    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == */ ]]; then\n"
    "        compopt -o nospace 2>/dev/null\n"
    "    fi\n"
    "}\n"
    "complete -F _muster muster\n";

static const char zsh[] =
    "#compdef muster\n"
    "_muster() {\n"
    "    local line name\n"
    "    local -a described open\n"
    "    for line in \"${(@f)$($words[1] complete -- \"${(@)words[2,CURRENT]}\" "
    "2>/dev/null)}\"; do\n"
    "        if [[ $line == :files ]]; then\n"
    "            _files\n"
    "            return\n"
    "        fi\n"
    "        name=${line%%$'\\t'*}\n"
    "        if [[ $name == */ ]]; then\n"
    "            open+=(\"$name\")\n"
    "        elif [[ -n $name ]]; then\n"
    "            described+=(\"${name//:/\\\\:}:${line#*$'\\t'}\")\n"
    "        fi\n"
    "    done\n"
    "    (( $#open )) && compadd -S '' -- $open\n"
    "    (( $#described )) && _describe muster described\n"
    "}\n"
    "_muster \"$@\"\n";

static const char fish[] =
    "# fish completion for muster\n"
    "function __muster_complete\n"
    "    set -l words (commandline -opc) (commandline -ct)\n"
    "    set -l found (command $words[1] complete -- $words[2..-1] 2>/dev/null)\n"
    "    if test \"$found[1]\" = ':files'\n"
    "        __fish_complete_path (commandline -ct)\n"
    "    else if set -q found[1]\n"
    "        printf '%s\\n' $found\n"
    "    end\n"
    "end\n"
    "complete -c muster -f -a '(__muster_complete)'\n";

const char *ms_page_script(const char *shell)
{
    static const struct {
        const char *shell, *text;
    } scripts[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};

    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++)
        if (strcmp(scripts[i].shell, shell) == 0)
            return scripts[i].text;
    return NULL;
}
