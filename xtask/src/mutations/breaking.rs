//! A file with a mutation in it, which is put right however the run ends.
//!
//! A program of its own waits for the end of this one, whichever that is (a pipe closes), and then copies the right text back. It
//! is in a process group of its own and takes no signals of a terminal.

use super::Mutation;
use crate::process;
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// Arguments: the right text's file, and the one to put right. A copy has a new time, by which cargo sees the change.
const GUARD: &str = r#"trap "" HUP INT QUIT TERM; cat > /dev/null; cp "$1" "$2" && rm "$1""#;

/// See the module.
pub(super) struct Broken {
    path: PathBuf,
    guard: Child,
}

impl Broken {
    /// Breaks the file; its right text is kept in `kept` meanwhile.
    pub(super) fn new(path: PathBuf, kept: &Path, mutation: &Mutation) -> Result<Self> {
        let right = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        if right.matches(mutation.from).count() != 1 {
            bail!("{:?} is not in {} exactly once", mutation.from, path.display());
        }
        fs::write(kept, &right).with_context(|| format!("writing {}", kept.display()))?;
        let broken = Self {
            guard: guard(kept, &path)?,
            path,
        };
        fs::write(&broken.path, right.replace(mutation.from, mutation.to))?;
        Ok(broken)
    }
}

fn guard(kept: &Path, path: &Path) -> Result<Child> {
    let mut guard = process::command("sh");
    guard.args(["-c", GUARD, "guard"]).args([kept, path]);
    guard.process_group(0).stdin(Stdio::piped());
    guard
        .spawn()
        .context("starting the program that puts the file right")
}

impl Drop for Broken {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        if !self.guard.wait().is_ok_and(|status| status.success()) {
            println!("{} is still broken", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MUTATION: Mutation = Mutation {
        name: "",
        file: "",
        from: "right",
        to: "wrong",
        proof: &[],
    };

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("knarr-broken-{name}.{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("file"), "is right").unwrap();
        folder
    }

    #[test]
    fn broken_file_is_put_right() {
        let folder = folder("file");
        let (path, kept) = (folder.join("file"), folder.join("kept"));
        let broken = Broken::new(path.clone(), &kept, &MUTATION).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "is wrong");
        drop(broken);
        assert_eq!(fs::read_to_string(&path).unwrap(), "is right");
        assert!(!kept.try_exists().unwrap());
        fs::write(&path, "right and right").unwrap();
        Broken::new(path.clone(), &kept, &MUTATION).err().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "right and right");
        fs::remove_dir_all(folder).unwrap();
    }

    /// As when the command is interrupted: all of its group have the signals, and its end closes the pipe.
    #[test]
    fn broken_file_is_put_right_after_signals() {
        let folder = folder("signals");
        let (path, kept) = (folder.join("file"), folder.join("kept"));
        let mut broken = Broken::new(path.clone(), &kept, &MUTATION).unwrap();
        let guard = broken.guard.id().to_string();
        // It runs its own program once it ignores them.
        let task = format!("/proc/{guard}/task/{guard}/children");
        while fs::read_to_string(&task).unwrap().is_empty() {
            std::thread::yield_now();
        }
        for signal in ["-INT", "-TERM", "-HUP", "-QUIT"] {
            process::run(process::command("kill").args([signal, "--", &format!("-{guard}")])).unwrap();
        }
        drop(broken.guard.stdin.take());
        assert!(broken.guard.wait().unwrap().success());
        assert_eq!(fs::read_to_string(&path).unwrap(), "is right");
        drop(broken);
        fs::remove_dir_all(folder).unwrap();
    }
}
