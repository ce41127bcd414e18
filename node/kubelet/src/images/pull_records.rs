//! Which credentials each pulled image was pulled with: a pod that has none of them must pull it itself before it may
//! use it (upstream's KubeletEnsureSecretPulledImages, on by default, with the policy `NeverVerifyPreloadedImages`).
//!
//! ```text
//! image_manager/pulling/<sha256 of the image's name>  a pull has begun
//! image_manager/pulled/<sha256 of the image's id>    a pull has ended: who may use the image, by repository
//! ```
//!
//! An image without either was put here by the node's owner, and is everybody's. One whose pull was begun and not
//! recorded, since the agent died, is nobody's until it is pulled again.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::credentials::repository_of;

/// A record names no more secrets than this; upstream's.
const SECRETS_MAX: usize = 100;
/// A longer image name is not one of ours.
const NAME_BYTES_MAX: u64 = 4096;
/// A longer record is not one of ours.
const RECORD_BYTES_MAX: u64 = 1 << 20;

/// A secret, and a digest of what it held for the registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SecretCredential {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) credential_hash: String,
}

impl SecretCredential {
    fn same_secret(&self, other: &Self) -> bool {
        (&self.uid, &self.namespace, &self.name) == (&other.uid, &other.namespace, &other.name)
    }
}

/// What an image was pulled with under one name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PulledWith {
    /// Without credentials: every pod of the node may use it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) node_pods_accessible: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) kubernetes_secrets: Vec<SecretCredential>,
}

impl PulledWith {
    /// The credential that a pull succeeded with; without one, anybody's would.
    pub(super) fn credential(used: Option<SecretCredential>) -> Self {
        Self {
            node_pods_accessible: used.is_none(),
            kubernetes_secrets: used.into_iter().collect(),
        }
    }

    fn merge(&mut self, other: Self) {
        if self.node_pods_accessible || other.node_pods_accessible {
            *self = Self::credential(None);
            return;
        }
        for secret in other.kubernetes_secrets {
            let known = &mut self.kubernetes_secrets;
            match known.iter().position(|known| known.same_secret(&secret)) {
                Some(place) => known[place] = secret,
                None if known.len() < SECRETS_MAX => known.push(secret),
                // The pod that it belongs to will pull again.
                None => {}
            }
        }
    }
}

/// What is known of an image that has been pulled.
#[derive(Debug)]
pub(super) struct Pulled {
    pub(super) repository: String,
    /// All it is called here.
    pub(super) names: Vec<String>,
    pub(super) with: PulledWith,
}

/// One image that was pulled here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PullRecord {
    image_ref: String,
    /// By the image's repository.
    credential_mapping: BTreeMap<String, PulledWith>,
}

/// What is known of an image that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum History {
    /// Nobody here has pulled it.
    Preloaded,
    /// It was pulled, and with what is not known.
    Unknown,
    /// It was pulled with these.
    Pulled(PullRecord),
}

/// Whether a pod may use an image that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Access {
    Granted,
    /// By a secret whose name or content has changed since; it is to be recorded too.
    GrantedBy(SecretCredential),
    /// It must be pulled with what the pod has.
    Verify,
}

impl History {
    /// Whether nothing has to be known of the pod.
    pub(super) fn is_open(&self, repository: &str) -> bool {
        match self {
            Self::Preloaded => true,
            Self::Unknown => false,
            Self::Pulled(record) => record
                .credential_mapping
                .get(repository)
                .is_some_and(|with| with.node_pods_accessible),
        }
    }

    /// Whether a pod with these credentials may use the image under this name.
    pub(super) fn access<'a>(
        &self,
        repository: &str,
        credentials: impl IntoIterator<Item = &'a SecretCredential>,
    ) -> Access {
        if self.is_open(repository) {
            return Access::Granted;
        }
        let known = match self {
            Self::Pulled(record) => record.credential_mapping.get(repository),
            _ => None,
        };
        let known = known
            .map(|with| with.kubernetes_secrets.as_slice())
            .unwrap_or_default();
        for own in credentials {
            for known in known {
                let same_content = known.credential_hash == own.credential_hash;
                match (same_content, known.same_secret(own)) {
                    (true, true) => return Access::Granted,
                    (true, false) | (false, true) => return Access::GrantedBy(own.clone()),
                    (false, false) => {}
                }
            }
        }
        Access::Verify
    }
}

/// A record, and when it was written.
pub(super) type RecordFile = (PathBuf, std::time::SystemTime);

/// The records on disk. All methods block.
#[derive(Debug)]
pub(super) struct PullRecords {
    folder: PathBuf,
    /// Pulls under way, by name; held while files are read and written.
    pulling: Mutex<HashMap<String, usize>>,
}

