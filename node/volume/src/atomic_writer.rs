//! Files that change together.
//!
//! The content lies in a folder with a fresh name; `..data` is a symbolic link to it, and each visible
//! name is a link through `..data`. Replacing that one link by a rename switches everything at once:
//!
//! ```text
//! ..2026_11_21_12_00_00.1/key      the content
//! ..data -> ..2026_11_21_12_00_00.1
//! key -> ..data/key
//! ```

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::VolumeError;

const DATA: &str = "..data";
const DATA_NEW: &str = "..data_tmp";
/// No system call takes a longer path.
const PATH_BYTES_MAX: usize = 4096;

/// One file to show.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileContent {
    /// Its bytes, shared by all files of one key.
    pub data: Arc<[u8]>,
    /// Its permission bits.
    pub mode: u32,
    /// Owner of the file, if it is not the agent.
    pub owner: Option<u32>,
}

/// All files of a volume by relative path.
pub type Payload = BTreeMap<String, FileContent>;

/// The path as it is written once, without `.` and double slashes, as Go's `path.Clean`. Refuses one that is absolute,
/// leaves the volume, collides with our own names, or names no file.
pub fn normal_path(path: &str) -> Result<String, VolumeError> {
    let refused = |why: &str| Err(VolumeError::Invalid(format!("invalid path {path:?}: {why}")));
    if path.len() > PATH_BYTES_MAX {
        return Err(VolumeError::Invalid(format!(
            "invalid path of {} bytes: must not be longer than {PATH_BYTES_MAX}",
            path.len()
        )));
    }
    if path.is_empty() {
        return refused("must not be empty");
    }
    if path.contains('\0') {
        return refused("must not contain a NUL character");
    }
    let mut parts = Vec::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(part) => parts.push(part.to_string_lossy()),
            Component::CurDir => {}
            _ => return refused("must be relative and must not contain '..'"),
        }
    }
    let normal = parts.join("/");
    if normal.is_empty() {
        return refused("must name a file in the volume");
    }
    if normal.starts_with("..") {
        return refused("must not start with '..'");
    }
    Ok(normal)
}

/// The payload with each path written once. Refuses one in which a file is also a folder.
fn normal(payload: &Payload) -> Result<Cow<'_, Payload>, VolumeError> {
    let mut normal = Cow::Borrowed(payload);
    for (path, content) in payload {
        let own = normal_path(path)?;
        if own != *path {
            let all = normal.to_mut();
            all.remove(path);
            all.insert(own, content.clone());
        }
    }
    for path in normal.keys() {
        let folders = Path::new(path).ancestors().skip(1);
        let mut files = folders
            .filter_map(Path::to_str)
            .filter(|folder| normal.contains_key(*folder));
        if let Some(file) = files.next() {
            let why = format!("invalid path {path:?}: {file:?} is a file of the volume, too");
            return Err(VolumeError::Invalid(why));
        }
    }
    Ok(normal)
}

/// Reports whether the content shown below `target` is complete.
pub fn is_whole(target: &Path) -> bool {
    let is_linked = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| target.join(entry.file_name()).symlink_metadata().is_ok())
    };
    let entries = std::fs::read_dir(target.join(DATA));
    entries.is_ok_and(|mut entries| entries.all(is_linked))
}

