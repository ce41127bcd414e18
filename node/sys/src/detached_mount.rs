//! Copies of mounts that are nowhere until they are complete: a process that ends halfway leaves nothing mounted.
//!
//! See open_tree(2), mount_setattr(2) and move_mount(2); Linux 5.12.

use std::ffi::{CStr, CString};
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::mount::MsFlags;

use crate::mount_flags::MountFlags;

/// The whole tree below this one's root (`AT_RECURSIVE` of fcntl.h).
const RECURSIVE: u32 = 0x8000;
/// The descriptor itself, whatever the path (`AT_EMPTY_PATH`).
const EMPTY_PATH: u32 = 0x1000;
/// A copy and not the mounts themselves (`OPEN_TREE_CLONE` of mount.h).
const CLONE: u32 = 1;
/// The descriptor is closed in programs that are started (`OPEN_TREE_CLOEXEC`).
const CLOSE_ON_EXEC: u32 = 0x8_0000;
/// The tree to move is the descriptor (`MOVE_MOUNT_F_EMPTY_PATH`).
const MOVE_DESCRIPTOR: u32 = 4;

/// `struct mount_attr`.
#[repr(C)]
struct Attributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// A copy of a path and of the mounts below it.
#[derive(Debug)]
pub(crate) struct DetachedMount(OwnedFd);

impl DetachedMount {
    /// Copies a path and the mounts below it.
    pub(crate) fn of(source: &Path) -> Result<Self> {
        let source = text(source)?;
        // The kernel resolves the path once and holds the mount from then on: a link that is exchanged later
        // changes nothing.
        let flags = CLONE | CLOSE_ON_EXEC | RECURSIVE;
        // SAFETY: the path is a C string that lives as long as the call, which returns a descriptor without another
        // owner, or an error.
        #[expect(unsafe_code, reason = "neither std nor nix has open_tree")]
        let tree = unsafe {
            let found = libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, source.as_ptr(), flags);
            match i32::try_from(found) {
                Ok(descriptor) if descriptor >= 0 => OwnedFd::from_raw_fd(descriptor),
                _ => return Err(Error::last_os_error()),
            }
        };
        Ok(Self(tree))
    }

    /// Sets the propagation of all mounts of the tree.
    pub(crate) fn propagate(&self, propagation: MsFlags) -> Result<()> {
        let attributes = Attributes {
            set: 0,
            clear: 0,
            propagation: propagation.bits(),
            user_namespace: 0,
        };
        self.change(&attributes, RECURSIVE)
    }

    /// Sets options of the tree's root, and not of the mounts below it (as mount(8)).
    pub(crate) fn restrict(&self, flags: MountFlags) -> Result<()> {
        let attributes = Attributes {
            set: flags.set,
            clear: flags.clear,
            propagation: 0,
            user_namespace: 0,
        };
        self.change(&attributes, 0)
    }

    fn change(&self, attributes: &Attributes, depth: u32) -> Result<()> {
        let (tree, empty) = (self.0.as_raw_fd(), c"".as_ptr());
        let size = size_of::<Attributes>();
        // SAFETY: the kernel reads a C string and as many bytes of the attributes as they have.
        #[expect(unsafe_code, reason = "neither std nor nix has mount_setattr")]
        let answer = unsafe {
            libc::syscall(
                libc::SYS_mount_setattr,
                tree,
                empty,
                EMPTY_PATH | depth,
                std::ptr::from_ref(attributes),
                size,
            )
        };
        outcome(answer)
    }

    /// Makes the tree visible at a path, which must exist.
    pub(crate) fn attach(self, target: &Path) -> Result<()> {
        let target = text(target)?;
        let (tree, empty): (_, &CStr) = (self.0.as_raw_fd(), c"");
        // SAFETY: both paths are C strings that live as long as the call.
        #[expect(unsafe_code, reason = "neither std nor nix has move_mount")]
        let answer = unsafe {
            libc::syscall(
                libc::SYS_move_mount,
                tree,
                empty.as_ptr(),
                libc::AT_FDCWD,
                target.as_ptr(),
                MOVE_DESCRIPTOR,
            )
        };
        outcome(answer)
    }
}

fn text(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(Error::other)
}

fn outcome(answer: libc::c_long) -> Result<()> {
    if answer == 0 {
        Ok(())
    } else {
        Err(Error::last_os_error())
    }
}
