//! Pods on the disk, so that an agent that starts while the API server is away goes on with those of the agent before it.
//!
//! One file in the pod's folder, written when the pod has changed and removed when the pod is to end. It has the pod as the
//! API server sent it, and the services' variables; ConfigMaps, Secrets and tokens are not in it, they lie
//! where the pod's volumes show them.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde::{Deserialize, Serialize};

use super::source::is_to_end;
use super::worker::has_begun;
use super::{spec, uid};
use crate::config::KubeletConfig;
use crate::containers::files;

const FILE: &str = "pod.json";
/// A larger pod is neither written nor read; the API server takes objects of 3 MiB at most.
const BYTES_MAX: u64 = 8 << 20;

/// A pod as the next agent finds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SavedPod {
    /// The pod, with the status that was written last.
    pub(crate) pod: Pod,
    /// The services' variables of its containers, where they were known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) services: Option<BTreeMap<String, String>>,
}

impl SavedPod {
    /// A pod with its last status; its managed fields are left out.
    pub(crate) fn new(pod: &Pod, status: PodStatus, services: Option<BTreeMap<String, String>>) -> Self {
        let mut pod = pod.clone();
        pod.metadata.managed_fields = None;
        pod.status = Some(status);
        Self { pod, services }
    }

    /// Writes it into the pod's folder. Blocks.
    pub(crate) fn store(&self, folder: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        if text.len() as u64 > BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        std::fs::create_dir_all(folder)?;
        // Values of variables may be secret.
        node_sys::fs::write_atomically(&folder.join(FILE), &text, 0o600)
    }

    /// Reads it from a pod's folder; none where it is damaged or missing. Blocks.
    fn load(folder: &Path) -> Option<Self> {
        let text = node_sys::fs::read_head(&folder.join(FILE), BYTES_MAX + 1).ok()?;
        let is_whole = text.len() as u64 <= BYTES_MAX;
        serde_json::from_slice(&text).ok().filter(|_| is_whole)
    }
}

/// Removes a pod's file; none is there afterwards. Blocks.
pub(crate) fn forget(folder: &Path) -> io::Result<()> {
    match std::fs::remove_file(folder.join(FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Every pod of this node that an agent left running, as many as the node has room for. Blocks.
pub(crate) fn load_all(config: &KubeletConfig) -> Vec<SavedPod> {
    let mut uids = files::uids_on_disk(config);
    // Sorted, so that each start takes the same ones where there are more than the node may run.
    uids.sort();
    uids.dedup();
    let load = |id: &String| {
        let saved = SavedPod::load(&files::pod_folder(config, id))?;
        let pod = &saved.pod;
        // A folder's name is the pod's uid; a file that was copied between folders or nodes starts nothing.
        let is_ours = uid(pod) == id && spec(pod).node_name.as_deref() == Some(config.node_name.as_str());
        (is_ours && has_begun(pod) && !is_to_end(pod)).then_some(saved)
    };
    let most = usize::try_from(config.max_pods).unwrap_or(usize::MAX);
    uids.iter().filter_map(load).take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn saved(id: &str, node: &str, change: impl Fn(&mut Value)) -> SavedPod {
        let mut pod = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": id, "managedFields": [{"manager": "m"}]},
            "spec": {"nodeName": node, "containers": [{"name": "main"}]},
        });
        let mut status = json!({"phase": "Running", "startTime": "2026-11-22T12:00:00Z"});
        change(&mut pod);
        change(&mut status);
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let services = BTreeMap::from([("A_SERVICE_HOST".to_owned(), "10.96.0.1".to_owned())]);
        SavedPod::new(&pod, serde_json::from_value(status).unwrap(), Some(services))
    }

    #[test]
    fn saved_pods_are_those_that_were_left_running_here() {
        let folder = tempfile::tempdir().unwrap();
        let config = KubeletConfig {
            node_name: "here".into(),
            ..KubeletConfig::for_data_dir(folder.path().to_owned())
        };
        let of = |id: &str| files::pod_folder(&config, id);
        let runs = saved("runs", "here", |_| {});
        runs.store(&of("runs")).unwrap();
        let set = |name: &'static str, value: Value| move |object: &mut Value| object[name] = value.clone();
        for (id, other) in [
            ("elsewhere", saved("elsewhere", "there", |_| {})),
            ("another", saved("other", "here", |_| {})),
            ("unbegun", saved("unbegun", "here", set("startTime", Value::Null))),
            ("ended", saved("ended", "here", set("phase", json!("Failed")))),
        ] {
            other.store(&of(id)).unwrap();
        }
        let whole = std::fs::read(of("runs").join(FILE)).unwrap();
        for (id, text) in [("half", &whole[..whole.len() / 2]), ("empty", &[][..])] {
            std::fs::create_dir_all(of(id)).unwrap();
            std::fs::write(of(id).join(FILE), text).unwrap();
        }
        std::fs::create_dir_all(of("nothing")).unwrap();
        assert_eq!(load_all(&config), std::slice::from_ref(&runs));
        assert_eq!(runs.pod.metadata.managed_fields, None);
        forget(&of("runs")).unwrap();
        forget(&of("runs")).unwrap();
        assert!(load_all(&config).is_empty());
    }
}
