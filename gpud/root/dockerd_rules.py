"""Table of causes that keep dockerd from starting, matched against its last log lines in order.

A cause is something that another start cannot mend. What is not in ``RULES`` has no cause here and
is tried again with a back-off. Texts were provoked with dockerd 20.10 (tests/captures/dockerd/),
those of later versions are taken from their sources and reports; docs/dockerd.md lists the slugs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpud.root.dockerd_facts import LONGEST_DETAIL, DockerdCause, StartCondition, plain


@dataclass(frozen=True, slots=True)
class CauseRule:
    """``pattern`` is searched in each line; its group, where it has one, is the subject."""

    slug: str
    pattern: re.Pattern[str]
    fix: str
    watch: frozenset[StartCondition]


def explain(log: tuple[str, ...]) -> DockerdCause | None:
    """Find the cause in the last words of a dockerd that did not start; None: not one we know.

    Rules come first, lines second: what dockerd says last is often only a consequence (a full disk
    ends as ``timeout waiting for containerd to start``).
    """
    for rule in RULES:
        for line in reversed(log):
            match = rule.pattern.search(line)
            if match is not None:
                subject = match[1] if match.re.groups else ""
                return DockerdCause(rule.slug, plain(line), rule.fix, rule.watch, subject or "")
    return None


def binary_missing(name: str) -> DockerdCause:
    """There is no dockerd to start."""
    detail = "dockerd is not installed"
    fix = 'dockerd.policy = "off" if you want no Docker, else sudo apt-get install docker.io'
    if name != "dockerd":
        detail = f"dockerd.binary: there is no program {name}"
        fix = "put it there, or correct dockerd.binary in gpud.toml and restart gpud"
    return DockerdCause("binary_missing", detail, fix, frozenset({StartCondition.CONFIG}))


def socket_taken(path: str, who: str) -> DockerdCause:
    """Somebody listens on dockerd's socket and speaks something else, or nothing."""
    return DockerdCause(
        "socket_taken",
        f"{who} listens on {path} and does not answer as dockerd does",
        "end it, or give dockerd.socket another path",
        frozenset({StartCondition.PORT}),
        path,
    )


def socket_elsewhere(path: str, hosts: tuple[str, ...]) -> DockerdCause:
    """Those who configured dockerd made it listen where gpud could never ask it."""
    return DockerdCause(
        "socket_elsewhere",
        f"hosts ({', '.join(hosts)[:LONGEST_DETAIL]}) leave out unix://{path}",
        f'add "unix://{path}" to hosts, or set dockerd.socket to one of them',
        frozenset({StartCondition.CONFIG}),
    )


def containerd_unreachable(address: str) -> DockerdCause:
    """Nobody listens where dockerd would look for its containerd, for a minute, in vain."""
    return DockerdCause(
        "containerd_unreachable",
        f"nobody listens on {address}",
        _fix_of("containerd_unreachable"),
        frozenset({StartCondition.PATH}),
        address,
    )


def disk_full(path: str) -> DockerdCause:
    """A start failed without a word, and the disk has no room for one."""
    watch = frozenset({StartCondition.SPACE, StartCondition.CONFIG})
    return DockerdCause("disk_full", f"no space is left below {path}", _fix_of("disk_full"), watch)


def _fix_of(slug: str) -> str:
    return next(rule.fix for rule in RULES if rule.slug == slug)


_NETWORK = r"initializing network controller.*"
_PASSES = r"xtables lock|temporarily unavailable|resource busy"  # another's firewall work just now


def _rule(slug: str, pattern: str, fix: str, *watch: StartCondition) -> CauseRule:
    return CauseRule(slug, re.compile(pattern, re.IGNORECASE), fix, frozenset(watch))


