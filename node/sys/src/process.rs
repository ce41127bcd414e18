//! Recognising a process again: a pid alone may have been given to another process meanwhile.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io::{Read as _, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, RenameFlags, open, renameat, renameat2};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, UnixCredentials, connect, getsockopt, socket, sockopt,
};
use nix::sys::stat::Mode;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The kernel's name of the running boot.
static BOOT_ID: LazyLock<String> = LazyLock::new(|| {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
});
/// A pid file holds two numbers and a uuid; what is longer is not one.
const PID_FILE_BYTES_MAX: u64 = 256;

/// A pid together with when that process started (in clock ticks after boot), and the boot it was in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// The process id.
    pub pid: u32,
    /// Field 22 of `/proc/<pid>/stat`.
    pub start_time: u64,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
}

impl ProcessIdentity {
    /// The identity of a living process.
    pub fn of(pid: u32) -> std::io::Result<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let (state, start_time) =
            parse_stat(&stat).ok_or_else(|| std::io::Error::other("unreadable stat"))?;
        // A zombie keeps its pid and its stat until it is reaped; it runs no program.
        if state == 'Z' || state == 'X' {
            return Err(std::io::Error::other("the process has ended"));
        }
        Ok(Self {
            pid,
            start_time,
            boot_id: BOOT_ID.clone(),
        })
    }

    /// Reports whether it runs the very file that this process runs. `None` where that cannot be seen.
    pub fn runs_own_program(&self) -> Option<bool> {
        let file = |process: &str| {
            let file = std::fs::metadata(format!("/proc/{process}/exe")).ok()?;
            Some((file.dev(), file.ino()))
        };
        Some(file(&self.pid.to_string())? == file("self")?)
    }

    /// Reads what [`ProcessIdentity::to_text`] wrote; anything else is `None`.
    pub fn from_text(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let found = Self {
            pid: words.next()?.parse().ok()?,
            start_time: words.next()?.parse().ok()?,
            boot_id: words.next()?.to_owned(),
        };
        words.next().is_none().then_some(found)
    }

    /// One line for a pid file.
    pub fn to_text(&self) -> String {
        format!("{} {} {}\n", self.pid, self.start_time, self.boot_id)
    }

    /// The living process that a pid file names. The file of a user names none of another's: root ends processes that such files name.
    pub fn recorded(pid_file: &Path) -> Option<Self> {
        let file = crate::fs::open_regular(pid_file).ok()?;
        let owner = file.metadata().ok()?.uid();
        let mut text = Vec::new();
        file.take(PID_FILE_BYTES_MAX).read_to_end(&mut text).ok()?;
        let found = Self::from_text(std::str::from_utf8(&text).ok()?)?;
        (found.is_named_by(owner) && found.is_alive()).then_some(found)
    }

    /// Reports whether the files of a user may name it as theirs: root's any, others' those of that user alone.
    pub fn is_named_by(&self, owner: u32) -> bool {
        let own = || std::fs::metadata(format!("/proc/{}", self.pid)).ok();
        owner == 0 || own().is_some_and(|own| own.uid() == owner)
    }

    /// The process that listens on a Unix socket, where it is one of our own user. The kernel names it; what its
    /// command line says is of no account.
    pub fn listening(path: &Path) -> Option<Self> {
        let peer = peer(path).ok()?;
        let ours = peer.uid() == nix::unistd::geteuid().as_raw() && peer.pid() > 0;
        Self::of(u32::try_from(peer.pid()).ok().filter(|_| ours)?).ok()
    }

    /// Reports whether this very process still runs.
    pub fn is_alive(&self) -> bool {
        Self::of(self.pid).is_ok_and(|now| now == *self)
    }

    /// Waits until that very process has ended. Must be called within a tokio runtime.
    pub async fn ended(&self) -> std::io::Result<()> {
        let descriptor = open_pidfd(self.pid)?;
        #[expect(
            unsafe_code,
            reason = "tokio asks for the promise that the descriptor stays open"
        )]
        // SAFETY: the descriptor is open, owned by the handle, and closed only when the handle is dropped.
        let handle = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?;
        // The handle is for the present owner of the pid; if that is another, ours has ended.
        if self.is_alive() {
            let _ready = handle.readable().await?;
        }
        Ok(())
    }

    /// The command line of that very process, its program first; for comparisons, since a process may choose it.
    pub fn command_line(&self) -> std::io::Result<Vec<OsString>> {
        let bytes = std::fs::read(format!("/proc/{}/cmdline", self.pid))?;
        if !self.is_alive() {
            // Checked after the read: the pid may have been given to another process before it.
            return Err(std::io::Error::other("the process has ended"));
        }
        let words = bytes
            .strip_suffix(b"\0")
            .unwrap_or(&bytes)
            .split(|byte| *byte == 0);
        Ok(words.map(|word| OsStr::from_bytes(word).to_owned()).collect())
    }

    /// Sends SIGTERM to that very process; returns whether it was there.
    pub fn terminate(&self) -> bool {
        self.signal(Signal::SIGTERM)
    }

    /// Kills that very process; says whether it was there.
    pub fn kill(&self) -> bool {
        self.signal(Signal::SIGKILL)
    }

    /// Sends a signal if that very process still runs; says whether it did.
    pub fn signal(&self, signal: Signal) -> bool {
        let Ok(pid) = i32::try_from(self.pid) else {
            return false;
        };
        self.is_alive() && kill(Pid::from_raw(pid), signal).is_ok()
    }
}

