# shellcheck shell=bash
# Where an installed gpud keeps things, for deploy/install and deploy/uninstall. Sourced after lib.sh.

# shellcheck disable=SC2034 # used by those who source this
TREE=/opt/gpud
COMMAND=/usr/local/bin/gpud
CONFIG_DIR=/etc/gpud
MANIFEST=$CONFIG_DIR/manifest # what was made, in order; root's own, unlike the state
STATE_DIR=/var/lib/gpud
LOG_DIR=/var/log/gpud
AGENTS=("$STATE_DIR" "$LOG_DIR/agent") # what user gpud writes into, and what outlives it
RULE=/etc/sudoers.d/gpud
PEOPLE=gpud-users # the group of who may ask the agent; gpud itself is the service's own
FRESH=.gpud-new # ends the name of what is not in place yet; a dot makes sudo skip such a file
BUILD=.gpud-build # beside the tree: what builds it

declare -A COMPLETION=(
  [bash]=/usr/local/share/bash-completion/completions/gpud
  [zsh]=/usr/local/share/zsh/site-functions/_gpud
  [fish]=/usr/local/share/fish/vendor_completions.d/gpud.fish
)

MANPAGE=/usr/local/share/man/man1/gpud.1

only_one() { # of install and uninstall; a file that nobody else can hold
  touch -- /run/gpud-install.lock
  chmod 600 -- /run/gpud-install.lock
  exec 8</run/gpud-install.lock
  flock -n 8 || { say "another installation is running; waiting for it"; flock 8; }
}

home_of() { getent passwd "$1" | cut -d: -f6; }

ownership() { # VERB USER [DIRECTORY...]: what ownership.py does; its words go to the terminal
  "$PYTHON" -I "$CHECKOUT/deploy/ownership.py" "$@"
}

as_user() { # LOGIN COMMAND...: what is below a home is only ever touched as its owner
  local login=$1 become=()
  shift
  # In a session of its own: what else this user runs could type into root's terminal otherwise.
  ((EUID)) || become=(setsid --wait setpriv --reuid "$login" --regid "$(id -g -- "$login")" --init-groups)
  "${become[@]}" env -i -C / PATH=/usr/local/bin:/usr/bin:/bin LC_ALL=C.UTF-8 \
    HOME="$(home_of "$login")" USER="$login" LOGNAME="$login" "$@" 8<&-
}

shown_as_user() { # LOGIN COMMAND...: with its output in characters that do nothing to a terminal
  local output status=0
  output=$(mktemp)
  as_user "$@" >"$output" 2>&1 || status=$?
  cat -v -- "$output"
  rm -f -- "$output"
  return "$status"
}

gpud_as_root() { # WORD...: nothing of the caller's shell gets there, GPUD_HOME least of all
  env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "$TREE/bin/gpud" "$@"
}

hooks_of() { # LOGIN: "SNIPPET FILE" for each shell that this user has
  local home shell
  home=$(home_of "$1")
  shell=$(getent passwd "$1" | cut -d: -f7)
  printf '%s\n' "$TREE/share/bashrc.snippet $home/.bashrc"
  [[ $shell == */zsh || -e $home/.zshrc ]] && printf '%s\n' "$TREE/share/zshrc.snippet $home/.zshrc"
  [[ $shell == */fish || -d $home/.config/fish ]] \
    && printf '%s\n' "$TREE/share/config.fish.snippet $home/.config/fish/conf.d/gpud.fish"
  return 0
}

rcfile() { # LOGIN PYTHON VERB FILE [SNIPPET]: the marked block of gpud in a file of that user
  shown_as_user "$1" "$2" -I - "${@:3}" <"$CHECKOUT/deploy/rcfile.py"
}
