//! The containers' mount namespace, made and entered from a thread that plays the machine: `/` is shared, as under
//! systemd.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, setns, unshare};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use node_sys::exec::Daemon;
use node_sys::mount::{LinuxMounter, Mounter};
use node_sys::mount_flags::MountFlags;
use node_sys::mount_namespace::enter;
use node_sys::supervise::Supervised;

const OWN: &str = "/proc/thread-self/ns/mnt";

/// Runs a closure in a mount namespace that stands for the machine's.
fn on_a_machine(work: impl FnOnce(&File, &Path) + Send) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    std::thread::scope(|scope| {
        let machine = || {
            // A namespace made later is younger for the kernel only when one processor made both.
            let mut one = CpuSet::new();
            one.set(0).unwrap();
            sched_setaffinity(Pid::from_raw(0), &one).unwrap();
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            for flags in [MsFlags::MS_PRIVATE, MsFlags::MS_SHARED] {
                mount(
                    None::<&str>,
                    "/",
                    None::<&str>,
                    MsFlags::MS_REC | flags,
                    None::<&str>,
                )
                .unwrap();
            }
            work(&File::open(OWN).unwrap(), &path);
        };
        scope.spawn(machine).join().unwrap();
    });
}

fn tmpfs(at: &Path) {
    std::fs::create_dir_all(at).unwrap();
    mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
    std::fs::write(at.join("here"), "").unwrap();
}

fn go_to(namespace: &File) {
    setns(namespace, CloneFlags::CLONE_NEWNS).unwrap();
}

fn inode() -> u64 {
    std::fs::metadata(OWN).unwrap().ino()
}

#[test]
#[ignore = "needs root: makes mount namespaces"]
fn mount_namespace_is_kept_without_a_process_in_it() {
    on_a_machine(|machine, folder| {
        let keeper = folder.join("keeper");
        enter(&keeper, None).unwrap();
        let first = inode();
        assert_ne!(first, machine.metadata().unwrap().ino());
        tmpfs(&folder.join("volume"));
        go_to(machine);
        assert!(
            !folder.join("volume/here").try_exists().unwrap(),
            "what is mounted inside stays inside"
        );
        enter(&keeper, Some(std::process::id())).unwrap();
        assert_eq!(inode(), first, "entered again, whichever process is named");
        assert!(
            folder.join("volume/here").try_exists().unwrap(),
            "its mounts have stayed"
        );
    });
}

#[test]
#[ignore = "needs root: makes mount namespaces"]
fn mount_namespace_of_a_process_is_kept_from_then_on() {
    on_a_machine(|machine, folder| {
        let mut holder = sleeper_in_a_namespace_of_its_own();
        let wanted = std::fs::metadata(format!("/proc/{}/ns/mnt", holder.id()))
            .unwrap()
            .ino();
        enter(&folder.join("keeper"), Some(holder.id())).unwrap();
        holder.kill().unwrap();
        holder.wait().unwrap();
        go_to(machine);
        enter(&folder.join("keeper"), None).unwrap();
        assert_eq!(inode(), wanted);
    });
}

#[test]
#[ignore = "needs root: makes mount namespaces"]
fn mount_namespace_sees_what_the_machine_mounts_later() {
    on_a_machine(|machine, folder| {
        let keeper = folder.join("keeper");
        enter(&keeper, None).unwrap();
        go_to(machine);
        tmpfs(&folder.join("disk"));
        enter(&keeper, None).unwrap();
        assert!(folder.join("disk/here").try_exists().unwrap());
        go_to(machine);
        nix::mount::umount(&folder.join("disk")).unwrap();
        enter(&keeper, None).unwrap();
        assert!(
            !folder.join("disk/here").try_exists().unwrap(),
            "what the machine unmounts is not held"
        );
    });
}

#[expect(
    clippy::disallowed_methods,
    reason = "a process that stands for an earlier containerd"
)]
fn sleeper_in_a_namespace_of_its_own() -> std::process::Child {
    let mut command = std::process::Command::new("unshare");
    let mut child = command
        .args(["-m", "sh", "-c", "echo in; exec sleep 1000"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 2];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
    child
}

#[test]
#[ignore = "needs root: mounts a small disk"]
fn supervised_is_started_again_on_a_full_disk() {
    on_a_machine(|_, path| {
        let disk = path.join("disk");
        std::fs::create_dir(&disk).unwrap();
        let size = Some("size=64k");
        mount(Some("tmpfs"), &disk, Some("tmpfs"), MsFlags::empty(), size).unwrap();
        let mut executor = tokio::runtime::Builder::new_current_thread();
        let executor = executor.enable_all().build().unwrap();
        let _entered = executor.enter();
        let sleeper = Supervised {
            name: "sleeper",
            daemon: Daemon {
                program: "sleep".into(),
                args: vec!["1000".into()],
                env: Vec::new(),
                log: disk.join("log"),
                pid_file: disk.join("pid"),
            },
            socket: None,
        };
        let mut running = sleeper.ensure().unwrap();
        let filled = std::fs::write(disk.join("filled"), vec![1; 1 << 20]);
        assert_eq!(filled.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
        for _ in 0..3 {
            assert!(running.signal(Signal::SIGKILL));
            executor.block_on(running.ended()).unwrap();
            running = sleeper.ensure().unwrap();
            assert_eq!(sleeper.running().as_ref(), Some(&running), "it left its record");
        }
        running.signal(Signal::SIGKILL);
    });
}

#[test]
#[ignore = "needs root: makes mounts"]
fn mount_of_a_claim_receives_mounts_and_takes_none_away() {
    on_a_machine(|_, folder| {
        let (source, target) = (folder.join("source"), folder.join("pod/volume"));
        tmpfs(&source);
        tmpfs(&source.join("before"));
        std::fs::create_dir_all(&target).unwrap();
        LinuxMounter
            .bind_apart(&source, &target, MountFlags::default())
            .unwrap();
        assert_eq!(
            LinuxMounter.showing(&source).unwrap(),
            std::slice::from_ref(&target)
        );
        tmpfs(&source.join("later"));
        for name in ["before", "later"] {
            assert!(target.join(name).join("here").try_exists().unwrap(), "{name}");
        }
        let points = LinuxMounter.below(&folder.join("pod")).unwrap();
        assert_eq!(points.len(), 3);
        for point in points {
            LinuxMounter.unmount(&point).unwrap();
        }
        for name in ["before", "later"] {
            assert!(
                source.join(name).join("here").try_exists().unwrap(),
                "{name} is still the machine's"
            );
        }
    });
}

#[test]
#[ignore = "needs root: makes mounts"]
fn mount_of_a_claim_has_its_options_and_its_source_has_not() {
    on_a_machine(|_, folder| {
        let (source, target) = (folder.join("source"), folder.join("pod/volume"));
        tmpfs(&source);
        std::fs::create_dir_all(&target).unwrap();
        let flags = MountFlags::of(["ro", "noexec", "nosuid"]);
        LinuxMounter.bind_apart(&source, &target, flags).unwrap();
        let refused = std::fs::write(target.join("new"), "").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        std::fs::write(source.join("new"), "").unwrap();
        let table = std::fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
        let mut lines = table.lines();
        let line = lines.find(|line| line.contains("pod/volume")).unwrap();
        let options = line.split(' ').nth(5).unwrap();
        for option in ["ro", "noexec", "nosuid"] {
            assert!(options.split(',').any(|own| own == option), "{options}");
        }
        LinuxMounter.unmount(&target).unwrap();
    });
}