fn open_pidfd(pid: u32) -> std::io::Result<OwnedFd> {
    // SAFETY: the call takes two numbers and returns a descriptor without another owner, or an error.
    #[expect(unsafe_code, reason = "neither std nor nix has pidfd_open")]
    unsafe {
        let found = libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(pid), 0);
        match i32::try_from(found) {
            Ok(descriptor) if descriptor >= 0 => Ok(OwnedFd::from_raw_fd(descriptor)),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

/// The credentials of the process that listens on a socket, without waiting for it.
fn peer(path: &Path) -> nix::Result<UnixCredentials> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    getsockopt(&socket, sockopt::PeerCredentials)
}

/// The score of what a node cannot do without; upstream's for its kubelet and for containerd.
const OOM_SCORE_ADJ: &str = "-999";

/// Makes the kernel spare a process when memory runs out, and what it starts from now on; says whether it does. It takes
/// a right (`CAP_SYS_RESOURCE`) that root in a container may not have.
pub fn spare_from_oom(pid: u32) -> bool {
    let written = std::fs::write(format!("/proc/{pid}/oom_score_adj"), OOM_SCORE_ADJ);
    if let Err(error) = &written {
        tracing::debug!(pid, %error, "setting the OOM score failed");
    }
    written.is_ok()
}

/// Length of every record, so that one is written over another.
const RECORD_BYTES: usize = 128;

/// A pid file that a process writes of itself between fork and exec: there is no moment at which the program runs
/// and its starter, should it die, has left no record of it.
///
/// The record of the last start stays beside it as the file for the next one, and all have one length: a program that
/// ends while pods fill the disk is started again without any room.
#[derive(Debug)]
pub(crate) struct OwnRecord {
    spare: CString,
    path: CString,
    boot_id: &'static str,
}

impl OwnRecord {
    pub(crate) fn prepare(pid_file: &Path) -> std::io::Result<Self> {
        let c_path = |path: &Path| CString::new(path.as_os_str().as_bytes()).map_err(std::io::Error::other);
        Ok(Self {
            spare: c_path(&Self::spare_of(pid_file))?,
            path: c_path(pid_file)?,
            boot_id: &BOOT_ID,
        })
    }

    fn spare_of(pid_file: &Path) -> PathBuf {
        let mut spare = pid_file.to_path_buf().into_os_string();
        spare.push(".tmp");
        PathBuf::from(spare)
    }

    /// Makes the files where they are not there, without an identity.
    pub(crate) fn reserve(pid_file: &Path) -> std::io::Result<()> {
        for path in [pid_file.to_path_buf(), Self::spare_of(pid_file)] {
            if !path.try_exists()? {
                std::fs::write(path, [b' '; RECORD_BYTES])?;
            }
        }
        Ok(())
    }

    /// Called in the child: neither allocates nor takes a lock.
    pub(crate) fn write(&self) -> std::io::Result<()> {
        let mut stat = [0_u8; 1024];
        let read = nix::unistd::read(open_in_child(c"/proc/self/stat", OFlag::O_RDONLY)?, &mut stat)?;
        let invalid = || std::io::Error::from(std::io::ErrorKind::InvalidData);
        let stat = std::str::from_utf8(&stat[..read]).map_err(|_| invalid())?;
        let (_, start_time) = parse_stat(stat).ok_or_else(invalid)?;
        let mut line = [b' '; RECORD_BYTES];
        line[RECORD_BYTES - 1] = b'\n';
        let mut rest = &mut line[..RECORD_BYTES - 1];
        write!(rest, "{} {start_time} {}", std::process::id(), self.boot_id)?;
        self.write_spare(&line)?;
        let (spare, path) = (self.spare.as_c_str(), self.path.as_c_str());
        if renameat2(AT_FDCWD, spare, AT_FDCWD, path, RenameFlags::RENAME_EXCHANGE).is_ok() {
            return Ok(());
        }
        renameat(AT_FDCWD, spare, AT_FDCWD, path)?;
        // The first record, or a file system that exchanges no names: the next start's file is made while there is room.
        let _ = self.write_spare(&line);
        Ok(())
    }

    /// Writes over what is there, so that a full disk has the room already.
    fn write_spare(&self, line: &[u8]) -> std::io::Result<()> {
        let file = open_in_child(&self.spare, OFlag::O_WRONLY | OFlag::O_CREAT)?;
        if nix::unistd::write(&file, line)? != line.len() {
            return Err(Errno::ENOSPC.into());
        }
        Ok(nix::unistd::ftruncate(
            &file,
            i64::try_from(line.len()).unwrap_or_default(),
        )?)
    }
}

fn open_in_child(path: &CStr, flags: OFlag) -> nix::Result<OwnedFd> {
    open(path, flags | OFlag::O_CLOEXEC, Mode::from_bits_truncate(0o644))
}

/// State and start time. The command name in parentheses may itself hold spaces and parentheses.
fn parse_stat(stat: &str) -> Option<(char, u64)> {
    // From the right: a process chooses its name, `) ` included.
    let after_name = stat.rsplit_once(") ")?.1;
    let mut fields = after_name.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.trim().parse().ok()?))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a process of no use")]
