//! Files and folders by path. Everything that opens blocks.

use std::fs::File;
use std::io::Result;
use std::path::{Path, PathBuf};

use node_sys::fs::{FolderName, Within, open_within};

/// Names of a folder that are shown.
const NAMES_MAX: usize = 10_000;

/// Something that was opened.
#[derive(Debug)]
pub(super) enum Opened {
    File(File),
    Folder(Vec<FolderName>),
}

/// A path without `.` and `..`, which lead no further up than to the root (Go's `path.Clean` of a rooted path).
pub(super) fn cleaned(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Opens what a path leads to within these folders.
pub(super) fn open(folders: &[PathBuf], path: &Path) -> Result<Opened> {
    Ok(match open_within(folders, path)? {
        Within::File(file) => Opened::File(file),
        Within::Folder(folder) => Opened::Folder(folder.names(NAMES_MAX)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_log_path_leads_no_further_up_than_its_folder() {
        for (path, expected) in [
            ("", ""),
            ("a/b", "a/b"),
            ("a//b/./", "a/b"),
            ("../../etc/shadow", "etc/shadow"),
            ("a/../../b", "b"),
        ] {
            assert_eq!(cleaned(path), expected, "{path}");
        }
    }
}
