//! Files of an image, without a container: a read-only view among containerd's snapshots.
//!
//! CRI mounts images into containers from containerd 2.1 on; the snapshots that containers are made of can be viewed in every release.
//! A view holds the layers it shows, whether or not the image is removed meanwhile, and is no container's: labels say whose it is, and
//! [`remove_views`] finds it by them. An image that was imported and never run is unpacked first, layer by layer, as containerd does.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;

use containerd_client::services::v1::content_client::ContentClient;
use containerd_client::services::v1::diff_client::DiffClient;
use containerd_client::services::v1::images_client::ImagesClient;
use containerd_client::services::v1::leases_client::LeasesClient;
use containerd_client::services::v1::snapshots::snapshots_client::SnapshotsClient;
use containerd_client::services::v1::snapshots::{
    CommitSnapshotRequest, Info, ListSnapshotsRequest, PrepareSnapshotRequest, RemoveSnapshotRequest,
    StatSnapshotRequest, ViewSnapshotRequest,
};
use containerd_client::services::v1::{
    ApplyRequest, CreateRequest, DeleteRequest, GetImageRequest, Info as ContentInfo, ReadContentRequest,
    UpdateRequest,
};
use containerd_client::types::{Descriptor, Mount};
use futures::future::BoxFuture;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tonic::Code;

use crate::client::Transport;
use crate::{CriClient, CriError, in_namespace, v1};

const ACTION: &str = "viewing an image";
/// Label of a view with its owner.
const OWNER: &str = "knarr.io/image-volume-of";
/// Label of a view with its image.
const IMAGE: &str = "knarr.io/image";
/// A snapshot that the collector of containerd leaves alone.
const ROOT: &str = "containerd.io/gc.root";
/// Indexes, manifests and configurations are shorter.
const DOCUMENT_BYTES_MAX: usize = 4 << 20;
const LAYERS_MAX: usize = 500;
/// Depth of indexes within indexes.
const INDEX_DEPTH_MAX: usize = 4;

/// A view to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewRequest {
    /// The runtime's id of the image.
    pub image: String,
    /// Owner of the view, by whom it is removed.
    pub owner: String,
    /// Name of the view among the owner's.
    pub name: String,
    /// The present, in RFC 3339.
    pub now: String,
    /// Time at which the collector may remove what is unpacked and not yet held, in RFC 3339.
    pub expires_at: String,
}

/// Makes a view of an image and returns its folders, the topmost first. One of the same name is replaced.
pub fn view(client: &CriClient, request: ViewRequest) -> BoxFuture<'static, Result<Vec<PathBuf>, CriError>> {
    let client = client.clone();
    Box::pin(async move { make_view(&client, request).await })
}

/// Removes all views of an owner.
pub fn remove_views(client: &CriClient, owner: &str) -> BoxFuture<'static, Result<(), CriError>> {
    let (client, owner) = (client.clone(), owner.to_owned());
    Box::pin(async move {
        let snapshotter = snapshotter(&client).await?;
        let mut snapshots = SnapshotsClient::new(client.channel());
        for found in views(&mut snapshots, &snapshotter).await? {
            if found.labels.get(OWNER) == Some(&owner) {
                remove(&mut snapshots, &snapshotter, &found.name).await?;
            }
        }
        Ok(())
    })
}

/// Images that views show. A runtime without snapshots has none.
pub fn viewed_images(client: &CriClient) -> BoxFuture<'static, Result<BTreeSet<String>, CriError>> {
    let client = client.clone();
    Box::pin(async move {
        let snapshotter = snapshotter(&client).await?;
        let mut snapshots = SnapshotsClient::new(client.channel());
        let found = views(&mut snapshots, &snapshotter).await?.into_iter();
        Ok(found.filter_map(|mut own| own.labels.remove(IMAGE)).collect())
    })
}

async fn make_view(client: &CriClient, request: ViewRequest) -> Result<Vec<PathBuf>, CriError> {
    let snapshotter = snapshotter(client).await?;
    let mut snapshots = SnapshotsClient::new(client.channel());
    let key = format!("knarr-image-volume-{}-{}", request.owner, request.name);
    let labels = HashMap::from([
        (OWNER.to_owned(), request.owner.clone()),
        (IMAGE.to_owned(), request.image.clone()),
        (ROOT.to_owned(), request.now.clone()),
    ]);
    let wanted = ViewSnapshotRequest {
        snapshotter: snapshotter.clone(),
        key: key.clone(),
        parent: chain_id(client, &request.image).await?,
        labels,
    };
    remove(&mut snapshots, &snapshotter, &key).await?;
    let made = match snapshots.view(in_namespace(wanted.clone())).await {
        Err(status) if status.code() == Code::NotFound => {
            Unpacking::new(client, &snapshotter, &request).run().await?;
            snapshots.view(in_namespace(wanted)).await
        }
        made => made,
    };
    let made = made.map_err(CriError::call(ACTION))?.into_inner();
    folders(&made.mounts)
}

