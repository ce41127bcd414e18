//! Bringing an image archive into containerd without its command line tool.
//!
//! Blobs go to the content store under a lease (so that no collection takes them before the image
//! holds them), each index and manifest labelled with what it refers to; then every named manifest of
//! the archive's index becomes an image. The layers are unpacked when a container first needs them.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use crate::client::Transport;
use containerd_client::services::v1::content_client::ContentClient;
use containerd_client::services::v1::images_client::ImagesClient;
use containerd_client::services::v1::leases_client::LeasesClient;
use containerd_client::services::v1::{
    CreateImageRequest, CreateRequest, DeleteRequest, Image, UpdateImageRequest, WriteAction,
    WriteContentRequest,
};
use containerd_client::types::Descriptor;
use futures::future::BoxFuture;
use serde_json::Value;
use tonic::Code;

use crate::archive::TarReader;
use crate::{CriClient, CriError, in_namespace};

/// Sent per message; gRPC's default limit is 4 MiB.
const CHUNK_BYTES: usize = 1 << 20;
/// Blobs that may be an index, a manifest or a configuration. Layers can be smaller; then parsing fails.
const DOCUMENT_BYTES_MAX: u64 = 1 << 20;
const ACTION: &str = "importing an image";
const NO_LAYOUT: &str = "the archive is not in OCI layout: no index.json (`docker save` of 25 or later, `skopeo copy docker-archive:OLD \
    oci-archive:FILE:NAME/IMAGE:TAG` and `ctr image export` write one)";

/// Under which lease blobs are brought in.
#[derive(Debug, Clone)]
pub struct ImportLease {
    /// Its name; no other import may use it.
    pub name: String,
    /// Time at which the collector may remove it, in RFC 3339, if the import was killed.
    pub expires_at: String,
}

/// Imports every image an archive names and returns the names.
pub fn import(
    client: &CriClient,
    archive: &Path,
    lease: ImportLease,
) -> BoxFuture<'static, Result<Vec<String>, CriError>> {
    let channel = client.channel();
    let archive = archive.to_path_buf();
    Box::pin(async move {
        let labels = HashMap::from([("containerd.io/gc.expire".to_string(), lease.expires_at)]);
        let create = CreateRequest {
            id: lease.name.clone(),
            labels,
        };
        let mut leases = LeasesClient::new(channel.clone());
        leases
            .create(in_namespace(create))
            .await
            .map_err(CriError::call(ACTION))?;
        let outcome = import_leased(channel, &archive, &lease.name).await;
        // An import that fails leaves its blobs to the collector once the lease is gone.
        let _ = leases
            .delete(in_namespace(DeleteRequest {
                id: lease.name,
                sync: false,
            }))
            .await;
        outcome
    })
}

async fn import_leased(channel: Transport, archive: &Path, lease: &str) -> Result<Vec<String>, CriError> {
    let io = CriError::io("reading the image archive");
    let file = std::fs::File::open(archive).map_err(&io)?;
    let mut reader = TarReader::new(std::io::BufReader::with_capacity(CHUNK_BYTES, file));
    let mut content = ContentStore {
        client: ContentClient::new(channel.clone()),
        lease,
    };
    let mut index = None;
    while let Some(entry) = reader.next_file().map_err(&io)? {
        if entry.name == "index.json" {
            index = Some(reader.read_small().map_err(&io)?);
        } else if let Some(name) = entry.name.strip_prefix("blobs/sha256/") {
            let expected = format!("sha256:{name}");
            if entry.size <= DOCUMENT_BYTES_MAX {
                let blob = reader.read_small().map_err(&io)?;
                content
                    .write(&expected, &mut blob.as_slice(), entry.size, children(&blob))
                    .await?;
            } else {
                content
                    .write(&expected, &mut reader, entry.size, HashMap::new())
                    .await?;
            }
        }
    }
    let index = index.ok_or_else(|| CriError::invalid(ACTION, NO_LAYOUT))?;
    let mut names = Vec::new();
    for (name, target) in named(&index)? {
        put_image(channel.clone(), &name, target).await?;
        names.push(name);
    }
    if names.is_empty() {
        return Err(CriError::invalid(
            ACTION,
            "no entry of index.json carries a name with a tag (io.containerd.image.name, or org.opencontainers.image.ref.name as \
             `skopeo copy … oci-archive:FILE:NAME/IMAGE:TAG` writes it)",
        ));
    }
    Ok(names)
}

struct ContentStore<'a> {
    client: ContentClient<Transport>,
    lease: &'a str,
}

