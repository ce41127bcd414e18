//! Knowing a process again: a pid alone may have been given to another process meanwhile.

use std::os::fd::{FromRawFd, OwnedFd};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A pid together with when that process started (in clock ticks after boot), and the boot it was in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// The process id.
    pub pid: u32,
    /// Field 22 of `/proc/<pid>/stat`.
    pub start_time: u64,
}

impl ProcessIdentity {
    /// The identity of a living process.
    pub fn of(pid: u32) -> std::io::Result<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let (state, start_time) =
            parse_stat(&stat).ok_or_else(|| std::io::Error::other("unreadable stat"))?;
        if state == 'Z' || state == 'X' {
            return Err(std::io::Error::other("the process has ended"));
        }
        Ok(Self { pid, start_time })
    }

    /// Reads what [`ProcessIdentity::to_text`] wrote; anything else is `None`.
    pub fn from_text(text: &str) -> Option<Self> {
        let (pid, start_time) = text.trim().split_once(' ')?;
        Some(Self {
            pid: pid.parse().ok()?,
            start_time: start_time.parse().ok()?,
        })
    }

    /// One line for a pid file.
    pub fn to_text(&self) -> String {
        format!("{} {}\n", self.pid, self.start_time)
    }

    /// Whether that very process still runs.
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
        // The handle is for whoever has the pid now; if that is another, ours has ended.
        if self.is_alive() {
            let _ready = handle.readable().await?;
        }
        Ok(())
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
    // SAFETY: the call takes two numbers and returns a descriptor that nobody else owns, or an error.
    #[expect(unsafe_code, reason = "neither std nor nix has pidfd_open")]
    unsafe {
        let found = libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(pid), 0);
        match i32::try_from(found) {
            Ok(descriptor) if descriptor >= 0 => Ok(OwnedFd::from_raw_fd(descriptor)),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

/// The processes whose command line, words ended by zero bytes, fits.
pub fn find(fits: impl Fn(&[u8]) -> bool) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        fits(&line)
    })
    .collect()
}

/// State and start time. The command name in parentheses may itself hold spaces and parentheses.
fn parse_stat(stat: &str) -> Option<(char, u64)> {
    let after_name = stat.rsplit_once(") ")?.1;
    let mut fields = after_name.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_process_is_alive_and_knows_itself_again() {
        let me = ProcessIdentity::of(std::process::id()).unwrap();
        assert!(me.is_alive());
        assert_eq!(ProcessIdentity::from_text(&me.to_text()), Some(me.clone()));
        assert!(
            !ProcessIdentity {
                start_time: me.start_time + 1,
                ..me
            }
            .is_alive()
        );
    }

    #[test]
    fn a_name_with_parentheses_does_not_confuse() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0";
        assert_eq!(parse_stat(stat), Some(('S', 4242)));
    }
}
