# A machine of its own for a test: systemd as the first process, in namespaces, over this machine's files, which it can read and not change.
# $1: the node's folder, which both see; $2: folder of the built binary. The groups of the node are made before, and this shell is in them.
set -e
folder=$1 binaries=$2 root=$1/root
mkdir -p "$folder/layer" "$root"
mount -t tmpfs -o mode=755 layer "$folder/layer"
mkdir "$folder/layer/upper" "$folder/layer/work"
mount -t overlay -o "lowerdir=/,upperdir=$folder/layer/upper,workdir=$folder/layer/work" root "$root"

mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t tmpfs -o mode=755 groups "$root/sys/fs/cgroup"
for name in cpu cpuacct cpuset memory devices freezer blkio pids; do
  mkdir "$root/sys/fs/cgroup/$name"
  mount -t cgroup -o "$name" cgroup "$root/sys/fs/cgroup/$name"
done
mkdir "$root/sys/fs/cgroup/systemd"
mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd"

mount -t tmpfs -o mode=755 run "$root/run"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
mount -t tmpfs -o mode=755 dev "$root/dev"
for name in null zero full random urandom tty fuse kmsg; do
  test -e "/dev/$name" || continue
  touch "$root/dev/$name"
  mount --bind "/dev/$name" "$root/dev/$name"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mount -t tmpfs shm "$root/dev/shm"
touch "$root/dev/console" "$folder/console"
mount --bind "$folder/console" "$root/dev/console"

for shared in "$folder" "$binaries"; do
  mkdir -p "$root$shared"
  mount --bind "$shared" "$root$shared"
done

# Units of this machine are left out, and those that would change its kernel, which the node shares.
units=$root/etc/systemd/system
mount -t tmpfs -o mode=755 units "$units"
cp -r "$folder/units/." "$units"
for name in systemd-sysctl.service systemd-remount-fs.service systemd-modules-load.service systemd-binfmt.service \
  systemd-random-seed.service systemd-sysusers.service systemd-udevd.service systemd-udev-trigger.service \
  systemd-timesyncd.service systemd-networkd.service systemd-resolved.service sys-kernel-debug.mount \
  sys-kernel-tracing.mount sys-kernel-config.mount sys-fs-fuse-connections.mount proc-sys-fs-binfmt_misc.mount \
  proc-sys-fs-binfmt_misc.automount dev-hugepages.mount; do
  ln -s /dev/null "$units/$name"
done
: > "$root/etc/fstab"
hostname node-of-systemd
cd "$root"
mkdir -p mnt/before
pivot_root . mnt/before
umount -l /mnt/before
exec env -i container=lxc PATH="$PATH" /lib/systemd/systemd systemd.unified_cgroup_hierarchy=0 --log-target=console \
  < /dev/null > /dev/console 2>&1
