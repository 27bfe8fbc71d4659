# shellcheck shell=bash
# Makes a tree the root of the namespaces this runs in, as WSL's init prepares a distribution, and
# becomes its process 1. Arguments: where to mount it, its overlay options, where docker keeps its
# data, and a directory with the strings of a WSL2 kernel, its age and the list of control groups to
# mount.
set -euo pipefail
root=$1 overlay=$2 docker=$3 proc=$4

mount -t overlay -o "$overlay" overlay "$root"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount --bind "$proc/version" "$root/proc/version"
mount --bind "$proc/osrelease" "$root/proc/sys/kernel/osrelease"
mount --bind "$proc/uptime" "$root/proc/uptime"

# Not the machine's own /dev: a node made there would be everybody's.
mount -t tmpfs -o mode=755 none "$root/dev"
for node in null:3 zero:5 full:7 random:8 urandom:9 dxg:3; do
  mknod -m 666 "$root/dev/${node%:*}" c 1 "${node#*:}"
done
mknod -m 666 "$root/dev/tty" c 5 0
mknod -m 600 "$root/dev/kmsg" c 1 11
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for name in stdin:0 stdout:1 stderr:2; do ln -s "/proc/self/fd/${name#*:}" "$root/dev/${name%:*}"; done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 none "$root/dev/shm"

mount -t sysfs -o nosuid,nodev,noexec sysfs "$root/sys"
mount -t tmpfs -o mode=755 none "$root/sys/fs/cgroup"
while read -r kind options place; do
  target=$root$place
  [[ $target == */cgroup ]] || mkdir "$target"
  mount -t "$kind" ${options:+-o "$options"} cgroup "$target"
done <"$proc/cgroups"

mount -t tmpfs -o mode=755 none "$root/run"
mkdir -m 777 "$root/run/lock" "$root/run/WSL"
mkdir -p "$root/var/lib/docker"
mount --bind "$docker" "$root/var/lib/docker" # an overlay cannot lie on an overlay

ip link set lo up
hostname laptop
cd "$root"
pivot_root . .
umount -l .
/sbin/ldconfig || true # on a full disk WSL warns and boots
exec /usr/bin/python3 -I -S /init