/// A pull under way. Dropped before it has [`finished`](Pulling::finished) or [`failed`](Pulling::failed), the image may
/// still come, and is nobody's then.
#[derive(Debug)]
pub(super) struct Pulling {
    records: Arc<PullRecords>,
    image: String,
    /// How it has ended is known.
    ended: bool,
}

impl PullRecords {
    pub(super) fn new(folder: PathBuf) -> Arc<Self> {
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

    /// Notes that an image is about to be pulled.
    pub(super) fn begin(self: &Arc<Self>, image: &str) -> std::io::Result<Pulling> {
        let mut pulling = self.pulling.lock();
        write(&self.intent(image), image.as_bytes())?;
        *pulling.entry(image.to_owned()).or_default() += 1;
        Ok(Pulling {
            records: Arc::clone(self),
            image: image.to_owned(),
            ended: false,
        })
    }

    /// What is known of an image that is there.
    pub(super) fn history(&self, image: &str, image_ref: &str) -> History {
        let _pulling = self.pulling.lock();
        match self.load(image_ref) {
            Ok(Some(record)) => History::Pulled(record),
            Ok(None) if !self.intent(image).try_exists().unwrap_or(true) => History::Preloaded,
            _ => History::Unknown,
        }
    }

    /// Notes that an image may also be used with this.
    pub(super) fn add(&self, repository: &str, image_ref: &str, with: PulledWith) -> std::io::Result<()> {
        let _pulling = self.pulling.lock();
        self.merge(repository, image_ref, with)
    }

    fn finish(&self, image_ref: &str, pulled: Pulled) -> std::io::Result<()> {
        let _pulling = self.pulling.lock();
        if matches!(self.load(image_ref), Ok(None)) {
            // The node's owner may have put the same image here under other names: under those it stays everybody's,
            // whoever pulls it with what. What another pod is pulling is not among them.
            let mut coming = self.coming();
            coming.push(pulled.repository.clone());
            let mut others: Vec<String> = pulled.names.iter().map(|name| repository_of(name)).collect();
            others.retain(|repository| !coming.contains(repository));
            for repository in others {
                self.merge(&repository, image_ref, PulledWith::credential(None))?;
            }
        }
        self.merge(&pulled.repository, image_ref, pulled.with)
    }

    /// The repositories of pulls that have begun and are not known to have ended.
    fn coming(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.join("pulling"));
        let files = entries.into_iter().flatten().flatten();
        let names = files.filter_map(|entry| node_sys::fs::read_head(&entry.path(), NAME_BYTES_MAX).ok());
        names
            .map(|name| repository_of(&String::from_utf8_lossy(&name)))
            .collect()
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
    pub(super) fn all(&self) -> Vec<RecordFile> {
        let _pulling = self.pulling.lock();
        let entries = std::fs::read_dir(self.folder.join("pulled"));
        let files = entries.into_iter().flatten().flatten();
        files
            .filter_map(|entry| Some((entry.path(), entry.metadata().ok()?.modified().ok()?)))
            .collect()
    }

    /// Forgets those of images that are there no more. One written since it was looked at is of an image pulled since.
    pub(super) fn forget_others(&self, looked_at: Vec<RecordFile>, image_refs: &[String]) {
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
    pub(super) fn finished(mut self, image_ref: &str, pulled: Pulled) -> std::io::Result<()> {
        self.records.finish(image_ref, pulled)?;
        self.ended = true;
        Ok(())
    }

    /// Nothing has come.
    pub(super) fn failed(mut self) {
        self.ended = true;
    }
}

impl Drop for Pulling {
    fn drop(&mut self) {
        let mut pulling = self.records.pulling.lock();
        let left = pulling.remove(&self.image).unwrap_or_default().saturating_sub(1);
        if left > 0 {
            pulling.insert(self.image.clone(), left);
        }
        if left > 0 || !self.ended {
            return;
        }
        // One that stays has the image pulled once more.
        let _ = std::fs::remove_file(self.records.intent(&self.image));
    }
}

fn name_of(text: &str) -> String {
    super::hex(&Sha256::digest(text))
}

fn write(path: &Path, content: &[u8]) -> std::io::Result<()> {
    node_sys::fs::make_private_folder(path.parent().unwrap_or(Path::new("/")))?;
    node_sys::fs::write_atomically(path, content, 0o600)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "registry.test/app";
    const IMAGE: &str = "registry.test/app:1";
    const ID: &str = "sha256:ab";

    fn secret(name: &str, hash: &str) -> SecretCredential {
        SecretCredential {
            uid: format!("uid of {name}"),
            namespace: "n".into(),
            name: name.into(),
            credential_hash: hash.into(),
        }
    }

    fn records() -> (tempfile::TempDir, Arc<PullRecords>) {
        let folder = tempfile::tempdir().unwrap();
        let records = PullRecords::new(folder.path().join("image_manager"));
        (folder, records)
    }

    #[test]
    fn pulled_image_is_only_for_pods_with_its_credentials() {
        let (_folder, records) = records();
        let history = || records.history(IMAGE, ID);
        assert_eq!(history(), History::Preloaded);
        assert_eq!(history().access(NAME, []), Access::Granted);
        let pulling = records.begin(IMAGE).unwrap();
        assert_eq!(
            history().access(NAME, []),
            Access::Verify,
            "it has just come, from whom is not known"
        );
        let own = secret("own", "1");
        pulling.finished(ID, pulled(&[], Some(own.clone()))).unwrap();
        let access = |credentials: &[SecretCredential]| history().access(NAME, credentials);
        assert_eq!(access(&[]), Access::Verify);
        assert_eq!(access(&[secret("other", "2")]), Access::Verify);
        assert_eq!(access(&[secret("other", "2"), own.clone()]), Access::Granted);
        let copied = secret("copied", "1");
        assert_eq!(
            access(std::slice::from_ref(&copied)),
            Access::GrantedBy(copied),
            "the same content"
        );
        let changed = secret("own", "3");
        assert_eq!(
            access(std::slice::from_ref(&changed)),
            Access::GrantedBy(changed),
            "the same secret"
        );
        assert_eq!(
            history().access("mirror.test/app", [&own]),
            Access::Verify,
            "under another name"
        );
        records.add(NAME, ID, PulledWith::credential(None)).unwrap();
        assert_eq!(access(&[]), Access::Granted, "the registry gives it to everybody");
    }

    fn pulled(names: &[&str], with: Option<SecretCredential>) -> Pulled {
        Pulled {
            repository: NAME.into(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            with: PulledWith::credential(with),
        }
    }

    #[test]
    fn pulled_image_that_was_preloaded_stays_open_under_its_own_name() {
        let (_folder, records) = records();
        let other = records.begin("other.test/app:1").unwrap();
        let names = [IMAGE, "local.test/app:1", "other.test/app@sha256:cd"];
        let with = || pulled(&names, Some(secret("own", "1")));
        records.begin(IMAGE).unwrap().finished(ID, with()).unwrap();
        let open = |repository: &str| records.history(IMAGE, ID).is_open(repository);
        assert!(open("local.test/app"));
        assert!(!open(NAME));
        assert!(!open("other.test/app"), "another pod is pulling it");
        other.failed();
        records.begin(IMAGE).unwrap().finished(ID, with()).unwrap();
        assert!(!open("other.test/app"), "it was not there before the first pull");
    }

    #[test]
    fn pulled_image_of_an_agent_that_died_is_verified() {
        let (folder, records) = records();
        std::mem::forget(records.begin(IMAGE).unwrap());
        let next = PullRecords::new(folder.path().join("image_manager"));
        assert_eq!(next.history(IMAGE, ID), History::Unknown);
        next.begin(IMAGE).unwrap().failed();
        assert_eq!(
            next.history(IMAGE, ID),
            History::Preloaded,
            "a pull that failed brought nothing"
        );
        std::fs::create_dir_all(next.record(ID).parent().unwrap()).unwrap();
        std::fs::write(next.record(ID), "{").unwrap();
        assert_eq!(next.history(IMAGE, ID), History::Unknown, "half a record");
    }

    #[test]
    fn pulled_image_whose_pull_was_abandoned_is_verified() {
        let (_folder, records) = records();
        drop(records.begin(IMAGE).unwrap());
        assert_eq!(
            records.history(IMAGE, ID),
            History::Unknown,
            "it may have come all the same"
        );
        let (one, other) = (records.begin(IMAGE).unwrap(), records.begin(IMAGE).unwrap());
        one.failed();
        assert_eq!(
            records.history(IMAGE, ID),
            History::Unknown,
            "another is under way"
        );
        other.failed();
        assert_eq!(records.history(IMAGE, ID), History::Preloaded);
    }

    #[test]
    fn pulled_images_that_are_gone_are_forgotten() {
        let (_folder, records) = records();
        for id in [ID, "sha256:cd"] {
            records.add(NAME, id, PulledWith::credential(None)).unwrap();
        }
        let looked_at = records.all();
        records
            .add(NAME, "sha256:ef", PulledWith::credential(None))
            .unwrap();
        records.forget_others(looked_at, &[ID.to_owned()]);
        let known = |id: &str| matches!(records.history(IMAGE, id), History::Pulled(_));
        assert!(known(ID) && known("sha256:ef"));
        assert_eq!(records.history(IMAGE, "sha256:cd"), History::Preloaded);
    }
}
