# shellcheck shell=bash
# What deploy/run and deploy/test share: steps with a log, Debian packages, and the virtual
# environment. Sourced, never run; the caller has set `set -euo pipefail`.

CHECKOUT=$(cd -- "${BASH_SOURCE[0]%/*}/.." && pwd -P)
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
  "$@" >>"$LOG" 2>&1 </dev/null 9>&- || status=$?
  took=$((($(_now_us) - began) / 100000))
  if ((status == 0)); then
    printf '%3d.%d s\n' $((took / 10)) $((took % 10))
  else
    printf 'FAILED after %d.%d s\n' $((took / 10)) $((took % 10))
  fi
  return "$status"
}

show_log() { # LINES: the last of what the last attempt wrote; a name in it may hold anything
  # shellcheck disable=SC2016 # the dollar is sed's last line
  sed -n '/^=== /{h;d};H;${x;p}' -- "$LOG" | tail -n "$1" | cat -v | sed 's/^/    | /' >&2
}

step() { # TITLE FIX COMMAND...: as attempt, and the end of everything when it fails
  local title=$1 fix=$2 status=0
  shift 2
  attempt "$title" "$@" || status=$?
  ((status == 0)) && return
  show_log 15
  die "$title: exit status $status; all of it is in $LOG" "$fix"
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
    apt_install "gpud is written in Python" python3 python3-venv >&2 || true
  fi
  _find_python || die "no Python 3.11 or newer (python3.14 ... python3.11, python3)" \
    "install one with its venv module, then run this again"
}

_stamp() { # FILE...: what an environment made from these files depends on
  local version
  version=$("$VENV/bin/python" -I -c 'import sys; print(sys.version)' 2>/dev/null) || return 1
  {
    printf '%s\n%s\n' "$CHECKOUT" "$version"
    sed '/^\[tool\./,$d' "$CHECKOUT/pyproject.toml"
    cat -- "$@"
  } | sha256sum | cut -d' ' -f1
}

_is_fresh() { # STAMPFILE FILE...
  local stamp=$1 wanted
  shift
  [[ -r $stamp ]] && wanted=$(_stamp "$@") && [[ $(<"$stamp") == "$wanted" ]]
}

_write_stamp() { # STAMPFILE FILE...: last of all, so that half a set-up is never taken for one
  local stamp=$1 text
  shift
  text=$(_stamp "$@")
  as_owner tee -- "$stamp.new" <<<"$text" >/dev/null
  as_owner mv -f -- "$stamp.new" "$stamp"
}

_pip() {
  as_owner "$VENV/bin/python" -I -m pip --disable-pip-version-check --no-input "$@"
}

_install_requirements() { # FILE
  step "Python packages of deploy/${1##*/}" \
    "check that the network reaches the package index, then run this again" \
    _pip install --no-compile --require-hashes --only-binary :all: -r "$1"
  # On all processors, which pip does not use; some packages carry files that do not compile.
  as_owner "$VENV/bin/python" -I -m compileall -q -j 0 "$VENV/lib" >>"$LOG" 2>&1 || true
}

open_log() { # one set-up at a time: a second one waits for the first and finds its work done
  if ! as_owner mkdir -p -- "$HOME_TREE" || ! as_owner touch -- "$LOG" "$HOME_TREE/setup.lock"; then
    die "cannot write to $HOME_TREE" "run as the owner of the checkout, or clone one of your own"
  fi
  exec 9<"$HOME_TREE/setup.lock"
  flock -n 9 || { say "another set-up of this checkout is running; waiting for it"; flock 9; }
}

close_log() { exec 9<&-; }

setup_venv() { # .venv with what deploy/requirements.txt lists and gpud itself
  local requirements=$CHECKOUT/deploy/requirements.txt stamp=$VENV/.gpud-setup python version
  if ! _is_fresh "$stamp" "$requirements"; then
    : >"$LOG"
    python=$(_python)
    version=$("$python" -I -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    say "Setting up $VENV with $python ($version); nothing outside the checkout changes"
    say "unless a line says so. Details: $LOG"
    if ! "$python" -I -c 'import ensurepip, venv' 2>/dev/null; then
      apt_install "python3 comes without the modules that make a virtual environment" \
        "python$version-venv" \
        || die "$python cannot make a virtual environment" "install python$version-venv"
    fi
    step "remove what was there" "remove $VENV as root" as_owner rm -rf -- "$VENV"
    step "virtual environment" "the lines above say what is missing" \
      as_owner "$python" -I -m venv "$VENV"
    _install_requirements "$requirements"
    step "gpud itself" "the lines above say what is wrong" \
      _pip install --no-deps --no-build-isolation --no-index -e "$CHECKOUT"
    _write_stamp "$stamp" "$requirements"
  fi
  # Every time: quick when nothing changed, and root then finds nothing to write in the checkout.
  as_owner "$VENV/bin/python" -I -m compileall -q "$CHECKOUT/gpud" >>"$LOG" 2>&1 \
    || warn "some files of gpud/ do not compile; see $LOG"
}

setup_dev() { # on top of setup_venv: what deploy/requirements-dev.txt lists
  local requirements=$CHECKOUT/deploy/requirements-dev.txt stamp=$VENV/.gpud-setup-dev
  _is_fresh "$stamp" "$requirements" && return
  _install_requirements "$requirements"
  _write_stamp "$stamp" "$requirements"
}

docker_is_here() {
  command -v dockerd >/dev/null || [[ -S /var/run/docker.sock || -d /mnt/wsl/docker-desktop ]]
}
