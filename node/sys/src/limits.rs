//! Limits of the kernel for this process.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::sync::OnceLock;

/// The soft limit of open files that this process was started with, once it has raised its own.
static GIVEN: OnceLock<u64> = OnceLock::new();

/// Raises how many files may be open at once from the soft limit to the hard one, as Go's runtime does, and answers how
/// many may be now. The soft limit is low (1,024, usually) for the sake of programs that use `select`; ours do not.
pub fn raise_open_files() -> std::io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    // Before it is raised, and once: a second call would note the raised limit as the given one.
    GIVEN.get_or_init(|| soft);
    let raised = soft >= hard || setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
    Ok(if raised { hard } else { soft })
}

/// Makes a program start with the limit that this process was started with, as Go's children do: containers inherit theirs
/// from it.
pub fn keep_open_files_as_given(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt;
    let Some(given) = GIVEN.get().copied() else { return };
    let restore = move || {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        setrlimit(Resource::RLIMIT_NOFILE, given.min(hard), hard).map_err(Into::into)
    };
    // SAFETY: the closure runs between fork and exec and makes two system calls; it neither allocates nor takes a lock.
    #[expect(unsafe_code, reason = "the child's limit is set between fork and exec")]
    unsafe {
        command.pre_exec(restore);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_open_files_follow_the_owner() {
        let allowed = raise_open_files().unwrap();
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!((soft, hard), (allowed, allowed));
    }

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "what `exec` does before it starts a program"
    )]
    fn what_is_started_has_the_limit_we_were_given() {
        let (before, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        raise_open_files().unwrap();
        let given = *GIVEN.get().unwrap();
        assert!(
            given == before || before == hard,
            "another test may have raised it before"
        );
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "ulimit -Sn"]);
        keep_open_files_as_given(&mut shell);
        let said = String::from_utf8(shell.output().unwrap().stdout).unwrap();
        assert_eq!(said.trim(), given.to_string());
    }
}