/// Folders that mounts of a view show, the topmost first.
fn folders(mounts: &[Mount]) -> Result<Vec<PathBuf>, CriError> {
    let refused = |what: String| Err(CriError::invalid(ACTION, what));
    let [mount] = mounts else {
        return refused(format!("a view has {} mounts", mounts.len()));
    };
    match mount.r#type.as_str() {
        "bind" => Ok(vec![PathBuf::from(&mount.source)]),
        "overlay" => {
            let mut options = mount.options.iter();
            let lower = options.find_map(|option| option.strip_prefix("lowerdir="));
            let lower = lower
                .unwrap_or_default()
                .split(':')
                .filter(|path| !path.is_empty());
            Ok(lower.map(PathBuf::from).collect())
        }
        other => refused(format!("the snapshotter makes mounts of type {other:?}")),
    }
}

/// Name of the snapshotter that the runtime makes containers with.
async fn snapshotter(client: &CriClient) -> Result<String, CriError> {
    let status = client.status(v1::StatusRequest { verbose: true }).await?;
    let config = status.info.get("config").map(String::as_str).unwrap_or_default();
    let config: Value = serde_json::from_str(config).unwrap_or_default();
    let own = config["containerd"]["snapshotter"].as_str();
    Ok(own
        .filter(|own| !own.is_empty())
        .unwrap_or("overlayfs")
        .to_owned())
}

/// Name of the snapshot that holds all of an image's layers.
async fn chain_id(client: &CriClient, image: &str) -> Result<String, CriError> {
    let spec = v1::ImageSpec {
        image: image.to_owned(),
        ..v1::ImageSpec::default()
    };
    let request = v1::ImageStatusRequest {
        image: Some(spec),
        verbose: true,
    };
    let status = client.image_status(request).await?;
    let info = status.info.get("info").map(String::as_str).unwrap_or_default();
    let info: Value = serde_json::from_str(info).unwrap_or_default();
    let chain = info["chainID"].as_str();
    chain.map(str::to_owned).ok_or_else(|| {
        CriError::invalid(
            ACTION,
            "the container runtime does not say which snapshot an image has",
        )
    })
}

async fn views(snapshots: &mut SnapshotsClient<Transport>, snapshotter: &str) -> Result<Vec<Info>, CriError> {
    let request = ListSnapshotsRequest {
        snapshotter: snapshotter.to_owned(),
        filters: vec![format!("labels.\"{OWNER}\"")],
    };
    let answer = match snapshots.list(in_namespace(request)).await {
        Err(status) if status.code() == Code::Unimplemented => return Ok(Vec::new()),
        answer => answer.map_err(CriError::call(ACTION))?,
    };
    let (mut answer, mut found) = (answer.into_inner(), Vec::new());
    while let Some(some) = answer.message().await.map_err(CriError::call(ACTION))? {
        found.extend(some.info);
    }
    Ok(found)
}

/// Removes a snapshot, where it is there.
async fn remove(
    snapshots: &mut SnapshotsClient<Transport>,
    snapshotter: &str,
    key: &str,
) -> Result<(), CriError> {
    let request = RemoveSnapshotRequest {
        snapshotter: snapshotter.to_owned(),
        key: key.to_owned(),
    };
    match snapshots.remove(in_namespace(request)).await {
        Err(status) if status.code() == Code::NotFound => Ok(()),
        removed => removed.map(drop).map_err(CriError::call(ACTION)),
    }
}

/// An image whose layers become snapshots.
struct Unpacking<'a> {
    channel: Transport,
    snapshotter: &'a str,
    request: &'a ViewRequest,
    lease: String,
}

impl<'a> Unpacking<'a> {
    fn new(client: &CriClient, snapshotter: &'a str, request: &'a ViewRequest) -> Self {
        Self {
            channel: client.channel(),
            snapshotter,
            request,
            lease: format!("knarr-unpack-{}-{}", request.owner, request.name),
        }
    }

