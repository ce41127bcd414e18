//! The file of a checkpoint: its data and a checksum of them, in the form of upstream's checkpoints but for the checksum,
//! which is our own.

use std::borrow::Cow;
use std::io;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// No larger file is written or read.
const BYTES_MAX: u64 = 64 << 20;

/// Data of a checkpoint, in the form in which its file has them.
pub(crate) trait FileData: Serialize + DeserializeOwned {
    /// Bytes that the checksum is of.
    ///
    /// # Errors
    /// The data cannot be written as JSON.
    fn summed(&self) -> io::Result<Cow<'_, [u8]>>;
}

/// Data that are a text of their own.
impl FileData for String {
    fn summed(&self) -> io::Result<Cow<'_, [u8]>> {
        Ok(Cow::Borrowed(self.as_bytes()))
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Envelope<D> {
    data: D,
    checksum: u32,
}

/// Writes a checkpoint. Its data may be secret: the file is for its owner alone. Blocks.
///
/// # Errors
/// It is too large, or cannot be written.
pub(crate) fn store<D: FileData>(file: &Path, data: D) -> io::Result<()> {
    let checksum = checksum(&data)?;
    let text = serde_json::to_vec(&Envelope { data, checksum })?;
    if text.len() as u64 > BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    node_sys::fs::write_durably(file, &text, 0o600)
}

/// Reads a checkpoint; `None` where there is none. Blocks.
///
/// # Errors
/// It cannot be read, is damaged, or is no regular file: plugins may write the folder, too.
pub(crate) fn load<D: FileData>(file: &Path) -> io::Result<Option<D>> {
    let text = match node_sys::fs::read_regular(file, BYTES_MAX + 1) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    if text.len() as u64 > BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let envelope: Envelope<D> = serde_json::from_slice(&text)?;
    if checksum(&envelope.data)? != envelope.checksum {
        return Err(invalid("checkpoint is corrupted"));
    }
    Ok(Some(envelope.data))
}

/// An error about what a checkpoint says.
pub(crate) fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

fn checksum<D: FileData>(data: &D) -> io::Result<u32> {
    let hash = Sha256::digest(data.summed()?);
    Ok(hash[..4].iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
}
