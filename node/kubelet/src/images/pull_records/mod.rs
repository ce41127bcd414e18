//! Credentials with which each image was pulled: a pod that has none of them must pull it itself before it may
//! use it (upstream's KubeletEnsureSecretPulledImages, on by default, with the policy `NeverVerifyPreloadedImages`).
//!
//! ```text
//! image_manager/pulling/<sha256 of the image's name>  a pull has begun ([`intent`])
//! image_manager/pulled/<sha256 of the image's id>    a pull has ended: names that it was preloaded under, and the credentials
//!                                                    for the image by repository ([`history`], [`bounds`])
//! ```
//!
//! An image without a record was put here by the node's owner, and is open to all pods, under those of its names that no pull may have
//! brought; the first record of it says which these are. A pull that begins while it is there notes its id, so that no pod
//! takes it from the others by a pull. Any other image whose pull was begun and not recorded, since its pod was deleted or the agent died,
//! is usable by no pod until it is pulled again. Upkeep ([`super::upkeep`]) settles the intents that such pulls leave.
//!
//! Never: a record that starts over because the present one cannot be read. Its image is then for those alone that pull it.

mod bounds;
mod history;
mod intent;
mod shares;

pub(super) use history::{
    Access, CredentialSource, History, PulledWith, SecretCredential, ServiceAccountCredential,
};

use std::collections::{HashMap, HashSet};
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::credentials::{full_name, repository_of};
use history::PullRecord;
use intent::{Intent, Intents};

/// A longer record is not one of ours; older agents wrote longer ones than this does.
const READ_BYTES_MAX: u64 = 1 << 20;

/// An image that is here, with all of its names in full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::images) struct Found {
    pub(in crate::images) id: String,
    pub(in crate::images) names: Vec<String>,
}

impl Found {
    /// One with the runtime's names for it.
    pub(in crate::images) fn new(id: &str, names: &[String]) -> Self {
        Self {
            id: id.to_owned(),
            names: names.iter().map(|name| full_name(name)).collect(),
        }
    }
}

/// Outcome of a pull.
#[derive(Debug)]
pub(in crate::images) struct Pulled {
    /// The image that has come.
    pub(in crate::images) found: Found,
    /// Namespace of the pod.
    pub(in crate::images) namespace: String,
    pub(in crate::images) with: PulledWith,
}

/// A record, and when it was written.
pub(in crate::images) type RecordFile = (PathBuf, std::time::SystemTime);

