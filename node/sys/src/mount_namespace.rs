//! The mount namespace that containers are started from. It outlives every process in it: a file keeps it.
//!
//! The file is a bind mount of the namespace (nsfs), in a folder of root's on a mount that is private, for the kernel
//! keeps no namespace within itself. It ends with the boot. A process is looked for only where the file is lost, and
//! then it is one that the caller has verified.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, CpuSet, sched_getaffinity, sched_setaffinity, setns, unshare};
use nix::sys::statfs::{NSFS_MAGIC, statfs};
use nix::unistd::Pid;

const OWN: &str = "/proc/thread-self/ns/mnt";
const NONE: Option<&str> = None;

/// Moves this process into the mount namespace that a folder keeps. Where it keeps none yet, into that of `holder`, a
/// process started from there, or into a new one; and keeps it. Must be called before any thread is started.
pub fn enter(folder: &Path, holder: Option<u32>) -> std::io::Result<()> {
    let kept = folder.join("mnt");
    if is_namespace(&kept) {
        return move_into(&File::open(&kept)?);
    }
    prepare(folder, &kept)?;
    let outside = File::open(OWN)?;
    let keeping = match holder {
        Some(pid) => {
            move_into(&File::open(format!("/proc/{pid}/ns/mnt"))?)?;
            keep_own(&outside, &kept)
        }
        None => make_kept(&outside, &kept)?,
    };
    // The processes in a namespace that no file keeps still do.
    keeping.or_else(|error| {
        tracing::warn!(%error, file = %kept.display(), "the mount namespace is not kept by a file");
        Ok(())
    })
}

/// Makes a namespace and keeps it. The kernel keeps none that is older than the one outside, and since 6.18 it shows their
/// age by numbers that each processor hands out from a block of its own: on one processor after another, until it does.
/// The inner result is that of keeping the last one, in which this thread is then.
fn make_kept(outside: &File, kept: &Path) -> std::io::Result<std::io::Result<()>> {
    let this = Pid::from_raw(0);
    let allowed = sched_getaffinity(this)?;
    let mut keeping = Ok(());
    for processor in (0..CpuSet::count()).filter(|at| allowed.is_set(*at).unwrap_or(false)) {
        let mut one = CpuSet::new();
        one.set(processor)?;
        // Back outside before each attempt: the next namespace is to be made from that one.
        move_into(outside)?;
        // Where the thread cannot be bound, the namespace is made wherever it runs.
        let _ = sched_setaffinity(this, &one);
        let made = make();
        let _ = sched_setaffinity(this, &allowed);
        made?;
        keeping = keep_own(outside, kept);
        if keeping.is_ok() {
            break;
        }
    }
    Ok(keeping)
}

/// Keeps the namespace of this thread by a file of the one outside.
fn keep_own(outside: &File, kept: &Path) -> std::io::Result<()> {
    let own = File::open(OWN)?;
    move_into(outside)?;
    let keeping = keep(&own, kept);
    move_into(&own)?;
    keeping
}

fn is_namespace(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| found.filesystem_type() == NSFS_MAGIC)
}

/// Makes the folder a private mount, and the file that the namespace is to be mounted on.
fn prepare(folder: &Path, kept: &Path) -> std::io::Result<()> {
    crate::fs::make_own_folder(folder)?;
    let table = std::fs::read_to_string("/proc/thread-self/mountinfo")?;
    let folder = folder.canonicalize()?;
    if !crate::mount::mount_points_below(&table, &folder).contains(&folder) {
        mount(Some(&folder), &folder, NONE, MsFlags::MS_BIND, NONE)?;
    }
    // Always, also on a mount that was there: a shared one would propagate the namespace's file into the
    // namespace itself, which the kernel refuses.
    mount(NONE, &folder, NONE, MsFlags::MS_PRIVATE, NONE)?;
    File::create(kept)?;
    Ok(())
}

fn keep(namespace: &File, at: &Path) -> std::io::Result<()> {
    let source = PathBuf::from(format!("/proc/thread-self/fd/{}", namespace.as_raw_fd()));
    Ok(mount(Some(&source), at, NONE, MsFlags::MS_BIND, NONE)?)
}

/// Enters a namespace; the working directory stays where it was, if it is there.
fn move_into(namespace: &File) -> std::io::Result<()> {
    let working_directory = std::env::current_dir();
    setns(namespace, CloneFlags::CLONE_NEWNS)?;
    if let Ok(path) = working_directory {
        let _ = std::env::set_current_dir(path);
    }
    Ok(())
}

/// Makes a namespace in which `/` is shared with what is mounted inside it later, so that `HostToContainer` and
/// `Bidirectional` mounts work. Later mounts of the machine appear in it; of mounts in it the machine's
/// own namespace sees nothing.
fn make() -> std::io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    // Slave before shared: a mount that is both receives the machine's mounts and passes its own on only
    // inside.
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_SLAVE, NONE)?;
    // A visible, empty v2 hierarchy beside v1 ("hybrid") makes crun refuse to start; absent is fine.
    let _ = umount2("/sys/fs/cgroup/unified", MntFlags::MNT_DETACH);
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_SHARED, NONE)?;
    Ok(())
}
