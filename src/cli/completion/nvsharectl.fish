# SPDX-License-Identifier: Apache-2.0
# Completion for fish; nvsharectl itself knows the words.
complete -c nvsharectl -f -a '(nvsharectl --complete (commandline -opc)[2..-1] 2>/dev/null)'
