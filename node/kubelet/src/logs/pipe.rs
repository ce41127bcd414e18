//! A pipe in the place of a file, which a test has read.

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const WITHOUT_WAITING: i32 = 0o4000;

/// A pipe without a writer.
pub(crate) struct Pipe(PathBuf);

impl Pipe {
    #[expect(clippy::disallowed_methods, reason = "a test's own tool")]
    pub(crate) fn make(path: &Path) -> Self {
        let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
        Self(path.to_owned())
    }

    /// Returns the outcome of this work, which must not wait for a writer of the pipe.
    #[expect(clippy::disallowed_methods, reason = "a thread that may wait for ever")]
    pub(crate) fn not_waited_for<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let work = std::thread::spawn(work);
        while !work.is_finished() {
            // It succeeds as soon as a reader waits for that.
            let mut how = std::fs::OpenOptions::new();
            let opened = how.write(true).custom_flags(WITHOUT_WAITING).open(&self.0);
            assert!(opened.is_err(), "the pipe is read");
            std::thread::sleep(Duration::from_millis(5));
        }
        work.join().unwrap()
    }
}