mod tests {
    use super::*;

    #[test]
    fn process_identity_of_self_is_alive() {
        let me = ProcessIdentity::of(std::process::id()).unwrap();
        assert!(me.is_alive());
        assert_eq!(ProcessIdentity::from_text(&me.to_text()), Some(me.clone()));
        let later = me.start_time + 1;
        let successor = ProcessIdentity {
            start_time: later,
            ..me.clone()
        };
        assert!(!successor.is_alive(), "the pid was given away");
        let of_another_boot = ProcessIdentity {
            boot_id: "x".into(),
            ..me.clone()
        };
        assert!(!of_another_boot.is_alive(), "the machine was started again");
    }

    #[test]
    fn process_record_of_another_form_names_nobody() {
        let me = ProcessIdentity::of(std::process::id()).unwrap();
        for text in ["", "1", "1 2", "1 2 boot more", "x 2 boot"] {
            assert_eq!(ProcessIdentity::from_text(text), None, "{text:?}");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        std::fs::write(&file, me.to_text()).unwrap();
        assert_eq!(ProcessIdentity::recorded(&file), Some(me));
        std::fs::write(&file, " ".repeat(1 << 20)).unwrap();
        assert_eq!(ProcessIdentity::recorded(&file), None);
    }

    #[test]
    fn process_record_of_a_user_names_none_of_anothers() {
        let me = ProcessIdentity::of(std::process::id()).unwrap();
        let own = nix::unistd::geteuid().as_raw();
        assert!(me.is_named_by(0) && me.is_named_by(own));
        assert!(!me.is_named_by(own + 1));
        if own != 0 {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        std::fs::write(&file, me.to_text()).unwrap();
        std::os::unix::fs::chown(&file, Some(1), None).unwrap();
        assert_eq!(ProcessIdentity::recorded(&file), None);
    }

    #[test]
    fn process_is_spared_where_the_kernel_allows_it() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let score = || std::fs::read_to_string(format!("/proc/{}/oom_score_adj", child.id())).unwrap();
        let before = score();
        let spared = spare_from_oom(child.id());
        let expected = if spared { "-999\n" } else { before.as_str() };
        assert_eq!(score(), expected);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn process_that_listens_is_named_by_the_kernel() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        assert_eq!(ProcessIdentity::listening(&path), None);
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let me = ProcessIdentity::of(std::process::id()).unwrap();
        assert_eq!(ProcessIdentity::listening(&path), Some(me));
    }

    #[test]
    fn process_stat_name_with_parentheses_is_parsed() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0";
        assert_eq!(parse_stat(stat), Some(('S', 4242)));
    }
}
