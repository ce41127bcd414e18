//! Credentials with which each image was pulled: a pod that has none of them must pull it itself before it may
//! use it (upstream's KubeletEnsureSecretPulledImages, on by default, with the policy `NeverVerifyPreloadedImages`).
//!
//! ```text
//! image_manager/pulling/<sha256 of the image's name>  a pull has begun
//! image_manager/pulled/<sha256 of the image's id>    a pull has ended: the credentials for the image, by repository
//! ```
//!
//! An image without either was put here by the node's owner, and is open to all pods; a pull that begins while it is there
//! notes its id, so that no pod takes it from the others by a pull. Any other image whose pull was begun and not
//! recorded, since its pod was deleted or the agent died, is usable by no pod until it is pulled again. Upkeep
//! ([`super::upkeep`]) settles the intents that such pulls leave.

mod history;

pub(super) use history::{
    Access, CredentialSource, History, PulledWith, SecretCredential, ServiceAccountCredential,
};

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::credentials::repository_of;
use history::PullRecord;

/// A longer intent is not one of ours.
const INTENT_BYTES_MAX: u64 = 4096;
/// A longer record is not one of ours.
const RECORD_BYTES_MAX: u64 = 1 << 20;

/// Record of a pulled image.
#[derive(Debug)]
pub(in crate::images) struct Pulled {
    pub(in crate::images) repository: String,
    /// All it is called here.
    pub(in crate::images) names: Vec<String>,
    pub(in crate::images) with: PulledWith,
}

/// A record, and when it was written.
pub(in crate::images) type RecordFile = (PathBuf, std::time::SystemTime);

/// A pull that has begun, as its file says it: the image's name, and on a second line the id of an image that had been
/// put here under that name before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Intent {
    image: String,
    preloaded: Option<String>,
}

impl Intent {
    fn read(path: &Path) -> std::io::Result<Self> {
        let content = node_sys::fs::read_head(path, INTENT_BYTES_MAX)?;
        let text = String::from_utf8_lossy(&content);
        let (image, preloaded) = text
            .split_once('\n')
            .map_or((&*text, None), |(image, id)| (image, Some(id)));
        Ok(Self {
            image: image.to_owned(),
            preloaded: preloaded.map(str::to_owned),
        })
    }

    fn text(&self) -> String {
        let lines: Vec<&str> = [Some(self.image.as_str()), self.preloaded.as_deref()]
            .into_iter()
            .flatten()
            .collect();
        lines.join("\n")
    }

    fn preloaded_as(&self, image_ref: &str) -> bool {
        self.preloaded.as_deref() == Some(image_ref)
    }
}

/// The pulls of one name that are under way.
#[derive(Debug, Default)]
struct UnderWay {
    pulls: usize,
    /// One of them, or one before them, may have brought the image without a recorded end.
    may_have_come: bool,
}

/// The records on disk. All methods block.
#[derive(Debug)]
pub(in crate::images) struct PullRecords {
    folder: PathBuf,
    /// Pulls under way, by name; held while files are read and written.
    pulling: Mutex<HashMap<String, UnderWay>>,
}

/// A pull under way. Dropped before it has [`finished`](Pulling::finished) or [`failed`](Pulling::failed), the image may
/// still come, and is usable by no pod then.
#[derive(Debug)]
pub(in crate::images) struct Pulling {
    records: Arc<PullRecords>,
    image: String,
    /// Set once the outcome of the pull is known.
    ended: bool,
}

impl PullRecords {
    pub(in crate::images) fn new(folder: PathBuf) -> Arc<Self> {
        Arc::new(Self {
            folder,
            pulling: Mutex::default(),
        })
    }

    fn intent(&self, image: &str) -> PathBuf {
        self.folder.join("pulling").join(name_of(image))
    }

    fn record(&self, image_ref: &str) -> PathBuf {
        self.folder.join("pulled").join(name_of(image_ref))
    }

    /// Notes that an image is about to be pulled; `there` is the id of what is there under its name.
    pub(in crate::images) fn begin(
        self: &Arc<Self>,
        image: &str,
        there: Option<&str>,
    ) -> std::io::Result<Pulling> {
        let mut pulling = self.pulling.lock();
        let path = self.intent(image);
        let begun = path.try_exists()?;
        if !begun {
            let preloaded = there.filter(|id| self.known(image, id) == History::Preloaded);
            let intent = Intent {
                image: image.to_owned(),
                preloaded: preloaded.map(str::to_owned),
            };
            write(&path, intent.text().as_bytes())?;
        }
        let under_way = pulling.entry(image.to_owned()).or_default();
        under_way.may_have_come |= begun && under_way.pulls == 0;
        under_way.pulls += 1;
        Ok(Pulling {
            records: Arc::clone(self),
            image: image.to_owned(),
            ended: false,
        })
    }

    /// Returns the record of a present image.
    pub(in crate::images) fn history(&self, image: &str, image_ref: &str) -> History {
        let _pulling = self.pulling.lock();
        self.known(image, image_ref)
    }

    fn known(&self, image: &str, image_ref: &str) -> History {
        match (self.load(image_ref), Intent::read(&self.intent(image))) {
            (Ok(Some(record)), _) => History::Pulled(record),
            (Ok(None), Err(error)) if error.kind() == std::io::ErrorKind::NotFound => History::Preloaded,
            (Ok(None), Ok(intent)) if intent.preloaded_as(image_ref) => History::Preloaded,
            _ => History::Unknown,
        }
    }

    /// Notes that an image may also be used with this.
    pub(in crate::images) fn add(
        &self,
        repository: &str,
        image_ref: &str,
        with: PulledWith,
    ) -> std::io::Result<()> {
        let _pulling = self.pulling.lock();
        self.merge(repository, image_ref, with)
    }

