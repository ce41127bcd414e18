//! Replacement of a file in one step.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::open_regular;

/// Replaces a file so that a reader sees the old or the new content, never a part, also where several
/// tasks of this process write it at once. Others may write its folder: a link or a pipe in the place of the file is replaced,
/// neither is written through. A file that is so already stays as it is: a program that starts again on a full disk needs no room for its unchanged files.
pub fn write_atomically(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    replace(path, content, mode, false)
}

/// The same, and the new content is on the disk when it returns: a power cut leaves the old or the new content.
pub fn write_durably(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    replace(path, content, mode, true)
}

fn replace(path: &Path, content: &[u8], mode: u32, is_durable: bool) -> io::Result<()> {
    if let Some(file) = unchanged(path, content, mode) {
        // Not rewritten: see the doc, a restart on a full disk. Synced nevertheless.
        return match is_durable {
            // An earlier call may have failed, or been killed, before it was on the disk.
            true => file.sync_all().and_then(|()| sync_folder(path)),
            false => Ok(()),
        };
    }
    let temporary = Temporary::of(path);
    let written = temporary
        .write(content, mode, is_durable)
        .and_then(|()| std::fs::rename(&temporary.path, path));
    if written.is_err() {
        // It may take the last room of a full disk.
        let _ = std::fs::remove_file(&temporary.path);
    }
    written?;
    match is_durable {
        true => sync_folder(path),
        false => Ok(()),
    }
}

/// The file, if it has this content and mode.
fn unchanged(path: &Path, content: &[u8], mode: u32) -> Option<File> {
    let mut file = open_regular(path).ok()?;
    let found = file.metadata().ok()?;
    let length = content.len() as u64;
    // Length and mode first: a pod may have put a huge file there.
    if found.len() != length || found.permissions().mode() & 0o7777 != mode {
        return None;
    }
    let mut held = Vec::new();
    (&mut file).take(length + 1).read_to_end(&mut held).ok()?;
    (held == content).then_some(file)
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent();
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Temporary files that this process writes at the moment.
static IN_USE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A file beside the one that it is to replace, which nothing else in this process writes. Names are used again: what killed
/// programs have left is removed, and does not add up.
struct Temporary {
    path: PathBuf,
}

impl Temporary {
    fn of(path: &Path) -> Self {
        let folder = path.parent().unwrap_or(Path::new("."));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut own = folder.join(format!(".{name}.tmp"));
        let mut number = 0_u64;
        while !in_use.insert(own.clone()) {
            number += 1;
            own = folder.join(format!(".{name}.{number}.tmp"));
        }
        Self { path: own }
    }

    fn write(&self, content: &[u8], mode: u32, is_durable: bool) -> io::Result<()> {
        // A remnant of a killed program; `create_new` would fail on it for ever.
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // New, or not at all: a link that another puts there meanwhile leads out of the folder, and a pipe never opens.
        let mut file = OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(mode)
            .open(&self.path)?;
        // `mode` above is reduced by the umask.
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(content)?;
        match is_durable {
            true => file.sync_all(),
            false => Ok(()),
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        in_use.remove(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fs_two_writers_of_a_file_have_a_temporary_file_each() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let (one, two) = (Temporary::of(&path), Temporary::of(&path));
        assert_eq!(one.path, folder.path().join(".state.tmp"));
        assert_ne!(one.path, two.path);
        let name = one.path.clone();
        drop(one);
        assert_eq!(Temporary::of(&path).path, name, "names do not add up");
    }

    #[test]
    fn fs_replacement_follows_no_link_and_waits_for_no_pipe() {
        let folder = tempfile::tempdir().unwrap();
        let (path, victim) = (folder.path().join("state"), folder.path().join("victim"));
        let temporary = folder.path().join(".state.tmp");
        let is_replaced = || {
            write_durably(&path, b"new", 0o600).unwrap();
            assert!(std::fs::symlink_metadata(&path).unwrap().is_file());
            assert_eq!(std::fs::read(&path).unwrap(), b"new");
            assert!(std::fs::symlink_metadata(&temporary).is_err());
            std::fs::remove_file(&path).unwrap();
        };
        write_atomically(&victim, b"new", 0o640).unwrap();
        let read = |path: &Path| crate::fs::read_regular(path, 2);
        assert_eq!(read(&victim).unwrap(), b"ne");
        for place in [&temporary, &path] {
            std::os::unix::fs::symlink(&victim, place).unwrap();
            read(place).unwrap_err();
            is_replaced();
            nix::unistd::mkfifo(place, nix::sys::stat::Mode::S_IRWXU).unwrap();
            read(place).unwrap_err();
            // With a reader and a writer no open would wait.
            let _both = OpenOptions::new().read(true).write(true).open(place).unwrap();
            is_replaced();
        }
        std::fs::write(&victim, b"kept").unwrap();
        std::os::unix::fs::symlink(&victim, &temporary).unwrap();
        is_replaced();
        assert_eq!(std::fs::read(&victim).unwrap(), b"kept");
        let mode = std::fs::metadata(&victim).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
    }

    #[test]
    fn fs_failed_replacement_leaves_the_file_and_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        write_durably(&path, b"old", 0o600).unwrap();
        write_durably(&path, b"new", 0o640).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        write_atomically(&path, b"newer", 0o600).unwrap_err();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
