//! Files and folders that a path leads to, by links too, as long as they lie in folders that are given.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{Mode, SFlag, fstat};

use super::open_to_read;

/// Something that was opened within a folder.
#[derive(Debug)]
pub enum Within {
    /// A regular file, to be read.
    File(File),
    /// A folder, to be listed.
    Folder(OpenFolder),
}

/// A folder that stays what it was when it was opened, whatever takes its name.
#[derive(Debug)]
pub struct OpenFolder(OwnedFd);

/// A name in a folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FolderName {
    /// The name; bytes that are no text are replaced.
    pub name: String,
    /// It is a folder itself; a link to one is not.
    pub is_folder: bool,
}

impl OpenFolder {
    /// Opens a folder; a link to one is none. Blocks.
    ///
    /// # Errors
    /// There is none.
    pub fn open(path: &Path) -> Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(Self(open(path, flags, Mode::empty())?))
    }

    /// A path of the folder, for this process and as long as the folder is open.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    /// Reports whether another file system is mounted on a name in the folder. Blocks.
    pub fn is_mount_point(&self, name: &str) -> bool {
        let own = fstat(&self.0).map(|own| own.st_dev).ok();
        let inside = std::fs::symlink_metadata(self.path().join(name));
        inside.is_ok_and(|inside| own != Some(inside.dev()))
    }

    /// The first names of the folder, at most so many, sorted. Blocks.
    pub fn names(&self, names_max: usize) -> Result<Vec<FolderName>> {
        let entries = std::fs::read_dir(self.path())?;
        let names = entries.filter_map(|entry| {
            let entry = entry.ok()?;
            Some(FolderName {
                name: entry.file_name().to_string_lossy().into_owned(),
                is_folder: entry.file_type().is_ok_and(|kind| kind.is_dir()),
            })
        });
        let mut names: Vec<FolderName> = names.take(names_max).collect();
        names.sort();
        Ok(names)
    }
}

/// Opens what a path leads to, links followed, where that lies in one of these folders. Blocks.
///
/// The path is resolved first, and what was found is opened without links: a link that is set meanwhile leads nowhere.
///
/// # Errors
/// There is no such file; it lies elsewhere (`PermissionDenied`); or it is neither file nor folder (`InvalidInput`).
pub fn open_within(folders: &[PathBuf], path: &Path) -> Result<Within> {
    let target = std::fs::canonicalize(path)?;
    for folder in folders {
        let Ok(folder) = std::fs::canonicalize(folder) else {
            continue;
        };
        if let Ok(inside) = target.strip_prefix(&folder) {
            return open_without_links(&folder, inside);
        }
    }
    Err(Error::new(
        ErrorKind::PermissionDenied,
        "the path leads out of its folder",
    ))
}

fn open_without_links(folder: &Path, inside: &Path) -> Result<Within> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let top = open(folder, flags, Mode::empty())?;
    let inside = match inside.as_os_str().is_empty() {
        true => Path::new("."),
        false => inside,
    };
    let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC).resolve(
        ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS,
    );
    let found = openat2(&top, inside, how)?;
    let kind = fstat(&found)?.st_mode & SFlag::S_IFMT.bits();
    if kind == SFlag::S_IFDIR.bits() {
        return Ok(Within::Folder(OpenFolder(found)));
    }
    open_to_read(&found).map(Within::File)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    fn read(folders: &[PathBuf], path: &Path) -> Result<String> {
        match open_within(folders, path)? {
            Within::File(mut file) => {
                let mut text = String::new();
                file.read_to_string(&mut text)?;
                Ok(text)
            }
            Within::Folder(folder) => {
                let names = folder.names(3)?.into_iter();
                let names: Vec<String> = names
                    .map(|own| own.name + if own.is_folder { "/" } else { "" })
                    .collect();
                Ok(names.join(" "))
            }
        }
    }

    #[test]
    fn open_folder_stays_what_it_was_whatever_takes_its_name() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for folder in ["own", "other"] {
            std::fs::create_dir(at(folder)).unwrap();
            std::fs::write(at(folder).join(folder), "").unwrap();
        }
        let folder = OpenFolder::open(&at("own")).unwrap();
        std::fs::rename(at("own"), at("before")).unwrap();
        symlink(at("other"), at("own")).unwrap();
        assert!(OpenFolder::open(&at("own")).is_err(), "a link is no folder");
        let names: Vec<String> = folder.names(9).unwrap().into_iter().map(|own| own.name).collect();
        assert_eq!(names, ["own"]);
        std::fs::remove_file(folder.path().join("own")).unwrap();
        assert!(!at("before/own").exists() && at("other/other").exists());
        assert!(!folder.is_mount_point("own"));
        assert!(OpenFolder::open(Path::new("/")).unwrap().is_mount_point("proc"));
    }

    #[test]
    fn path_that_leads_out_of_its_folder_is_refused_and_links_within_are_followed() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for folder in ["log/pods", "outside", "elsewhere"] {
            std::fs::create_dir_all(at(folder)).unwrap();
        }
        for file in ["log/a", "log/pods/b", "outside/secret", "elsewhere/c"] {
            std::fs::write(at(file), file).unwrap();
        }
        for (target, link) in [
            (at("log/pods/b"), "log/within"),
            (at("outside/secret"), "log/out"),
            (at("elsewhere/c"), "log/other"),
            ("..".into(), "log/up"),
        ] {
            symlink(target, at(link)).unwrap();
        }
        nix::unistd::mkfifo(&at("log/pods/pipe"), Mode::S_IRWXU).unwrap();
        let folders = [at("log"), at("missing"), at("elsewhere")];
        let read = |path: &str| read(&folders, &at(path)).map_err(|error| error.kind());
        assert_eq!(read("log/a").unwrap(), "log/a");
        assert_eq!(read("log/within").unwrap(), "log/pods/b");
        assert_eq!(read("log/other").unwrap(), "elsewhere/c");
        assert_eq!(read("log").unwrap().split(' ').count(), 3);
        assert_eq!(read("log/pods").unwrap(), "b pipe");
        for (path, kind) in [
            ("log/out", ErrorKind::PermissionDenied),
            ("log/up", ErrorKind::PermissionDenied),
            ("log/up/outside/secret", ErrorKind::PermissionDenied),
            ("log/../outside/secret", ErrorKind::PermissionDenied),
            ("log/pods/pipe", ErrorKind::InvalidInput),
            ("log/none", ErrorKind::NotFound),
        ] {
            assert_eq!(read(path).unwrap_err(), kind, "{path}");
        }
    }
}
