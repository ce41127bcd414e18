//! Files of what containers have, in upstream's format: the newest version as a text in `data`, and an older one beside it,
//! of which older kubelets read.

use std::io;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::go_checksum::of_text;

/// A larger file is not read, and not written.
const BYTES_MAX: u64 = 16 << 20;

/// Data of a manager: the same fields in both versions.
pub(super) trait ManagerData: Serialize + DeserializeOwned {
    /// Name of the file.
    const FILE: &'static str;
    /// The manager, as upstream's sentences name it: `CPU manager`.
    const MANAGER: &'static str;
    /// The newest version: `v4`.
    const VERSION: &'static str;

    /// Checksum of the older version.
    fn checksum(&self) -> u32;
}

#[derive(Serialize)]
struct File<'a, D> {
    #[serde(flatten)]
    older: &'a D,
    #[serde(flatten)]
    newest: Newest,
}

/// Fields of the file beside the older version.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Newest {
    /// Of the older version.
    checksum: u64,
    data: String,
    data_checksum: u64,
}

/// Reads what an agent has saved, which `read` takes; `None` where there is nothing. Blocks.
///
/// # Errors
/// Upstream's sentence: it is damaged, or `read` refuses it.
pub(super) fn load<D: ManagerData, T>(
    folder: &Path,
    read: impl FnOnce(D) -> Result<T, String>,
) -> Result<Option<T>, String> {
    let file = folder.join(D::FILE);
    let outcome = match node_sys::fs::read_regular(&file, BYTES_MAX + 1) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => Err(error.to_string()),
        Ok(bytes) => decode(&bytes).and_then(read),
    };
    outcome.map(Some).map_err(|error| {
        format!(
            "could not restore state from checkpoint: {error}, please drain this node and delete the {} checkpoint file {:?} \
             before restarting Kubelet",
            D::MANAGER,
            file.display().to_string()
        )
    })
}

/// Writes it. Blocks.
///
/// # Errors
/// It is too large, or cannot be written.
pub(super) fn store<D: ManagerData>(older: &D, folder: &Path) -> io::Result<()> {
    let data = serde_json::to_string(older)?;
    let newest = Newest {
        checksum: older.checksum().into(),
        data_checksum: of_text(&data).into(),
        data,
    };
    let text = serde_json::to_vec(&File { older, newest })?;
    if text.len() as u64 > BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    node_sys::fs::write_durably(&folder.join(D::FILE), &text, 0o600)
}

fn decode<D: ManagerData>(text: &[u8]) -> Result<D, String> {
    if text.len() as u64 > BYTES_MAX {
        return Err("checkpoint is too large".to_owned());
    }
    // Read in two goes: keys that are numbers cannot be read from a flattened struct.
    let older: D = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let newest: Newest = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let corrupted = || "checkpoint is corrupted".to_owned();
    if newest.data.is_empty() && newest.data_checksum == 0 {
        // Upstream takes a file without a checksum, too: of its first format.
        let is_whole = newest.checksum == 0 || newest.checksum == u64::from(older.checksum());
        return is_whole.then_some(older).ok_or_else(corrupted);
    }
    if newest.data_checksum != u64::from(of_text(&newest.data)) {
        return Err(format!(
            "could not load {} checkpoint: {}",
            D::VERSION,
            corrupted()
        ));
    }
    serde_json::from_str(&newest.data).map_err(|error| {
        let manager = D::MANAGER.to_lowercase();
        format!("failed to deserialize {manager} checkpoint data: {error}")
    })
}
