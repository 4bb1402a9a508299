#compdef nvsharectl
# SPDX-License-Identifier: Apache-2.0
# Completion for zsh; nvsharectl itself knows the words.
compadd -- ${(f)"$(nvsharectl --complete ${words[2,CURRENT-1]} 2>/dev/null)"}