impl ContentStore<'_> {
    async fn write(
        &mut self,
        expected: &str,
        from: &mut (dyn Read + Send),
        total: u64,
        labels: HashMap<String, String>,
    ) -> Result<(), CriError> {
        let total = i64::try_from(total).map_err(|error| CriError::invalid(ACTION, error))?;
        let mut messages = Vec::new();
        let mut offset = 0_i64;
        let mut buffer = vec![0; CHUNK_BYTES];
        let (sender, receiver) = tokio::sync::mpsc::channel(2);
        let base = WriteContentRequest {
            r#ref: format!("import-{expected}"),
            total,
            expected: expected.to_string(),
            ..WriteContentRequest::default()
        };
        messages.push(WriteContentRequest {
            action: WriteAction::Stat.into(),
            ..base.clone()
        });
        let mut request = in_namespace(tokio_stream::wrappers::ReceiverStream::new(receiver));
        let lease = self
            .lease
            .parse()
            .map_err(|error| CriError::invalid(ACTION, error))?;
        request.metadata_mut().insert("containerd-lease", lease);
        let send = async {
            for message in messages {
                // A receiver that has gone says why in its answer.
                let _ = sender.send(message).await;
            }
            while offset < total {
                let count = from
                    .read(&mut buffer)
                    .map_err(CriError::io("reading the image archive"))?;
                if count == 0 {
                    return Err(CriError::invalid(
                        ACTION,
                        "the archive ends in the middle of a blob",
                    ));
                }
                let data = buffer[..count].to_vec();
                let action = WriteAction::Write.into();
                let _ = sender
                    .send(WriteContentRequest {
                        action,
                        offset,
                        data,
                        ..base.clone()
                    })
                    .await;
                offset += i64::try_from(count).unwrap_or(0);
            }
            let action = WriteAction::Commit.into();
            let _ = sender
                .send(WriteContentRequest {
                    action,
                    offset,
                    labels,
                    ..base.clone()
                })
                .await;
            drop(sender);
            Ok(())
        };
        let receive = async {
            let mut answers = self.client.write(request).await?.into_inner();
            while answers.message().await?.is_some() {}
            Ok::<_, tonic::Status>(())
        };
        let (sent, received) = tokio::join!(send, receive);
        sent?;
        match received {
            Err(status) if status.code() == Code::AlreadyExists => Ok(()),
            other => other.map_err(CriError::call(ACTION)),
        }
    }
}

/// The labels that keep a document's parts alive: manifests of an index; configuration and layers of a manifest.
fn children(document: &[u8]) -> HashMap<String, String> {
    let Ok(value) = serde_json::from_slice::<Value>(document) else {
        return HashMap::new();
    };
    let list = |name: &str| value[name].as_array().cloned().unwrap_or_default();
    let mut labels = HashMap::new();
    let mut refer = |kind: String, part: &Value| {
        if let Some(digest) = part["digest"].as_str() {
            labels.insert(format!("containerd.io/gc.ref.content.{kind}"), digest.to_string());
        }
    };
    refer("config".into(), &value["config"]);
    for (at, part) in list("layers").iter().enumerate() {
        refer(format!("l.{at}"), part);
    }
    for (at, part) in list("manifests").iter().enumerate() {
        refer(format!("m.{at}"), part);
    }
    labels
}

/// Names and what they stand for.
fn named(index: &[u8]) -> Result<Vec<(String, Descriptor)>, CriError> {
    let value: Value = serde_json::from_slice(index).map_err(|error| CriError::invalid(ACTION, error))?;
    let entries = value["manifests"].as_array().cloned().unwrap_or_default();
    let described = |entry: &Value| {
        let name = name_of(&entry["annotations"])?;
        let target = Descriptor {
            media_type: entry["mediaType"].as_str()?.to_string(),
            digest: entry["digest"].as_str()?.to_string(),
            size: entry["size"].as_i64()?,
            annotations: HashMap::new(),
        };
        Some((name, target))
    };
    Ok(entries.iter().filter_map(described).collect())
}

/// The image's name: containerd's and docker's annotation, or the one of skopeo and podman where it is more than a tag.
fn name_of(annotations: &Value) -> Option<String> {
    let own = annotations["io.containerd.image.name"].as_str();
    let plain = annotations["org.opencontainers.image.ref.name"].as_str();
    let name = own.or_else(|| plain.filter(|name| name.contains('/') && name.contains(':')))?;
    Some(name.to_owned())
}

async fn put_image(channel: Transport, name: &str, target: Descriptor) -> Result<(), CriError> {
    let mut images = ImagesClient::new(channel);
    let labels = HashMap::from([("io.cri-containerd.image".to_string(), "managed".to_string())]);
    let image = Image {
        name: name.to_string(),
        labels,
        target: Some(target),
        ..Image::default()
    };
    let create = CreateImageRequest {
        image: Some(image.clone()),
        ..CreateImageRequest::default()
    };
    match images.create(in_namespace(create)).await {
        Err(status) if status.code() == Code::AlreadyExists => {
            let update = UpdateImageRequest {
                image: Some(image),
                ..UpdateImageRequest::default()
            };
            images
                .update(in_namespace(update))
                .await
                .map(drop)
                .map_err(CriError::call(ACTION))
        }
        other => other.map(drop).map_err(CriError::call(ACTION)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_manifest_keeps_parts_and_index_names_images() {
        let manifest = br#"{"config":{"digest":"sha256:c"},"layers":[{"digest":"sha256:l"}]}"#;
        let labels = children(manifest);
        assert_eq!(labels["containerd.io/gc.ref.content.config"], "sha256:c");
        assert_eq!(labels["containerd.io/gc.ref.content.l.0"], "sha256:l");
        let index = br#"{"manifests":[{"mediaType":"m","digest":"sha256:m","size":3,
            "annotations":{"io.containerd.image.name":"example.org/a:1"}}, {"digest":"sha256:n"}]}"#;
        assert_eq!(named(index).unwrap()[0].0, "example.org/a:1");
        for (name, expected) in [("localhost/a:1", Some("localhost/a:1")), ("latest", None)] {
            let annotations = serde_json::json!({"org.opencontainers.image.ref.name": name});
            assert_eq!(name_of(&annotations).as_deref(), expected);
        }
    }
}