    /// Unpacks under a lease: nothing is collected before the image holds it.
    async fn run(&self) -> Result<(), CriError> {
        let mut leases = LeasesClient::new(self.channel.clone());
        let expires = self.request.expires_at.clone();
        let create = CreateRequest {
            id: self.lease.clone(),
            labels: HashMap::from([("containerd.io/gc.expire".to_owned(), expires)]),
        };
        match leases.create(in_namespace(create)).await {
            Err(status) if status.code() != Code::AlreadyExists => {
                return Err(CriError::call(ACTION)(status));
            }
            _ => {}
        }
        let outcome = self.unpack().await;
        let end = DeleteRequest {
            id: self.lease.clone(),
            sync: false,
        };
        // One that stays expires.
        let _ = leases.delete(in_namespace(end)).await;
        outcome
    }

    fn leased<T>(&self, message: T) -> Result<tonic::Request<T>, CriError> {
        let mut request = in_namespace(message);
        let lease = self.lease.parse();
        let lease = lease.map_err(|error| CriError::invalid(ACTION, error))?;
        request.metadata_mut().insert("containerd-lease", lease);
        Ok(request)
    }

    async fn unpack(&self) -> Result<(), CriError> {
        let mut images = ImagesClient::new(self.channel.clone());
        let request = GetImageRequest {
            name: self.request.image.clone(),
        };
        let image = images.get(in_namespace(request)).await;
        let image = image.map_err(CriError::call(ACTION))?.into_inner().image;
        let target = image.and_then(|image| image.target).unwrap_or_default();
        let manifest = self.manifest(target).await?;
        let layers: Vec<Descriptor> = list(&manifest, "layers").iter().map(descriptor).collect();
        let config_digest = descriptor(&manifest["config"]).digest;
        let config = self.document(&config_digest).await?;
        let diffs = list(&config["rootfs"], "diff_ids");
        if layers.len() != diffs.len() || layers.len() > LAYERS_MAX {
            return Err(CriError::invalid(
                ACTION,
                "the image is not one whose layers are a file system",
            ));
        }
        let mut chain = String::new();
        for (layer, diff) in layers.into_iter().zip(&diffs) {
            let diff = diff.as_str().unwrap_or_default();
            let next = chained(&chain, diff);
            self.layer(&chain, &next, layer, diff).await?;
            chain = next;
        }
        self.hold(&config_digest, &chain).await
    }

    /// The manifest for this machine.
    async fn manifest(&self, mut target: Descriptor) -> Result<Value, CriError> {
        for _ in 0..INDEX_DEPTH_MAX {
            let document = self.document(&target.digest).await?;
            let parts = list(&document, "manifests");
            if parts.is_empty() {
                return Ok(document);
            }
            let found = parts.iter().find(|part| is_for_this_machine(part));
            target = descriptor(found.unwrap_or(&Value::Null));
        }
        Err(CriError::invalid(
            ACTION,
            "the image has no manifest for this machine",
        ))
    }

    async fn document(&self, digest: &str) -> Result<Value, CriError> {
        let mut content = ContentClient::new(self.channel.clone());
        let request = ReadContentRequest {
            digest: digest.to_owned(),
            ..ReadContentRequest::default()
        };
        let answer = content.read(in_namespace(request)).await;
        let (mut answer, mut bytes) = (answer.map_err(CriError::call(ACTION))?.into_inner(), Vec::new());
        while let Some(part) = answer.message().await.map_err(CriError::call(ACTION))? {
            bytes.extend_from_slice(&part.data);
            if bytes.len() > DOCUMENT_BYTES_MAX {
                return Err(CriError::invalid(ACTION, "a document of the image is too long"));
            }
        }
        serde_json::from_slice(&bytes).map_err(|error| CriError::invalid(ACTION, error))
    }

    /// Makes one layer a snapshot on top of its parent, where it is not there.
    async fn layer(&self, parent: &str, name: &str, layer: Descriptor, diff: &str) -> Result<(), CriError> {
        let mut snapshots = SnapshotsClient::new(self.channel.clone());
        let snapshotter = self.snapshotter.to_owned();
        let stat = StatSnapshotRequest {
            snapshotter: snapshotter.clone(),
            key: name.to_owned(),
        };
        if snapshots.stat(in_namespace(stat)).await.is_ok() {
            return Ok(());
        }
        let key = format!("{} {name}", self.lease);
        remove(&mut snapshots, self.snapshotter, &key).await?;
        let prepare = PrepareSnapshotRequest {
            snapshotter: snapshotter.clone(),
            key: key.clone(),
            parent: parent.to_owned(),
            labels: HashMap::new(),
        };
        let prepared = snapshots.prepare(self.leased(prepare)?).await;
        let mounts = prepared.map_err(CriError::call(ACTION))?.into_inner().mounts;
        let apply = ApplyRequest {
            diff: Some(layer),
            mounts,
            ..ApplyRequest::default()
        };
        let applied = DiffClient::new(self.channel.clone())
            .apply(self.leased(apply)?)
            .await;
        let applied = applied.map_err(CriError::call(ACTION))?.into_inner().applied;
        let digest = applied.unwrap_or_default().digest;
        if digest != diff {
            remove(&mut snapshots, self.snapshotter, &key).await?;
            let why = format!("a layer has the digest {digest}, and its image says {diff}");
            return Err(CriError::invalid(ACTION, why));
        }
        let commit = CommitSnapshotRequest {
            snapshotter,
            name: name.to_owned(),
            key,
            labels: HashMap::new(),
        };
        match snapshots.commit(self.leased(commit)?).await {
            // Another has unpacked it meanwhile.
            Err(status) if status.code() == Code::AlreadyExists => Ok(()),
            committed => committed.map(drop).map_err(CriError::call(ACTION)),
        }
    }