/// An abandoned pull: the image's name, and the number of its pulls so far.
pub(in crate::images) type Abandoned = (String, u64);

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

    fn intents_folder(&self) -> PathBuf {
        self.folder.join("pulling")
    }

    fn intent(&self, image: &str) -> PathBuf {
        self.intents_folder().join(name_of(image))
    }

    fn record(&self, image_ref: &str) -> PathBuf {
        self.folder.join("pulled").join(name_of(image_ref))
    }

    /// Notes that an image is about to be pulled; `there` is what is there under its name, `images` is all that is there.
    pub(in crate::images) fn begin(
        self: &Arc<Self>,
        image: &str,
        there: Option<&Found>,
        images: &[Found],
    ) -> std::io::Result<Pulling> {
        let mut pulling = self.pulling.lock();
        let path = self.intent(image);
        let begun = path.try_exists()?;
        let mut intent = match begun {
            false => self.first_intent(image, there, images)?,
            // One that cannot be read says nothing of what was there.
            true => Intent::read(&path).unwrap_or_else(|_| Intent::of(image)),
        };
        intent.begun = intent.begun.saturating_add(1);
        write(&path, &intent.content()?)?;
        let under_way = pulling.entry(image.to_owned()).or_default();
        under_way.may_have_come |= begun && under_way.pulls == 0;
        under_way.pulls += 1;
        Ok(Pulling {
            records: Arc::clone(self),
            image: image.to_owned(),
            ended: false,
        })
    }

    fn first_intent(&self, image: &str, there: Option<&Found>, images: &[Found]) -> std::io::Result<Intent> {
        let intents = Intents::of(&self.intents_folder())?;
        let is_preloaded =
            |found: &Found| matches!(self.known(&intents, image, found), Ok(History::Preloaded));
        let preloaded = there.filter(|found| is_preloaded(found));
        let repository = repository_of(image);
        let mut by_digest = Vec::new();
        for found in images {
            let own = found.names.iter().filter(|name| name.contains('@'));
            let own = own.filter(|name| {
                repository_of(name) == repository && !intents.may_have_brought(name, &found.id)
            });
            let own: Vec<&String> = own.collect();
            // Of one that was pulled its record says who may use it.
            if !own.is_empty() && matches!(self.load(&found.id), Ok(None)) {
                by_digest.extend(own.into_iter().cloned());
            }
        }
        Ok(Intent {
            preloaded: preloaded.map(|found| found.id.clone()),
            there: by_digest,
            ..Intent::of(image)
        })
    }

    /// Returns the record of a present image.
    pub(in crate::images) fn history(&self, image: &str, found: &Found) -> History {
        let _pulling = self.pulling.lock();
        let intents = Intents::of(&self.intents_folder());
        intents
            .and_then(|intents| self.known(&intents, image, found))
            .unwrap_or_else(|error| {
                tracing::error!(%error, image, "records of pulls cannot be read; the image is for pods that pull it");
                History::Unknown
            })
    }

    fn known(&self, intents: &Intents, image: &str, found: &Found) -> std::io::Result<History> {
        if let Some(record) = self.load(&found.id)? {
            return Ok(History::Pulled(record));
        }
        let is_brought = |name: &str| intents.may_have_brought(name, &found.id);
        // It is there under another name, as its id is: any of those that it has may have been brought.
        let is_elsewhere = !found.names.iter().any(|name| name == image);
        let elsewhere_brought = || is_elsewhere && found.names.iter().any(|name| is_brought(name));
        Ok(match is_brought(image) || elsewhere_brought() {
            true => History::Unknown,
            false => History::Preloaded,
        })
    }

    /// Notes that an image that was pulled may also be used with this.
    pub(in crate::images) fn add(&self, image: &str, pulled: Pulled) -> std::io::Result<()> {
        let _pulling = self.pulling.lock();
        match self.load(&pulled.found.id)? {
            Some(record) => self.save(record, image, pulled),
            // It has gone meanwhile.
            None => Ok(()),
        }
    }

    /// Records a finished pull. A preloaded image stays open to all pods under the names that it had then, whichever pod pulls it with
    /// any credentials. A name that another pod is pulling is not preloaded.
    fn finish(&self, image: &str, pulled: Pulled) -> std::io::Result<()> {
        let _pulling = self.pulling.lock();
        let record = match self.load(&pulled.found.id)? {
            Some(record) => record,
            None => self.first_record(&pulled.found)?,
        };
        self.save(record, image, pulled)
    }

    /// The record of an image that was not pulled before: the names are preloaded that no pull may have brought.
    fn first_record(&self, found: &Found) -> std::io::Result<PullRecord> {
        let intents = Intents::of(&self.intents_folder())?;
        let names = found.names.iter();
        let names = names.filter(|name| !intents.may_have_brought(name, &found.id));
        Ok(PullRecord {
            image_ref: found.id.clone(),
            preloaded: names.cloned().collect(),
            ..PullRecord::default()
        })
    }

    /// The pulls that ended without a word, and do not go on; `images` is all that is there. A file that is no intent, of no name that
    /// is here, is removed.
    pub(in crate::images) fn abandoned(&self, images: &[Found]) -> std::io::Result<Vec<Abandoned>> {
        let pulling = self.pulling.lock();
        let Intents { read, unread } = Intents::of(&self.intents_folder())?;
        let mut names: Vec<Abandoned> = read.into_iter().map(|own| (own.image, own.begun)).collect();
        let mut here: HashMap<String, &String> = HashMap::new();
        if !unread.is_empty() {
            let all = images.iter().flat_map(|found| &found.names);
            here.extend(all.map(|name| (name_of(name), name)));
        }
        for file in unread {
            match file.to_str().and_then(|file| here.get(file)) {
                Some(name) => names.push((name.to_string(), 0)),
                None => {
                    tracing::warn!(?file, "removing a file that is no intent of a pull");
                    // One that stays is found again.
                    let _ = std::fs::remove_file(self.intents_folder().join(file));
                }
            }
        }
        names.retain(|(image, _)| !pulling.contains_key(image));
        Ok(names)
    }

    /// Ends the intent of an abandoned pull: the images that it may have brought are recorded, and with what is not known. `came` is
    /// what is there under the image's name, `images` is all that is there.
    pub(in crate::images) fn settle(
        &self,
        image: &str,
        came: Option<&Found>,
        images: &[Found],
    ) -> std::io::Result<()> {
        let pulling = self.pulling.lock();
        let path = self.intent(image);
        let own = Intents::of_image(&path, image);
        let is_brought = |found: &&Found| {
            let mut names = found.names.iter();
            names.any(|name| own.may_have_brought(name, &found.id))
        };
        let came = came.filter(|found| !own.preloaded(&found.id));
        for found in came.into_iter().chain(images.iter().filter(is_brought)) {
            if self.load(&found.id)?.is_none() {
                self.keep(self.first_record(found)?)?;
            }
        }
        match pulling.contains_key(image) {
            true => Ok(()),
            false => std::fs::remove_file(path),
        }
    }

    fn save(&self, mut record: PullRecord, image: &str, pulled: Pulled) -> std::io::Result<()> {
        record.add(&repository_of(image), &pulled.namespace, pulled.with);
        self.keep(record)
    }

    fn keep(&self, mut record: PullRecord) -> std::io::Result<()> {
        let path = self.record(&record.image_ref);
        match record.bounded_text()? {
            Some(text) => write(&path, &text),
            None => Err(unusable(&path, "is full")),
        }
    }

    fn load(&self, image_ref: &str) -> std::io::Result<Option<PullRecord>> {
        let path = self.record(image_ref);
        let text = match node_sys::fs::read_head(&path, READ_BYTES_MAX) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let record: PullRecord = serde_json::from_slice(&text).map_err(|error| unusable(&path, error))?;
        match record.image_ref == image_ref {
            true => Ok(Some(record)),
            false => Err(unusable(&path, "is of another image")),
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
    pub(in crate::images) fn forget_others(&self, looked_at: Vec<RecordFile>, images: &[Found]) {
        let _pulling = self.pulling.lock();
        let known: HashSet<PathBuf> = images.iter().map(|found| self.record(&found.id)).collect();
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
    pub(in crate::images) fn finished(mut self, pulled: Pulled) -> std::io::Result<()> {
        self.records.finish(&self.image, pulled)?;
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

fn unusable(record: &Path, why: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorKind::InvalidData,
        format!("record {}: {why}", record.display()),
    )
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
