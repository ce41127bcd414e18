//! Rotated files of a log: `<log>.<time>`, compressed to `<log>.<time>.gz` when the next one is rotated away, so that
//! a reader of the newest of them can finish. Names and order are upstream's. Everything here blocks.
//!
//! Pods may write the folder: links and pipes among them are removed, and neither followed nor waited for.

use std::fs::File;
use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

const COMPRESSED: &str = ".gz";
/// A file that is being compressed.
const UNFINISHED: &str = ".tmp";

/// Makes room for one more rotated file: removes what an earlier rotation has left half done, removes the oldest, and
/// compresses the others. `files_max` counts the log itself and the file that is about to be rotated away.
pub(super) fn make_room(log: &Path, files_max: usize) -> Result<()> {
    let (kept, unused): (Vec<_>, Vec<_>) = {
        let all = rotated(log)?;
        let is_used = |path: &PathBuf| is_file(path) && is_used(path, &all);
        all.clone().into_iter().partition(is_used)
    };
    unused.iter().try_for_each(remove)?;
    let surplus = kept.len().saturating_sub(files_max.saturating_sub(2));
    let (old, kept) = kept.split_at(surplus);
    old.iter().try_for_each(remove)?;
    let plain = kept.iter().filter(|path| !has_suffix(path, COMPRESSED));
    plain.into_iter().try_for_each(|path| compress(path))
}

/// Rotated files of a log, the oldest first.
pub(super) fn rotated(log: &Path) -> Result<Vec<PathBuf>> {
    let prefix = format!("{}.", log.file_name().unwrap_or_default().to_string_lossy());
    let folder = log.parent().unwrap_or(Path::new("/"));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !is_folder && entry.file_name().to_string_lossy().starts_with(&prefix) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

fn has_suffix(path: &Path, suffix: &str) -> bool {
    path.to_string_lossy().ends_with(suffix)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Reports whether a file counts: not one that is half compressed, nor one whose compressed form is there.
fn is_used(path: &Path, all: &[PathBuf]) -> bool {
    let done = || all.contains(&with_suffix(path, COMPRESSED));
    !has_suffix(path, UNFINISHED) && (has_suffix(path, COMPRESSED) || !done())
}

fn is_file(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
}

fn remove(path: &PathBuf) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

fn compress(path: &Path) -> Result<()> {
    let unfinished = with_suffix(path, UNFINISHED);
    let outcome = write_compressed(path, &unfinished);
    if outcome.is_err() {
        // What cannot be removed goes before the next rotation.
        let _ = std::fs::remove_file(&unfinished);
    }
    outcome?;
    std::fs::rename(&unfinished, with_suffix(path, COMPRESSED))?;
    remove(&path.to_owned())
}

fn write_compressed(path: &Path, into: &Path) -> Result<()> {
    let mut from = node_sys::fs::open_regular(path)?;
    remove(&into.to_owned())?;
    let into = File::create_new(into)?;
    into.set_permissions(from.metadata()?.permissions())?;
    let mut encoder = GzEncoder::new(into, Compression::default());
    std::io::copy(&mut from, &mut encoder)?;
    encoder.finish().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use std::io::Read;

    /// Files by name, before and after; cases of upstream's `TestCleanupUnusedLog` and `TestRemoveExcessLog` among them.
    #[track_caller]
    fn check(files_max: usize, before: &[&str], after: &[&str]) {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("test-log");
        std::fs::write(&log, "current").unwrap();
        std::fs::write(folder.path().join("other-log.1"), "another's").unwrap();
        for name in before {
            std::fs::write(folder.path().join(format!("test-log.{name}")), name).unwrap();
        }
        make_room(&log, files_max).unwrap();
        let names: Vec<String> = rotated(&log)
            .unwrap()
            .iter()
            .map(|path| path.file_name().unwrap().to_string_lossy()["test-log.".len()..].to_owned())
            .collect();
        assert_eq!(names, after);
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "current");
        assert!(folder.path().join("other-log.1").try_exists().unwrap());
    }

    #[test]
    fn rotated_logs_are_removed_and_compressed_as_upstreams() {
        check(5, &[], &[]);
        check(5, &["2"], &["2.gz"]);
        // Left by earlier rotations: unfinished, and compressed already.
        check(
            9,
            &["00000001", "00000002.tmp", "00000003.gz", "00000003"],
            &["00000001.gz", "00000003.gz"],
        );
        check(3, &["20180101", "20180102.gz", "20180103"], &["20180103.gz"]);
        check(5, &["1", "2", "3", "4", "5"], &["3.gz", "4.gz", "5.gz"]);
        check(5, &["1.gz", "2.gz", "3"], &["1.gz", "2.gz", "3.gz"]);
        check(2, &["1", "2.gz"], &[]);
        check(1, &["1"], &[]);
    }

    #[test]
    fn compressed_log_holds_what_was_rotated_away() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("0.log");
        let text = "2026-11-22T12:00:00Z stdout F a line\n".repeat(100_000);
        let old = folder.path().join("0.log.20261122-120000");
        std::fs::write(&old, &text).unwrap();
        node_sys::fs::set_mode(&old, 0o640).unwrap();
        make_room(&log, 5).unwrap();
        let compressed = with_suffix(&old, COMPRESSED);
        let mut read = String::new();
        let mut decoder = GzDecoder::new(File::open(&compressed).unwrap());
        decoder.read_to_string(&mut read).unwrap();
        assert!(read == text, "{} bytes", read.len());
        let found = std::fs::metadata(&compressed).unwrap();
        assert!(found.len() < text.len() as u64 / 100);
        assert_eq!(
            std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o777,
            0o640
        );
        assert_eq!(rotated(&log).unwrap(), [compressed]);
    }

    /// Pods that collect logs may write their folder.
    #[test]
    fn compressed_log_holds_nothing_that_a_link_leads_to() {
        let folder = tempfile::tempdir().unwrap();
        let (log, secret) = (folder.path().join("0.log"), folder.path().join("secret"));
        std::fs::write(&secret, "secret").unwrap();
        let link = folder.path().join("0.log.20261122-120000");
        std::os::unix::fs::symlink(&secret, &link).unwrap();
        std::fs::create_dir(folder.path().join("0.log.d")).unwrap();
        make_room(&log, 5).unwrap();
        assert_eq!(rotated(&log).unwrap(), [] as [PathBuf; 0]);
        std::os::unix::fs::symlink(&secret, with_suffix(&link, UNFINISHED)).unwrap();
        std::fs::write(&link, "a line").unwrap();
        compress(&link).unwrap();
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "secret");
    }
}
