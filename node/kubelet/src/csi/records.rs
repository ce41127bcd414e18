//! Records of volumes, written before their drivers are called: upstream's `vol_data.json`, in its form.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::places::{Root, VolumeKey};

const FILE: &str = "vol_data.json";
/// A larger file is no record.
const BYTES_MAX: u64 = 64 << 10;
/// Records of one folder that are read.
const RECORDS_MAX: usize = 4_096;

/// A record of a volume, of a pod or staged for all. Upstream's names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct VolumeData {
    pub(super) driver_name: String,
    pub(super) volume_handle: String,
    #[serde(default, rename = "specVolID", skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) node_name: String,
    #[serde(default, rename = "attachmentID", skip_serializing_if = "String::is_empty")]
    pub(super) attachment: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) volume_lifecycle_mode: String,
}

impl VolumeData {
    /// The record of a volume that is staged.
    pub(super) fn of_staged(key: &VolumeKey) -> Self {
        Self {
            driver_name: key.driver.clone(),
            volume_handle: key.handle.clone(),
            ..Self::default()
        }
    }

    /// The volume.
    pub(super) fn key(&self) -> VolumeKey {
        VolumeKey {
            driver: self.driver_name.clone(),
            handle: self.volume_handle.clone(),
        }
    }

    /// Writes it beside the place of the volume, whose folder is made. Blocks.
    pub(super) fn save(&self, place: &Path) -> io::Result<()> {
        let folder = place.parent().unwrap_or(place);
        node_sys::fs::make_private_folder(folder)?;
        let text = serde_json::to_vec(self)?;
        node_sys::fs::write_durably(&folder.join(FILE), &text, 0o600)
    }

    fn load(folder: &Path) -> io::Result<Self> {
        let text = node_sys::fs::read_regular(&folder.join(FILE), BYTES_MAX)?;
        Ok(serde_json::from_slice(&text)?)
    }
}