/// Shows exactly `payload` below `target`; says whether anything had to change.
///
/// `stamp` names the content's folder when it is written; it must not repeat for other content.
/// `group` is given the files, group-readable, as fsGroup requests.
pub fn write(target: &Path, payload: &Payload, stamp: &str, group: Option<u32>) -> Result<bool, VolumeError> {
    let payload = &*normal(payload)?;
    let current = std::fs::read_link(target.join(DATA))
        .ok()
        .map(|link| target.join(link));
    if let Some(current) = &current
        && shows(current, payload)
    {
        return Ok(false);
    }
    let name = format!("..{stamp}");
    let folder = target.join(&name);
    // Also what earlier tries have left: on a full disk each would leave a folder more.
    remove_others(target, current.as_deref())?;
    write_content(&folder, payload)?;
    if let Some(group) = group {
        node_sys::fs::give_to_group(&folder, group, true)
            .map_err(VolumeError::io("giving to its group", &folder))?;
    }
    let new = target.join(DATA_NEW);
    let _ = std::fs::remove_file(&new);
    symlink(&name, &new).map_err(VolumeError::io("linking", &new))?;
    let data = target.join(DATA);
    std::fs::rename(&new, &data).map_err(VolumeError::io("replacing", &data))?;
    link_visible_names(target, payload)?;
    if let Some(current) = current.filter(|current| *current != folder) {
        node_sys::fs::remove_tree(&current).map_err(VolumeError::io("removing", &current))?;
    }
    Ok(true)
}

/// Removes content folders that are not the current one.
fn remove_others(target: &Path, current: Option<&Path>) -> Result<(), VolumeError> {
    let entries = std::fs::read_dir(target).map_err(VolumeError::io("listing", target))?;
    let folders = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(".."))
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path());
    for path in folders.filter(|path| Some(path.as_path()) != current) {
        node_sys::fs::remove_tree(&path).map_err(VolumeError::io("removing", &path))?;
    }
    Ok(())
}

/// Reports whether a content folder holds exactly these files.
fn shows(folder: &Path, payload: &Payload) -> bool {
    let mut found = BTreeSet::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(relative) = pending.pop() {
        let Ok(entries) = std::fs::read_dir(folder.join(&relative)) else {
            return false;
        };
        for entry in entries.filter_map(Result::ok) {
            let path = relative.join(entry.file_name());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => pending.push(path),
                _ => {
                    found.insert(path.to_string_lossy().into_owned());
                }
            }
        }
    }
    let same = |(path, file): (&String, &FileContent)| {
        node_sys::fs::holds(&folder.join(path), &file.data).unwrap_or(false)
    };
    found.iter().eq(payload.keys()) && payload.iter().all(same)
}

fn write_content(folder: &Path, payload: &Payload) -> Result<(), VolumeError> {
    make_folder(folder)?;
    for (path, file) in payload {
        let full = folder.join(path);
        if let Some(parent) = Path::new(path).parent() {
            let mut current = folder.to_path_buf();
            for component in parent.components() {
                current.push(component);
                make_folder(&current)?;
            }
        }
        std::fs::write(&full, &file.data).map_err(VolumeError::io("writing", &full))?;
        if let Some(owner) = file.owner {
            std::os::unix::fs::chown(&full, Some(owner), None)
                .map_err(VolumeError::io("giving away", &full))?;
        }
        std::fs::set_permissions(&full, std::fs::Permissions::from_mode(file.mode))
            .map_err(VolumeError::io("setting the mode of", &full))?;
    }
    Ok(())
}

fn make_folder(path: &Path) -> Result<(), VolumeError> {
    std::fs::create_dir_all(path).map_err(VolumeError::io("making", path))?;
    node_sys::fs::set_mode(path, 0o755).map_err(VolumeError::io("setting the mode of", path))
}

