//! Sockets of a folder that others write to: as many and as deep as there is room for.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Sockets that are read.
pub(crate) const SOCKETS_MAX: usize = 128;
/// Names of all folders together that are read.
const NAMES_MAX: usize = 4_096;
/// Folders below the folder, one in the other.
const DEPTH_MAX: usize = 3;

/// Sockets by path; by the value a socket differs from another that was at its path before.
pub type FoundSockets = BTreeMap<PathBuf, SocketStamp>;

/// Number and time of a socket's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SocketStamp {
    inode: u64,
    made_at: (i64, i64),
}

impl SocketStamp {
    /// A stamp of a model's socket.
    pub fn of_number(inode: u64) -> Self {
        let made_at = (0, 0);
        Self { inode, made_at }
    }
}

/// Sockets at and below a folder. Links are not followed, names that begin with a dot are passed over, as upstream does. Blocks.
///
/// # Errors
/// The folder itself cannot be read.
pub(crate) fn sockets(folder: &Path) -> io::Result<FoundSockets> {
    let mut look = Look {
        found: FoundSockets::new(),
        names: 0,
    };
    look.look_into(folder, 0)?;
    Ok(look.found)
}

struct Look {
    found: FoundSockets,
    names: usize,
}

impl Look {
    fn look_into(&mut self, folder: &Path, depth: usize) -> io::Result<()> {
        let mut folders = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            if self.names >= NAMES_MAX || self.found.len() >= SOCKETS_MAX {
                return Ok(());
            }
            self.names += 1;
            // What goes meanwhile is not there.
            let Ok(entry) = entry else { continue };
            let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            let Ok(found) = entry.metadata() else { continue };
            if hidden {
                continue;
            }
            if found.file_type().is_socket() {
                let stamp = SocketStamp {
                    inode: found.ino(),
                    made_at: (found.mtime(), found.mtime_nsec()),
                };
                self.found.insert(entry.path(), stamp);
            } else if found.is_dir() && depth < DEPTH_MAX {
                folders.push(entry.path());
            }
        }
        for folder in folders {
            let _ = self.look_into(&folder, depth + 1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn names(folder: &Path) -> Vec<String> {
        let found = sockets(folder).unwrap();
        let name = |path: &PathBuf| path.strip_prefix(folder).unwrap().display().to_string();
        found.keys().map(name).collect()
    }

    #[test]
    fn folder_of_plugins_has_its_sockets_alone() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("a/b/c/d")).unwrap();
        let bound = [
            "one.sock",
            "a/two.sock",
            "a/b/c/deep.sock",
            "a/b/c/d/deeper.sock",
            ".hidden.sock",
        ];
        let _sockets: Vec<_> = bound
            .iter()
            .map(|name| UnixListener::bind(at(name)).unwrap())
            .collect();
        std::fs::write(at("file.sock"), "").unwrap();
        make_fifo(&at("fifo.sock"));
        std::os::unix::fs::symlink(at("one.sock"), at("link.sock")).unwrap();
        std::os::unix::fs::symlink(folder.path(), at("loop")).unwrap();
        assert_eq!(
            names(folder.path()),
            ["a/b/c/deep.sock", "a/two.sock", "one.sock"]
        );
        sockets(&at("missing")).unwrap_err();
    }

    #[expect(clippy::disallowed_methods, reason = "a test's own tool")]
    fn make_fifo(path: &Path) {
        let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
    }

    #[test]
    fn folder_of_plugins_is_looked_at_within_bounds() {
        let folder = tempfile::tempdir().unwrap();
        let bind = |number: usize| UnixListener::bind(folder.path().join(number.to_string())).unwrap();
        let _sockets: Vec<_> = (0..SOCKETS_MAX + 5).map(bind).collect();
        assert_eq!(sockets(folder.path()).unwrap().len(), SOCKETS_MAX);
    }

    #[test]
    fn socket_made_anew_at_its_path_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("one.sock");
        let _first = UnixListener::bind(&path).unwrap();
        let before = sockets(folder.path()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let _kept = std::fs::write(folder.path().join("other"), "");
        let _second = UnixListener::bind(&path).unwrap();
        assert_ne!(sockets(folder.path()).unwrap(), before);
    }
}