RULES = (
    _rule(
        "disk_full",
        # inotify runs out of watches with the same words
        r"^(?!.*(?:inotify|fsnotify|watcher)).*(?:no space left on device|disk quota exceeded)",
        "free space on the disk the words name, mostly that of Docker's data-root",
        StartCondition.SPACE,
        StartCondition.CONFIG,
    ),
    _rule(
        "read_only",
        r"^(?!.*level=(?:info|warning)).*read-only file system",
        "make the disk writable again; in WSL2 a disk turns read-only after errors: "
        "wsl --shutdown, then check it",
        StartCondition.MOUNTS,
        StartCondition.CONFIG,
    ),
    _rule(
        "config_conflict",
        r"specified both as a flag and in the configuration file",
        "take the setting out of daemon.json or out of dockerd.args in gpud.toml",
        StartCondition.CONFIG,
    ),
    _rule(
        "config_missing",
        r"unable to configure the Docker daemon with file \S+: open \S+: no such file",
        "write the file that --config-file names, or take it out of dockerd.args in gpud.toml",
        StartCondition.CONFIG,
    ),
    _rule(
        "config_invalid",
        r"unable to configure the Docker daemon|configuration validation|unable to parse logging"
        r"|invalid logging level|the following directives don't match",
        "correct daemon.json: dockerd names the key or the place",
        StartCondition.CONFIG,
    ),
    _rule(
        "flag_invalid",
        r"unknown (?:shorthand )?flag|invalid argument .* flag",
        "correct dockerd.args in gpud.toml",
    ),
    _rule(
        "port_taken",
        r"listen tcp[46]? (\S+): bind: address already in use",
        "end what listens there, or choose another address in hosts or -H",
        StartCondition.PORT,
        StartCondition.CONFIG,
    ),
    _rule(
        "address_unavailable",
        r"listen tcp[46]? (\S+): bind: cannot assign requested address",
        "choose an address this machine has in hosts or -H",
        StartCondition.ADDRESSES,
        StartCondition.CONFIG,
    ),
    _rule(
        "socket_unusable",
        r"(?:can't create unix socket|listen unix) ([^\s:]+):",
        "remove what is in the place of the socket, or choose another path",
        StartCondition.PATH,
        StartCondition.CONFIG,
    ),
    _rule(
        "tls_invalid",
        r"(?:Could not load X509 key pair|could not read CA certificate|unable to validate TLS)"
        r"(?:.*\bopen (\S+):)?",
        "correct tlscacert, tlscert and tlskey, or leave TLS out",
        StartCondition.PATH,
        StartCondition.CONFIG,
    ),
    _rule(
        "pidfile_taken",
        r"ensure docker is not running or delete ([^\s:]+)",
        "stop the dockerd that the pid file names",
        StartCondition.PATH,
        StartCondition.DAEMONS,
    ),
    _rule(
        "data_root_invalid",
        r"(?:unable to get the full path to root|error creating daemon root) ?\(?([^\s:)]*)",
        "make data-root a directory",
        StartCondition.PATH,
        StartCondition.CONFIG,
    ),
    _rule(
        "data_root_in_use",
        r"waiting for response from boltdb open",
        "stop the other dockerd or containerd that uses this data-root",
        StartCondition.DAEMONS,
        StartCondition.CONFIG,
    ),
    _rule(
        "firewall_missing",
        _NETWORK + r"(?:iptables not found|(?:iptables|nft)[^/]*executable file not found)",
        "install iptables (nftables for firewall-backend nftables)",
        StartCondition.PROGRAMS,
        StartCondition.CONFIG,
    ),
    _rule(
        "firewall_refused",
        _NETWORK + rf"(?:iptables|ip6tables|nftables?|NAT chain)(?!.*(?:{_PASSES}))",
        "choose the other iptables (update-alternatives --config iptables), or a kernel with the "
        'netfilter modules; "iptables": false in daemon.json does without',
        StartCondition.FIREWALL,
        StartCondition.PROGRAMS,
        StartCondition.CONFIG,
    ),
    _rule(
        "address_pool",
        _NETWORK + r"non-overlapping IPv[46] address pool",
        'set "bip" or "default-address-pools" in daemon.json to a free range (a VPN takes most)',
        StartCondition.ADDRESSES,
        StartCondition.CONFIG,
    ),
    _rule(
        "storage_driver",
        r"error initializing graphdriver|driver not supported",
        "choose another storage-driver in daemon.json, or leave it to dockerd",
        StartCondition.CONFIG,
        StartCondition.PROGRAMS,
        StartCondition.MOUNTS,
    ),
    _rule(
        "program_missing",
        r'exec: "?([^\s":]+)"?: executable file not found',
        "install what dockerd calls (the package of dockerd brings it)",
        StartCondition.PROGRAMS,
    ),
    _rule(
        "containerd_unreachable",
        r'failed to dial "([^"]+)": (?:.*: )?context deadline exceeded',
        "start the containerd that --containerd names, or take it out",
        StartCondition.PATH,
        StartCondition.CONFIG,
    ),
    _rule(
        "cgroups_missing",
        r"cgroups?:? .*(?:isn't mounted|mountpoint does not exist|cannot find cgroup mount)",
        "mount the cgroups; in WSL2: remove [automount] cgroups from /etc/wsl.conf, then "
        "wsl --shutdown",
        StartCondition.CGROUPS,
    ),
    _rule(
        "not_permitted",
        r"needs to be started with root privileges",
        "run gpud as root, outside a user namespace",
    ),
)
