//! What the kernel allows this process.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises how many files may be open at once from the soft limit to the hard one, as Go's runtime does, and answers how
/// many may be now. The soft limit is low (1,024, usually) for the sake of programs that use `select`; ours do not.
pub fn raise_open_files() -> std::io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let raised = soft >= hard || setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
    Ok(if raised { hard } else { soft })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_open_is_what_the_owner_allows() {
        let allowed = raise_open_files().unwrap();
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!((soft, hard), (allowed, allowed));
    }
}
