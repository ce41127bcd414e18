//! The log that `knarr up` or the server gave this process: once it is large it is kept beside, and begun again.
//!
//! Tenants cause lines of the log, and it lies on the disk of the data. Only a file of that name is touched to which our output is
//! appended: an operator with the output elsewhere has a way of their own. Its content is copied and then cut off, so that
//! all that append to it go on at its beginning; what is written in the moment between the two is lost.

use machinery_runtime::Runtime;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A log of this size is begun again; the one before it is kept.
const MAX_BYTES: u64 = 64 << 20;
const LOOK_INTERVAL: Duration = Duration::from_secs(60);
/// Logs name what others need not know.
const MODE: u32 = 0o640;
/// `O_APPEND` among the flags that `/proc` shows, in octal.
const APPENDS: u64 = 0o2000;

/// Looks at the log for as long as the process lives.
pub(crate) fn keep(log: PathBuf, runtime: &Runtime) {
    let looking = runtime.clone();
    runtime
        .keep("rotation of our log", move || {
            look_again(log.clone(), looking.clone())
        })
        .detach();
}

async fn look_again(log: PathBuf, runtime: Runtime) {
    loop {
        runtime.sleep(LOOK_INTERVAL).await;
        let path = log.clone();
        match runtime.blocking(move || rotate_output(&path)).await {
            Ok(Ok(false)) => {}
            Ok(Ok(true)) => tracing::info!(path = %log.display(), "log rotated"),
            Ok(Err(error)) => tracing::warn!(%error, path = %log.display(), "rotating the log failed"),
            Err(ended) => tracing::warn!(%ended, "rotating the log failed"),
        }
    }
}

fn rotate_output(log: &Path) -> io::Result<bool> {
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    rotate(&output, log, MAX_BYTES)
}

/// Rotates the log if it is what the output is appended to, and larger than so much; returns whether it was.
fn rotate(output: &File, log: &Path, most: u64) -> io::Result<bool> {
    let written = output.metadata()?;
    if !written.is_file() || written.len() <= most || !appends(output)? {
        return Ok(false);
    }
    let mut content = match File::open(log) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let named = content.metadata()?;
    if (named.dev(), named.ino()) != (written.dev(), written.ino()) {
        return Ok(false);
    }
    let before = before(log);
    // A new file: no user's link is followed.
    match std::fs::remove_file(&before) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut kept = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(&before)?;
    io::copy(&mut content, &mut kept)?;
    output.set_len(0)?;
    Ok(true)
}

/// The name of the log before this one.
fn before(log: &Path) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

/// Reports whether whatever is written to a file goes to its end.
fn appends(file: &File) -> io::Result<bool> {
    use std::os::fd::AsRawFd;
    let fields = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
    let flags = fields.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u64::from_str_radix(flags.trim(), 8).ok());
    Ok(flags.is_some_and(|flags| flags & APPENDS != 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn appending(path: &Path) -> File {
        OpenOptions::new().append(true).create(true).open(path).unwrap()
    }

    #[test]
    fn log_is_begun_again_once_it_is_large() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("server.log");
        let (mut output, mut other) = (appending(&path), appending(&path));
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        output.write_all(b"one\n").unwrap();
        assert!(!rotate(&output, &path, 4).unwrap());
        other.write_all(b"two\n").unwrap();
        assert!(rotate(&output, &path, 4).unwrap());
        assert_eq!(
            (read(&path).as_str(), read(&before(&path)).as_str()),
            ("", "one\ntwo\n")
        );
        // All writers go on at the beginning, and one log is kept.
        other.write_all(b"three\n").unwrap();
        output.write_all(b"four\n").unwrap();
        assert!(rotate(&output, &path, 4).unwrap());
        assert_eq!(
            (read(&path).as_str(), read(&before(&path)).as_str()),
            ("", "three\nfour\n")
        );
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn log_of_others_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (own, others) = (folder.path().join("server.log"), folder.path().join("other.log"));
        let mut output = appending(&others);
        output.write_all(b"lines").unwrap();
        assert!(!rotate(&output, &own, 1).unwrap());
        std::fs::write(&own, "lines").unwrap();
        assert!(!rotate(&output, &own, 1).unwrap());
        // What is not appended would go on where it was.
        let mut output = File::create(&own).unwrap();
        output.write_all(b"lines").unwrap();
        assert!(!rotate(&output, &own, 1).unwrap());
        assert_eq!(std::fs::read_to_string(&own).unwrap(), "lines");
    }
}
