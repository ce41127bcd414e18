//! Paths and names of drivers' volumes on a node: upstream's, below the agent's own folders.

use std::path::{Path, PathBuf};

use node_volume::CSI_PLUGIN_FOLDER;
use sha2::{Digest, Sha256};

/// A volume of a driver: the driver's name, and its name of the volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct VolumeKey {
    pub(super) driver: String,
    pub(super) handle: String,
}

impl VolumeKey {
    /// Name of the volume in the Node object.
    pub(super) fn unique_name(&self) -> String {
        format!("kubernetes.io/csi/{}^{}", self.driver, self.handle)
    }

    /// Name of the object that says whether the volume is attached to a node.
    pub(super) fn attachment(&self, node: &str) -> String {
        format!("csi-{}", sha256(&format!("{}{}{node}", self.handle, self.driver)))
    }
}

/// Name of a volume that is a pod's own.
pub(super) fn inline_handle(pod_uid: &str, volume: &str) -> String {
    format!("csi-{}", sha256(&format!("{pod_uid}{volume}")))
}

fn sha256(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Folders of the agent in which volumes lie, as it or a driver sees them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Root(PathBuf);

impl Root {
    /// Folders `pods` and `plugins` below a folder.
    pub(super) fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    fn pods(&self) -> PathBuf {
        self.0.join("pods")
    }

    /// Folder of a pod's volumes of drivers.
    pub(super) fn of_pod(&self, pod_uid: &str) -> PathBuf {
        self.pods().join(pod_uid).join("volumes").join(CSI_PLUGIN_FOLDER)
    }

    /// Place of one of them.
    pub(super) fn target(&self, pod_uid: &str, name: &str) -> PathBuf {
        self.of_pod(pod_uid).join(name).join("mount")
    }

    /// Folder of the volumes that are shown once for all pods; those of a driver lie in a folder of its name.
    pub(super) fn staged(&self) -> PathBuf {
        self.0.join("plugins/kubernetes.io/csi")
    }

    /// Place where a volume is shown once for all pods.
    pub(super) fn staging(&self, key: &VolumeKey) -> PathBuf {
        let own = self.staged().join(&key.driver).join(sha256(&key.handle));
        own.join("globalmount")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_names_and_places_are_upstreams() {
        let key = VolumeKey {
            driver: "d.example".to_owned(),
            handle: "v".to_owned(),
        };
        assert_eq!(key.unique_name(), "kubernetes.io/csi/d.example^v");
        // `sha256sum` of these texts.
        let of_all = "f1ae4edf6e18d94558151f7640d0c687da858c93064a01236bbd6a44d6190281";
        assert_eq!(key.attachment("n1"), format!("csi-{of_all}"));
        let of_inline = "23e443c711b5dad0801c2e0a90f2be6e56dc28a2472cb2e8d6f0ead23e8765e9";
        assert_eq!(inline_handle("uid", "data"), format!("csi-{of_inline}"));
        let of_v = "4c94485e0c21ae6c41ce1dfe7b6bfaceea5ab68e40a2476f50208e526f506080";
        let root = Root::new(Path::new("/var/lib/kubelet"));
        assert_eq!(
            root.staging(&key),
            PathBuf::from(format!(
                "/var/lib/kubelet/plugins/kubernetes.io/csi/d.example/{of_v}/globalmount"
            ))
        );
        assert_eq!(
            root.target("uid", "pv"),
            Path::new("/var/lib/kubelet/pods/uid/volumes/kubernetes.io~csi/pv/mount")
        );
    }
}
