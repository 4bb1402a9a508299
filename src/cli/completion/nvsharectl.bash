# SPDX-License-Identifier: Apache-2.0
# Completion for bash; nvsharectl itself knows the words.
_nvsharectl() {
	mapfile -t COMPREPLY < <(compgen -W "$(nvsharectl --complete "${COMP_WORDS[@]:1:COMP_CWORD-1}" 2>/dev/null)" \
		-- "${COMP_WORDS[COMP_CWORD]}")
}
complete -F _nvsharectl nvsharectl