    /// Records a finished pull. A preloaded image stays open to all pods under the names that it had then, whichever pod pulls it with
    /// any credentials. An image that another pod is pulling is not preloaded.
    fn finish(&self, image: &str, image_ref: &str, pulled: Pulled) -> std::io::Result<()> {
        let _pulling = self.pulling.lock();
        let mut with = pulled.with;
        if matches!(self.load(image_ref), Ok(None)) {
            if Intent::read(&self.intent(image)).is_ok_and(|intent| intent.preloaded_as(image_ref)) {
                with = PulledWith::credential(None);
            }
            let mut coming = self.coming(image_ref);
            coming.push(pulled.repository.clone());
            let mut others: Vec<String> = pulled.names.iter().map(|name| repository_of(name)).collect();
            others.retain(|repository| !coming.contains(repository));
            for repository in others {
                self.merge(&repository, image_ref, PulledWith::credential(None))?;
            }
        }
        self.merge(&pulled.repository, image_ref, with)
    }

    /// The repositories of pulls that have begun, are not known to have ended, and may bring this image.
    fn coming(&self, image_ref: &str) -> Vec<String> {
        let intents = self.intents().into_iter();
        intents
            .filter(|intent| !intent.preloaded_as(image_ref))
            .map(|intent| repository_of(&intent.image))
            .collect()
    }

    fn intents(&self) -> Vec<Intent> {
        let entries = std::fs::read_dir(self.folder.join("pulling"));
        let files = entries.into_iter().flatten().flatten();
        files
            .filter_map(|entry| Intent::read(&entry.path()).ok())
            .collect()
    }

    /// The images whose pulls ended without a word, and are not pulled now.
    pub(in crate::images) fn abandoned(&self) -> Vec<String> {
        let pulling = self.pulling.lock();
        let names = self.intents().into_iter().map(|intent| intent.image);
        names.filter(|image| !pulling.contains_key(image)).collect()
    }

    /// Ends the intent of an abandoned pull: `came` is what is there under the image's name, and its other names. That
    /// may be what the pull has brought, and with what is not known.
    pub(in crate::images) fn settle(
        &self,
        image: &str,
        came: Option<(&str, Vec<String>)>,
    ) -> std::io::Result<()> {
        if let Some((image_ref, names)) = came {
            let pulled = Pulled {
                repository: repository_of(image),
                names,
                with: PulledWith::default(),
            };
            self.finish(image, image_ref, pulled)?;
        }
        let pulling = self.pulling.lock();
        match pulling.contains_key(image) {
            true => Ok(()),
            false => std::fs::remove_file(self.intent(image)),
        }
    }

    fn merge(&self, repository: &str, image_ref: &str, with: PulledWith) -> std::io::Result<()> {
        let mut record = self.load(image_ref).ok().flatten().unwrap_or_default();
        record.image_ref = image_ref.to_owned();
        record
            .credential_mapping
            .entry(repository.to_owned())
            .or_default()
            .merge(with);
        write(&self.record(image_ref), &serde_json::to_vec(&record)?)
    }

    fn load(&self, image_ref: &str) -> std::io::Result<Option<PullRecord>> {
        match node_sys::fs::read_head(&self.record(image_ref), RECORD_BYTES_MAX) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The records there are, to be looked at before the images are listed.
    pub(in crate::images) fn all(&self) -> Vec<RecordFile> {
        let _pulling = self.pulling.lock();
        let entries = std::fs::read_dir(self.folder.join("pulled"));
        let files = entries.into_iter().flatten().flatten();
        files
            .filter_map(|entry| Some((entry.path(), entry.metadata().ok()?.modified().ok()?)))
            .collect()
    }

    /// Forgets those of images that are there no more. One written since it was looked at is of an image pulled since.
    pub(in crate::images) fn forget_others(&self, looked_at: Vec<RecordFile>, image_refs: &[String]) {
        let _pulling = self.pulling.lock();
        let known: Vec<PathBuf> = image_refs
            .iter()
            .map(|image_ref| self.record(image_ref))
            .collect();
        for (path, written) in looked_at {
            let unchanged = std::fs::metadata(&path).and_then(|now| now.modified()).ok() == Some(written);
            if unchanged && !known.contains(&path) {
                // One that stays has its image verified.
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

impl Pulling {
    /// The image has come.
    pub(in crate::images) fn finished(mut self, image_ref: &str, pulled: Pulled) -> std::io::Result<()> {
        self.records.finish(&self.image, image_ref, pulled)?;
        self.ended = true;
        Ok(())
    }

    /// Nothing has come.
    pub(in crate::images) fn failed(mut self) {
        self.ended = true;
    }
}

impl Drop for Pulling {
    fn drop(&mut self) {
        let mut pulling = self.records.pulling.lock();
        let Some(under_way) = pulling.get_mut(&self.image) else {
            return;
        };
        under_way.may_have_come |= !self.ended;
        under_way.pulls -= 1;
        if under_way.pulls > 0 {
            return;
        }
        let may_have_come = under_way.may_have_come;
        pulling.remove(&self.image);
        if !may_have_come {
            // One that stays is settled later.
            let _ = std::fs::remove_file(self.records.intent(&self.image));
        }
    }
}

fn name_of(text: &str) -> String {
    super::digest::hex(&Sha256::digest(text))
}

fn write(path: &Path, content: &[u8]) -> std::io::Result<()> {
    node_sys::fs::make_private_folder(path.parent().unwrap_or(Path::new("/")))?;
    node_sys::fs::write_atomically(path, content, 0o600)
}

#[cfg(test)]
mod tests;
