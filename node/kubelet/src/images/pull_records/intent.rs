//! Intents: pulls that have begun, one file for each name of an image.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{Error, ErrorKind};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::name_of;
use crate::images::credentials::repository_of;

/// A longer intent is not one of ours, and is not written.
const INTENT_BYTES_MAX: u64 = 64 << 10;

/// A pull that has begun.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Intent {
    /// The image's full name, from which the file has its own.
    pub(super) image: String,
    /// Id of the image that had been put here under that name before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) preloaded: Option<String>,
    /// Names by digest that images of the repository had before: a pull by tag brings one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) there: Vec<String>,
    /// Pulls of the name that have begun since the intent was first written.
    pub(super) begun: u64,
}

impl Intent {
    pub(super) fn of(image: &str) -> Self {
        Self {
            image: image.to_owned(),
            ..Self::default()
        }
    }

    /// Reads one; a file that has not the name of its image is none.
    pub(super) fn read(path: &Path) -> std::io::Result<Self> {
        let content = node_sys::fs::read_head(path, INTENT_BYTES_MAX)?;
        let intent: Self = serde_json::from_slice(&content)?;
        match path
            .file_name()
            .is_some_and(|name| *name == *name_of(&intent.image))
        {
            true => Ok(intent),
            false => Err(Error::new(
                ErrorKind::InvalidData,
                "the intent is of another image",
            )),
        }
    }

    /// Content of its file; an error where it would not be read again.
    pub(super) fn content(&self) -> std::io::Result<Vec<u8>> {
        let content = serde_json::to_vec(self)?;
        match content.len() as u64 <= INTENT_BYTES_MAX {
            true => Ok(content),
            false => Err(Error::new(
                ErrorKind::InvalidInput,
                "the image's name is too long",
            )),
        }
    }

    /// Reports whether the pull may have brought an image its name.
    fn may_have_brought(&self, name: &str, image_ref: &str) -> bool {
        let by_digest = || name.contains('@') && repository_of(name) == repository_of(&self.image);
        self.preloaded.as_deref() != Some(image_ref)
            && (name == self.image || (by_digest() && !self.there.iter().any(|there| there == name)))
    }
}

/// All intents that there are.
#[derive(Debug, Default)]
pub(super) struct Intents {
    pub(super) read: Vec<Intent>,
    /// Names of files that cannot be read.
    pub(super) unread: HashSet<OsString>,
}

impl Intents {
    /// Reads those of a folder.
    pub(super) fn of(folder: &Path) -> std::io::Result<Self> {
        let mut intents = Self::default();
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(intents),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            match Intent::read(&entry.path()) {
                Ok(intent) => intents.read.push(intent),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(_) => {
                    intents.unread.insert(entry.file_name());
                }
            }
        }
        Ok(intents)
    }

    /// The one of a name alone.
    pub(super) fn of_image(path: &Path, image: &str) -> Self {
        let mut intents = Self::default();
        match Intent::read(path) {
            Ok(intent) => intents.read.push(intent),
            Err(_) => {
                intents.unread.insert(name_of(image).into());
            }
        }
        intents
    }

    /// Reports whether the image was put here before the pulls began.
    pub(super) fn preloaded(&self, image_ref: &str) -> bool {
        let mut intents = self.read.iter();
        intents.any(|intent| intent.preloaded.as_deref() == Some(image_ref))
    }

    /// Reports whether a pull that has begun, and is not recorded, may have brought an image its name.
    pub(super) fn may_have_brought(&self, name: &str, image_ref: &str) -> bool {
        let is_unread = || self.unread.contains(&*OsString::from(name_of(name)));
        self.read
            .iter()
            .any(|intent| intent.may_have_brought(name, image_ref))
            || is_unread()
    }
}