/// Makes the links of names in the payload and removes those of names that have left it.
fn link_visible_names(target: &Path, payload: &Payload) -> Result<(), VolumeError> {
    let first = |path: &String| path.split('/').next().unwrap_or_default().to_string();
    let wanted: BTreeSet<String> = payload.keys().map(first).collect();
    for name in &wanted {
        let link = target.join(name);
        if std::fs::symlink_metadata(&link).is_err() {
            symlink(Path::new(DATA).join(name), &link).map_err(VolumeError::io("linking", &link))?;
        }
    }
    let entries = std::fs::read_dir(target).map_err(VolumeError::io("listing", target))?;
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("..") && !wanted.contains(&name) {
            let path = entry.path();
            std::fs::remove_file(&path).map_err(VolumeError::io("removing", &path))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(files: &[(&str, &str)]) -> Payload {
        let file = |text: &str| FileContent {
            data: text.as_bytes().into(),
            mode: 0o640,
            owner: None,
        };
        files
            .iter()
            .map(|(path, text)| ((*path).to_string(), file(text)))
            .collect()
    }

    #[test]
    fn content_is_replaced_as_a_whole_and_only_when_it_changed() {
        let target = std::env::temp_dir().join(format!("knarr-atomic-{}", std::process::id()));
        std::fs::create_dir_all(&target).unwrap();
        let read = |name: &str| std::fs::read_to_string(target.join(name)).unwrap();
        assert!(write(&target, &payload(&[("a", "1"), ("dir/b", "2")]), "one", None).unwrap());
        assert_eq!((read("a"), read("dir/b")), ("1".to_string(), "2".to_string()));
        assert!(!write(&target, &payload(&[("a", "1"), ("dir/b", "2")]), "two", None).unwrap());
        assert!(write(&target, &payload(&[("a", "3")]), "three", None).unwrap());
        assert_eq!(read("a"), "3");
        assert!(!target.join("dir").try_exists().unwrap());
        assert!(!target.join("..one").try_exists().unwrap());
        assert_eq!(
            std::fs::metadata(target.join("a")).unwrap().permissions().mode() & 0o777,
            0o640
        );
        std::fs::remove_dir_all(target).unwrap();
    }

    #[test]
    fn atomic_writer_leaves_nothing_of_a_try_that_failed() {
        let target = tempfile::tempdir().unwrap();
        let folders = || {
            let entries = std::fs::read_dir(target.path()).unwrap().flatten();
            entries
                .filter(|entry| entry.file_type().unwrap().is_dir())
                .count()
        };
        write(target.path(), &payload(&[("a", "1")]), "one", None).unwrap();
        // A name longer than any file system takes: the folder is there, and the file is not.
        let long = "x".repeat(300);
        for stamp in ["two", "three", "four"] {
            write(target.path(), &payload(&[("a", "2"), (&long, "3")]), stamp, None).unwrap_err();
            assert!(folders() <= 2, "{stamp}: what is shown, and one try");
        }
        write(target.path(), &payload(&[("a", "2")]), "five", None).unwrap();
        assert_eq!(folders(), 1);
    }

    #[test]
    fn paths_that_leave_the_volume_or_name_no_file_are_refused() {
        for path in [
            "",
            "/etc/passwd",
            "../x",
            "a/../../x",
            "..data",
            "./..data",
            ".",
            "./",
            "./.",
            "a\0b",
            &"a/".repeat(PATH_BYTES_MAX),
        ] {
            let error = normal_path(path).unwrap_err().to_string();
            assert!(!error.contains('\0'), "{error:?}");
        }
        for (path, normal) in [
            ("a/..b", "a/..b"),
            ("./a", "a"),
            ("a/./b//c/", "a/b/c"),
            ("a\nb", "a\nb"),
        ] {
            assert_eq!(normal_path(path).unwrap(), normal, "{path}");
        }
    }

    #[test]
    fn paths_that_are_written_in_two_ways_are_one() {
        let target = tempfile::tempdir().unwrap();
        let odd = payload(&[("./a", "1"), ("d/./b//c", "2")]);
        assert!(write(target.path(), &odd, "one", None).unwrap());
        let read = |name: &str| std::fs::read_to_string(target.path().join(name)).unwrap();
        assert_eq!((read("a"), read("d/b/c")), ("1".to_owned(), "2".to_owned()));
        assert!(
            !write(target.path(), &odd, "two", None).unwrap(),
            "nothing has changed"
        );
        let error = write(
            target.path(),
            &payload(&[("a", "1"), ("a/b", "2")]),
            "three",
            None,
        )
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid path \"a/b\": \"a\" is a file of the volume, too"
        );
    }
}
