//! Figures in `/proc`: files that processes have open ([`open_files`]), traffic of a network namespace ([`links`]), disks
//! and the file systems on them ([`disks`]).
//!
//! Pods open files and make links at will: what is looked at is bounded, and a figure that lies beyond is not known.

mod disks;
mod links;
mod open_files;

pub use disks::{DiskFigures, FileSystem, Mount, block_device_name, disks, file_systems, mounts};
pub use links::{LINKS_MAX, LinkFigures, links};
pub use open_files::{FileBudget, OpenFiles, open_file_limit, open_files};
