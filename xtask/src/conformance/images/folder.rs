//! Folders that are recreated.

use anyhow::Result;
use std::fs;
use std::path::Path;

/// Empties a folder, or makes it.
pub(super) fn empty(folder: &Path) -> Result<()> {
    remove(folder)?;
    Ok(fs::create_dir_all(folder)?)
}

/// Removes a folder, if it is there.
pub(super) fn remove(folder: &Path) -> Result<()> {
    if folder.try_exists()? {
        fs::remove_dir_all(folder)?;
    }
    Ok(())
}
