//! The plugin's program on the node.

use super::frame::SOCKET;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Name of the plugin of pods' links.
pub const PLUGIN: &str = "knarr-cni";
/// Name of the plugin that container runtimes start for the loopback link, which we bring too.
pub const LOOPBACK: &str = "loopback";
const PROGRAM: &[u8] = include_bytes!(env!("KNARR_CNI_PROGRAM"));

/// Writes the program under both of its names to a folder that is root's alone. Blocks.
pub fn install(folder: &Path) -> io::Result<()> {
    node_sys::fs::make_own_folder(folder)?;
    node_sys::fs::write_atomically(&folder.join(PLUGIN), PROGRAM, 0o755)?;
    let loopback = folder.join(LOOPBACK);
    if std::fs::read_link(&loopback).is_ok_and(|target| target == Path::new(PLUGIN)) {
        return Ok(());
    }
    // Only a wrong link is replaced: a runtime may start the plugin at this moment, and would not find it in
    // between.
    match std::fs::remove_file(&loopback) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => symlink(PLUGIN, &loopback),
    }
}

/// The agent's socket in that folder.
pub(super) fn socket(folder: &Path) -> PathBuf {
    folder.join(SOCKET)
}