    /// The image's configuration holds the snapshots from here on, as where containerd unpacks.
    async fn hold(&self, config_digest: &str, chain: &str) -> Result<(), CriError> {
        let label = format!("containerd.io/gc.ref.snapshot.{}", self.snapshotter);
        let request = UpdateRequest {
            info: Some(ContentInfo {
                digest: config_digest.to_owned(),
                labels: HashMap::from([(label.clone(), chain.to_owned())]),
                ..ContentInfo::default()
            }),
            update_mask: Some(prost_types::FieldMask {
                paths: vec![format!("labels.{label}")],
            }),
        };
        let mut content = ContentClient::new(self.channel.clone());
        let held = content.update(in_namespace(request)).await;
        held.map(drop).map_err(CriError::call(ACTION))
    }
}

/// Name of the snapshot of a layer on top of others.
fn chained(parent: &str, diff: &str) -> String {
    if parent.is_empty() {
        return diff.to_owned();
    }
    let digest = Sha256::digest(format!("{parent} {diff}"));
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn list(document: &Value, name: &str) -> Vec<Value> {
    document[name].as_array().cloned().unwrap_or_default()
}

fn descriptor(part: &Value) -> Descriptor {
    let text = |name: &str| part[name].as_str().unwrap_or_default().to_owned();
    Descriptor {
        media_type: text("mediaType"),
        digest: text("digest"),
        size: part["size"].as_i64().unwrap_or_default(),
        annotations: HashMap::new(),
    }
}

fn is_for_this_machine(part: &Value) -> bool {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    match part["platform"].as_object() {
        None => true,
        Some(platform) => {
            let is = |name: &str, value: &str| platform.get(name).and_then(Value::as_str) == Some(value);
            is("os", "linux") && is("architecture", architecture)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn mount(kind: &str, source: &str, options: &[&str]) -> Mount {
        Mount {
            r#type: kind.to_owned(),
            source: source.to_owned(),
            target: String::new(),
            options: options.iter().map(|own| (*own).to_owned()).collect(),
        }
    }

    #[test]
    fn image_view_has_the_folders_of_its_layers() {
        let paths = |mounts: &[Mount]| folders(mounts).map_err(|error| error.to_string());
        let bind = mount("bind", "/s/1/fs", &["ro", "rbind"]);
        assert_eq!(
            paths(std::slice::from_ref(&bind)).unwrap(),
            [PathBuf::from("/s/1/fs")]
        );
        let overlay = mount("overlay", "overlay", &["index=off", "lowerdir=/s/2/fs:/s/1/fs"]);
        let expected = ["/s/2/fs", "/s/1/fs"].map(PathBuf::from);
        assert_eq!(paths(&[overlay]).unwrap(), expected);
        assert!(paths(&[mount("zfs", "pool", &[])]).is_err());
        assert!(paths(&[bind.clone(), bind]).is_err());
        assert!(paths(&[]).is_err());
    }

    /// The example of the image specification has no figures: these are of a real image of two layers.
    #[test]
    fn image_layers_are_chained_by_their_digests() {
        assert_eq!(chained("", "sha256:a"), "sha256:a");
        let chain = chained("sha256:a", "sha256:b");
        assert_eq!(chain.len(), "sha256:".len() + 64);
        assert_ne!(chain, chained("sha256:b", "sha256:a"));
    }

    #[test]
    fn image_manifest_is_that_of_this_machine() {
        let part =
            |os: &str, architecture: &str| json!({"platform": {"os": os, "architecture": architecture}});
        let own = if cfg!(target_arch = "x86_64") {
            "amd64"
        } else {
            "arm64"
        };
        assert!(is_for_this_machine(&part("linux", own)));
        assert!(!is_for_this_machine(&part("windows", own)));
        assert!(!is_for_this_machine(&part("linux", "s390x")));
        assert!(is_for_this_machine(&json!({"digest": "sha256:a"})));
    }
}
