# shellcheck shell=bash
# What the scripts here do before there is a Python that can do it: find or install one. deploy/checkout.py
# goes on from there. Sourced, never run; the caller has set `set -euo pipefail`.

CHECKOUT=$(cd -- "${BASH_SOURCE[0]%/*}/.." && pwd -P)
# shellcheck disable=SC2034 # of those who source this
VENV=$CHECKOUT/.venv
HOME_TREE=$CHECKOUT/.gpud
LOG=$HOME_TREE/setup.log
OWNER_UID=$(stat -c %u -- "$CHECKOUT")
OWNER_GID=$(stat -c %g -- "$CHECKOUT")
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin # Debian leaves these out for everybody but root

ROOT_ALLOWED=yes # deploy/run --no-root says no
EXPLAINED=no     # the reason for asking for a password is given once
APT_UPDATED=no

trap 'exit 130' INT # a child may catch the signal and end well; without this the rest would be done

say() { printf '%s\n' "$*"; }

warn() { printf 'warning: %s\n' "$*" >&2; }

die() { # WHAT FIX
  printf 'error: %s\n  fix: %s\n' "$1" "$2" >&2
  exit 1
}

_now_us() { printf '%s' "${EPOCHREALTIME/[.,]/}"; }

attempt() { # TITLE COMMAND...: one line with the elapsed time; the output goes to the log
  local title=$1 began status=0 took
  shift
  began=$(_now_us)
  printf '  %-58s ' "$title"
  printf '\n=== %s\n$ %s\n' "$title" "$*" >>"$LOG"
  "$@" >>"$LOG" 2>&1 </dev/null || status=$?
  took=$((($(_now_us) - began) / 100000))
  if ((status == 0)); then
    printf '%3d.%d s\n' $((took / 10)) $((took % 10))
  else
    printf 'FAILED after %d.%d s\n' $((took / 10)) $((took % 10))
  fi
  return "$status"
}

as_owner() { # COMMAND...: root leaves no file of its own in somebody's checkout
  if ((EUID == 0 && OWNER_UID != 0)); then
    setpriv --reuid "$OWNER_UID" --regid "$OWNER_GID" --clear-groups \
      env HOME="$(getent passwd "$OWNER_UID" | cut -d: -f6)" "$@"
  else
    "$@"
  fi
}

have_root() {
  ((EUID == 0)) || { [[ $ROOT_ALLOWED == yes ]] && command -v sudo >/dev/null; }
}

ask_for_root() { # WHY: sudo may ask for the password here, and only after the reason is given
  ((EUID == 0)) && return
  if [[ $EXPLAINED == no ]] && ! sudo -n true 2>/dev/null; then
    say "sudo may ask for your password: $1"
  fi
  EXPLAINED=yes
  sudo -v
}

as_root() {
  if ((EUID == 0)); then "$@"; else sudo -- "$@"; fi
}

_apt_get() {
  # RUNLEVEL=1: without systemd, a package that brings a service does not start it behind gpud's back.
  as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
    apt-get -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3 "$@"
}

apt_update() {
  [[ $APT_UPDATED == no ]] || return 0
  attempt "apt-get update" _apt_get update || warn "the package lists may be old; see $LOG"
  APT_UPDATED=yes
}

apt_install() { # WHY PACKAGE...: status 1 when it did not work; says what it does beforehand
  local why=$1
  shift
  if ! command -v apt-get >/dev/null; then
    warn "this is not Debian or Ubuntu; please install what $* is called here ($why)"
    return 1
  fi
  if ! have_root; then
    warn "not root, so this is yours to do: sudo apt-get install $* ($why)"
    return 1
  fi
  say "Debian packages to install: $*"
  say "  why: $why"
  ask_for_root "apt-get installs packages as root" || return 1
  apt_update
  attempt "apt-get install $*" _apt_get install -y --no-install-recommends "$@"
}

_qualifies() { # PYTHON
  "$1" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

_find_python() {
  local name
  for name in python3.14 python3.13 python3.12 python3.11 python3; do
    if command -v "$name" >/dev/null && _qualifies "$name"; then
      command -v "$name"
      return
    fi
  done
  return 1
}

_python() { # prints the interpreter to build with; may install one first (talk goes to stderr)
  local found release=""
  found=$(_find_python) && { printf '%s' "$found"; return; }
  [[ -r /etc/os-release ]] && release=$(. /etc/os-release && printf '%s %s' "${ID:-}" "${VERSION_ID:-}")
  if [[ $release == "ubuntu 22.04" ]]; then
    die "gpud needs Python 3.11 or newer, and Ubuntu 22.04 comes with 3.10" \
      "sudo add-apt-repository universe && sudo apt-get install python3.11 python3.11-venv"
  fi
  if ! command -v python3 >/dev/null; then
    if ! as_owner mkdir -p -- "$HOME_TREE" || ! as_owner touch -- "$LOG"; then
      die "cannot write to $HOME_TREE" "run as the owner of the checkout, or clone one of your own"
    fi
    apt_install "gpud is written in Python" python3 python3-venv >&2 || true
  fi
  _find_python || die "no Python 3.11 or newer (python3.14 ... python3.11, python3)" \
    "install one with its venv module, then run this again"
}

set_up() { # OPTION...: .venv, and what deploy/checkout.py has options for
  local python
  python=$(_python)
  "$python" -I -B "$CHECKOUT/deploy/checkout.py" "$@" || exit
}
