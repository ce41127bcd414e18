//! Files of descriptions. Blocks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::CdiSource;
use super::description::{DescribedDevice, Description, split};

/// A larger file is no description.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Files of a folder that are read.
const FILES_MAX: usize = 256;
/// Names of a folder that are read.
const NAMES_MAX: usize = 4_096;

/// A device, the description that it is of, and the number of that description.
#[derive(Debug, Clone)]
pub(super) struct FoundDevice {
    pub(super) name: String,
    pub(super) device: DescribedDevice,
    /// Its file; of equal ones the edits for all devices are made once.
    pub(super) file: PathBuf,
    pub(super) shared: super::description::Edits,
}

/// Finds devices by their names. Of two folders the last one counts; two files of one folder that have a device are at odds.
///
/// # Errors
/// Names of those that are not found.
pub(super) fn find<'n>(
    source: &CdiSource,
    names: impl Iterator<Item = &'n str>,
) -> Result<Vec<FoundDevice>, String> {
    let folders: Vec<_> = source
        .folders
        .iter()
        .rev()
        .map(|folder| descriptions(source, folder))
        .collect();
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for name in names {
        match folders.iter().find_map(|own| find_in(own, name)) {
            Some(device) => found.push(device?),
            None => missing.push(name),
        }
    }
    match missing.is_empty() {
        true => Ok(found),
        false => Err(format!("unresolvable CDI devices {}", missing.join(", "))),
    }
}

fn find_in(files: &BTreeMap<PathBuf, Description>, name: &str) -> Option<Result<FoundDevice, String>> {
    let (kind, own) = split(name)?;
    let of_kind = files.iter().filter(|(_, description)| description.kind == kind);
    let mut all = of_kind.filter_map(|(file, description)| {
        let device = description.devices.iter().find(|device| device.name == own)?;
        Some((file, description, device))
    });
    let (file, description, device) = all.next()?;
    if let Some((other, ..)) = all.next() {
        let (file, other) = (file.display(), other.display());
        return Some(Err(format!(
            "conflicting device {name:?} (specs {file}, {other})"
        )));
    }
    Some(Ok(FoundDevice {
        name: name.to_owned(),
        device: device.clone(),
        file: file.clone(),
        shared: description.container_edits.clone(),
    }))
}

/// Reads the files of a folder; one that cannot be read hides no other.
fn descriptions(source: &CdiSource, folder: &Path) -> BTreeMap<PathBuf, Description> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().take(NAMES_MAX);
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| {
        let extension = file.extension().and_then(std::ffi::OsStr::to_str);
        matches!(extension, Some("json" | "yaml"))
    });
    files.sort();
    files.truncate(FILES_MAX);
    let read = files.into_iter().filter_map(|file| match read(source, &file) {
        Ok(description) => Some((file, description)),
        Err(error) => {
            tracing::warn!(file = %file.display(), error, "description of CDI devices not read");
            None
        }
    });
    read.collect()
}

fn read(source: &CdiSource, file: &Path) -> Result<Description, String> {
    let content = node_sys::fs::read_regular(file, FILE_BYTES_MAX + 1).map_err(|error| error.to_string())?;
    if content.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("more than {FILE_BYTES_MAX} bytes"));
    }
    let value = (source.decode)(&content)?;
    serde_json::from_value(value).map_err(|error| error.to_string())
}
