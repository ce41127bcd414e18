//! The folder of manifests: its files in the order of their names, as many and as large as there is room for.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::manifest::{Origin, pod_of};
use crate::pods::full_name;

/// Reads a manifest, YAML or JSON, as a JSON value.
pub(crate) type Decode = fn(&[u8]) -> Result<serde_json::Value, String>;

/// Source of static pods.
#[derive(Debug, Clone)]
pub struct StaticPodSource {
    /// Folder of their files.
    pub path: PathBuf,
    /// Reader of a file's format.
    pub decode: Decode,
}

/// A larger file is no manifest; objects of the API server are no larger, either.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Files beyond it are not read; a node has room for fewer pods.
const FILES_MAX: usize = 512;

/// Knowledge of a file.
#[derive(Debug, Default)]
struct ManifestFile {
    /// Size, inode and time of the content that was read last.
    stamp: Option<(u64, u64, i64, i64)>,
    /// The last pod that it was; it stays while the file cannot be read as one.
    pod: Option<Arc<Pod>>,
}

/// The folder as it was read last.
#[derive(Debug)]
pub(crate) struct Folder {
    source: StaticPodSource,
    node_name: String,
    files: BTreeMap<PathBuf, ManifestFile>,
    /// Problems that the log has: each is logged once.
    reported: BTreeSet<String>,
}

impl Folder {
    /// A folder that is not read yet.
    pub(crate) fn new(source: StaticPodSource, node_name: String) -> Self {
        Self {
            source,
            node_name,
            files: BTreeMap::new(),
            reported: BTreeSet::new(),
        }
    }

    /// Reads what has changed and returns the pods of all files; a folder that is not there has none. Blocks.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub(crate) fn read(&mut self) -> std::io::Result<Vec<Arc<Pod>>> {
        let paths = match list(&self.source.path) {
            Ok(paths) => paths,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                self.report(format!("{}: {error}", self.source.path.display()));
                return Err(error);
            }
        };
        if paths.len() > FILES_MAX {
            let most = format!("more than {FILES_MAX} files of static pods: the others are not read");
            self.report(most);
        }
        let paths: BTreeSet<PathBuf> = paths.into_iter().take(FILES_MAX).collect();
        self.files.retain(|path, _| paths.contains(path));
        for path in paths {
            if let Err(problem) = self.read_file(&path) {
                self.report(format!("{}: {problem}", path.display()));
            }
        }
        Ok(self.pods())
    }

    fn read_file(&mut self, path: &Path) -> Result<(), String> {
        let stat = std::fs::metadata(path).map_err(|error| error.to_string())?;
        if !stat.is_file() {
            return Err("manifest path is not a regular file".to_owned());
        }
        let stamp = (stat.size(), stat.ino(), stat.mtime(), stat.mtime_nsec());
        let file = self.files.entry(path.to_owned()).or_default();
        if file.stamp == Some(stamp) {
            return Ok(());
        }
        file.stamp = Some(stamp);
        if stat.size() > FILE_BYTES_MAX {
            return Err(format!("the manifest is larger than {FILE_BYTES_MAX} bytes"));
        }
        let content = node_sys::fs::read_head(path, FILE_BYTES_MAX + 1).map_err(|error| error.to_string())?;
        let value = (self.source.decode)(&content)?;
        let pod = pod_of(value, Origin::File(path), &self.node_name)?;
        file.pod = Some(Arc::new(pod));
        Ok(())
    }

    /// One pod of each name: that of the first file.
    fn pods(&mut self) -> Vec<Arc<Pod>> {
        let mut names = BTreeSet::new();
        let (mut pods, mut twice) = (Vec::new(), Vec::new());
        for (path, pod) in self
            .files
            .iter()
            .filter_map(|(path, file)| Some((path, file.pod.as_ref()?)))
        {
            match names.insert(full_name(pod)) {
                true => pods.push(pod.clone()),
                false => twice.push(format!(
                    "{}: another file has a pod of the name {}",
                    path.display(),
                    full_name(pod)
                )),
            }
        }
        twice.into_iter().for_each(|problem| self.report(problem));
        pods
    }

    fn report(&mut self, problem: String) {
        // As many problems as files are remembered.
        if self.reported.len() >= FILES_MAX {
            self.reported.clear();
        }
        if self.reported.insert(problem.clone()) {
            tracing::warn!(problem, "a static pod cannot be read");
        }
    }
}

/// Files that are not hidden, by name; folders in it are passed over, as upstream's.
fn list(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    // A folder full of other things is not read for ever.
    for entry in std::fs::read_dir(folder)?.take(16 * FILES_MAX) {
        let entry = entry?;
        let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
        if !is_hidden && !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}