/// Reports whether a volume has no record beside its place yet. Blocks.
///
/// # Errors
/// Another volume has the place, as an inline volume that is named as the pod's PersistentVolume; or what is there cannot be read.
pub(super) fn is_new(place: &Path, own: &VolumeData) -> io::Result<bool> {
    match VolumeData::load(place.parent().unwrap_or(place)) {
        Ok(found) if found.key() == own.key() => Ok(false),
        Ok(found) => Err(io::Error::other(format!(
            "the volume {:?} of {} has this place",
            found.volume_handle, found.driver_name
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// Removes the place of a volume and its record; nothing is there any more, also where it was not before. Blocks.
///
/// # Errors
/// Something is left in the place, which the driver was to empty.
pub(super) fn remove(place: &Path) -> io::Result<()> {
    let folder = place.parent().unwrap_or(place);
    // A driver's place is a folder, or the file of a device.
    let emptied = std::fs::remove_dir(place).or_else(|error| match error.kind() {
        io::ErrorKind::NotADirectory => std::fs::remove_file(place),
        _ => Err(error),
    });
    unless_missing(emptied)?;
    unless_missing(std::fs::remove_file(folder.join(FILE)))?;
    unless_missing(std::fs::remove_dir(folder))
}

fn unless_missing(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

/// A record of a pod's volume, by the name of its folder.
pub(super) type PodRecord = (String, io::Result<VolumeData>);

/// Records of a pod's volumes; folders without one are passed over. Blocks.
///
/// # Errors
/// The folder cannot be read. A record that cannot is an error of its own: its volume may be shown.
pub(super) fn of_pod(root: &Root, pod_uid: &str) -> io::Result<Vec<PodRecord>> {
    let mut all = Vec::new();
    for folder in folders(&root.of_pod(pod_uid))? {
        let name = folder.file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        match VolumeData::load(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => all.push((name, found)),
        }
    }
    Ok(all)
}

/// Volumes of this node that earlier agents have written down.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    pub(super) staged: Vec<VolumeData>,
    /// Each with the pod's uid and the name of its folder.
    pub(super) of_pods: Vec<(String, String, VolumeData)>,
}

/// Reads all records; those that cannot be read keep no other from being known. Blocks.
pub(super) fn all(root: &Root, pod_uids: impl IntoIterator<Item = String>) -> Recorded {
    let not_read = |error: &io::Error, pod: &str| tracing::error!(%error, pod, "records of volumes not read");
    let staged = staged(root).unwrap_or_else(|error| {
        not_read(&error, "");
        Vec::new()
    });
    let mut of_pods = Vec::new();
    for uid in pod_uids {
        let found = of_pod(root, &uid).unwrap_or_else(|error| {
            not_read(&error, &uid);
            Vec::new()
        });
        for (name, data) in found {
            match data {
                Ok(data) => of_pods.push((uid.clone(), name, data)),
                Err(error) => not_read(&error, &uid),
            }
        }
    }
    Recorded { staged, of_pods }
}

/// Records of staged volumes. Blocks.
///
/// # Errors
/// Their folder cannot be read.
pub(super) fn staged(root: &Root) -> io::Result<Vec<VolumeData>> {
    let mut all = Vec::new();
    for folder in folders(&root.staged())?
        .iter()
        .filter_map(|driver| folders(driver).ok())
        .flatten()
    {
        let own = loaded(&folder).filter(|data| root.staging(&data.key()).parent() == Some(&folder));
        all.extend(own);
    }
    Ok(all)
}

fn loaded(folder: &Path) -> Option<VolumeData> {
    match VolumeData::load(folder) {
        Ok(data) => Some(data),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::error!(%error, folder = %folder.display(), "record of a volume not read");
            None
        }
    }
}

/// The folders in a folder; none where that is not there, or another file is.
fn folders(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(Vec::new());
        }
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries.take(RECORDS_MAX) {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> VolumeKey {
        VolumeKey {
            driver: "d.example".to_owned(),
            handle: "v".to_owned(),
        }
    }

    #[test]
    fn records_are_read_again_in_upstreams_form() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let data = VolumeData {
            name: "pv".to_owned(),
            node_name: "n1".to_owned(),
            attachment: key().attachment("n1"),
            volume_lifecycle_mode: "Persistent".to_owned(),
            ..VolumeData::of_staged(&key())
        };
        let target = root.target("uid", "pv");
        data.save(&target).unwrap();
        let text = std::fs::read_to_string(target.with_file_name(FILE)).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let names: Vec<&String> = value.as_object().unwrap().keys().collect();
        let expected = [
            "attachmentID",
            "driverName",
            "nodeName",
            "specVolID",
            "volumeHandle",
            "volumeLifecycleMode",
        ];
        assert_eq!(names, expected);
        assert!(!is_new(&target, &data).unwrap());
        assert!(is_new(&root.target("uid", "other"), &data).unwrap());
        let other = VolumeData {
            volume_handle: "w".to_owned(),
            ..data.clone()
        };
        is_new(&target, &other).unwrap_err();
        let (name, found) = of_pod(&root, "uid").unwrap().remove(0);
        assert_eq!((name.as_str(), found.unwrap()), ("pv", data));
        assert!(of_pod(&root, "other").unwrap().is_empty());
        std::fs::create_dir(&target).unwrap();
        remove(&target).unwrap();
        assert!(of_pod(&root, "uid").unwrap().is_empty());
        remove(&target).unwrap();
    }

    #[test]
    fn record_that_cannot_be_read_is_an_error_and_hides_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let data = VolumeData::of_staged(&key());
        data.save(&root.target("uid", "whole")).unwrap();
        data.save(&root.target("uid", "damaged")).unwrap();
        std::fs::write(root.of_pod("uid").join("damaged").join(FILE), "{").unwrap();
        let own = of_pod(&root, "uid").unwrap();
        let is_read: Vec<(&str, bool)> = own
            .iter()
            .map(|(name, found)| (name.as_str(), found.is_ok()))
            .collect();
        assert_eq!(is_read, [("damaged", false), ("whole", true)]);
        // Something else of that name is no pod's folder.
        std::fs::write(folder.path().join("pods/stray"), "").unwrap();
        let recorded = all(&root, ["stray", "uid", "missing"].map(str::to_owned));
        assert_eq!(recorded.of_pods, [("uid".to_owned(), "whole".to_owned(), data)]);
    }

    #[test]
    fn records_that_are_damaged_or_elsewhere_are_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let staged_volume = VolumeData::of_staged(&key());
        staged_volume.save(&root.staging(&key())).unwrap();
        staged_volume
            .save(&root.staged().join("other.example/0123/globalmount"))
            .unwrap();
        let damaged = root.staged().join("d.example/damaged");
        std::fs::create_dir(&damaged).unwrap();
        std::fs::write(damaged.join(FILE), "{").unwrap();
        let found = staged(&root).unwrap();
        assert_eq!(found, [staged_volume]);
    }

    #[test]
    fn place_that_its_driver_left_full_stays_with_its_record() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let place = root.staging(&key());
        VolumeData::of_staged(&key()).save(&place).unwrap();
        std::fs::create_dir(&place).unwrap();
        std::fs::write(place.join("file"), "").unwrap();
        remove(&place).unwrap_err();
        assert_eq!(staged(&root).unwrap().len(), 1);
        assert!(place.join("file").try_exists().unwrap());
    }
}
