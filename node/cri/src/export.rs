//! Writing an image of containerd to an archive in OCI layout, which [`import`](crate::import) reads.
//!
//! Of an image for several machines the archive has the part for this one, as that alone is on the node: its manifest, configuration and
//! layers, each under its digest.

use std::collections::BTreeSet;
use std::io::Write;

use containerd_client::services::v1::content_client::ContentClient;
use containerd_client::services::v1::images_client::ImagesClient;
use containerd_client::services::v1::{GetImageRequest, InfoRequest, ReadContentRequest};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::archive::TarWriter;
use crate::client::Transport;
use crate::{CriClient, CriError, in_namespace};

const ACTION: &str = "exporting an image";
/// A larger index, manifest or configuration is none.
const DOCUMENT_BYTES_MAX: i64 = 4 << 20;
/// An index may name others.
const DEPTH_MAX: usize = 4;
const MODE: u32 = 0o644;

/// A part of an image, as documents name it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    media_type: String,
    digest: String,
    size: i64,
}

impl Part {
    fn of(value: &Value) -> Option<Self> {
        Some(Self {
            media_type: value["mediaType"].as_str()?.to_owned(),
            digest: value["digest"].as_str()?.to_owned(),
            size: value["size"].as_i64().filter(|size| *size >= 0)?,
        })
    }

    /// Name of its file, where the digest is one.
    fn file(&self) -> Result<String, CriError> {
        let hex = self.digest.strip_prefix("sha256:");
        let hex = hex.filter(|hex| hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let hex =
            hex.ok_or_else(|| CriError::invalid(ACTION, format!("unknown digest {:?}", self.digest)))?;
        Ok(format!("blobs/sha256/{hex}"))
    }
}

/// Writes an image by its full name, for an architecture as Go names it.
pub fn export<W: Write + Send + 'static>(
    client: &CriClient,
    name: &str,
    architecture: &str,
    out: W,
) -> BoxFuture<'static, Result<W, CriError>> {
    let (channel, name, architecture) = (client.channel(), name.to_owned(), architecture.to_owned());
    Box::pin(async move {
        let mut store = Store {
            client: ContentClient::new(channel.clone()),
        };
        let target = target(channel, &name).await?;
        let (manifest, document) = store.manifest(target, &architecture).await?;
        let io = CriError::io("writing the archive");
        let mut tar = TarWriter::new(out);
        tar.file("oci-layout", MODE, br#"{"imageLayoutVersion":"1.0.0"}"#)
            .map_err(&io)?;
        tar.file("index.json", MODE, index(&name, &manifest).as_bytes())
            .map_err(&io)?;
        tar.file(&manifest.file()?, MODE, &document).map_err(&io)?;
        let mut written = BTreeSet::from([manifest.digest.clone()]);
        for part in parts(&document)? {
            if written.insert(part.digest.clone()) {
                store.copy(&part, &mut tar).await?;
            }
        }
        tar.finish().map_err(&io)
    })
}

async fn target(channel: Transport, name: &str) -> Result<Part, CriError> {
    let request = GetImageRequest {
        name: name.to_owned(),
    };
    let answer = ImagesClient::new(channel).get(in_namespace(request)).await;
    let image = answer.map_err(CriError::call(ACTION))?.into_inner().image;
    let target = image.and_then(|image| image.target);
    let target = target.ok_or_else(|| CriError::invalid(ACTION, "the image has no target"))?;
    Ok(Part {
        media_type: target.media_type,
        digest: target.digest,
        size: target.size,
    })
}

/// The archive's index: one image under its name.
fn index(name: &str, manifest: &Part) -> String {
    let tag = name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
    json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [{
            "mediaType": manifest.media_type,
            "digest": manifest.digest,
            "size": manifest.size,
            "annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag},
        }],
    })
    .to_string()
}

/// Configuration and layers of a manifest.
fn parts(manifest: &[u8]) -> Result<Vec<Part>, CriError> {
    let value: Value = serde_json::from_slice(manifest).map_err(|error| CriError::invalid(ACTION, error))?;
    let layers = value["layers"].as_array().into_iter().flatten();
    let parts: Option<Vec<Part>> = [&value["config"]]
        .into_iter()
        .chain(layers)
        .map(Part::of)
        .collect();
    parts.ok_or_else(|| CriError::invalid(ACTION, "a manifest without configuration or layers"))
}

/// The manifests of an index for an architecture; those of no platform are attestations.
fn choices(index: &[u8], architecture: &str) -> Vec<Part> {
    let value: Value = serde_json::from_slice(index).unwrap_or_default();
    let all = value["manifests"].as_array().into_iter().flatten();
    let fits = |entry: &&Value| {
        let platform = &entry["platform"];
        platform.is_null() || (platform["os"] == "linux" && platform["architecture"] == architecture)
    };
    all.filter(fits).filter_map(Part::of).collect()
}

struct Store {
    client: ContentClient<Transport>,
}

impl Store {
    /// The manifest that an image leads to.
    async fn manifest(&mut self, target: Part, architecture: &str) -> Result<(Part, Vec<u8>), CriError> {
        let mut next = vec![target];
        for _ in 0..DEPTH_MAX {
            let mut found = None;
            for part in next {
                if self.has(&part).await {
                    found = Some(part);
                    break;
                }
            }
            let part = found.ok_or_else(|| {
                CriError::invalid(ACTION, "this node has no part of it for its architecture")
            })?;
            let document = self.document(&part).await?;
            if !part.media_type.ends_with("index.v1+json")
                && !part.media_type.ends_with("manifest.list.v2+json")
            {
                return Ok((part, document));
            }
            next = choices(&document, architecture);
        }
        Err(CriError::invalid(ACTION, "its indices are nested too deep"))
    }

    async fn has(&mut self, part: &Part) -> bool {
        let request = InfoRequest {
            digest: part.digest.clone(),
        };
        self.client.info(in_namespace(request)).await.is_ok()
    }

    async fn document(&mut self, part: &Part) -> Result<Vec<u8>, CriError> {
        if part.size > DOCUMENT_BYTES_MAX {
            return Err(CriError::invalid(ACTION, "a document of the image is too large"));
        }
        let mut document = Vec::new();
        self.read(part, &mut |data| {
            document.extend_from_slice(data);
            Ok(())
        })
        .await?;
        Ok(document)
    }

    async fn copy<W: Write + Send>(&mut self, part: &Part, tar: &mut TarWriter<W>) -> Result<(), CriError> {
        let io = CriError::io("writing the archive");
        let size = u64::try_from(part.size).unwrap_or(0);
        tar.begin_file(&part.file()?, MODE, size).map_err(&io)?;
        self.read(part, &mut |data| tar.write(data)).await?;
        tar.end_file(size).map_err(&io)
    }

    /// Reads a whole part; one of another length than was named is refused.
    async fn read(
        &mut self,
        part: &Part,
        take: &mut (dyn FnMut(&[u8]) -> std::io::Result<()> + Send),
    ) -> Result<(), CriError> {
        let request = ReadContentRequest {
            digest: part.digest.clone(),
            ..ReadContentRequest::default()
        };
        let answer = self.client.read(in_namespace(request)).await;
        let mut chunks = answer.map_err(CriError::call(ACTION))?.into_inner();
        let mut left = part.size;
        while let Some(chunk) = chunks.message().await.map_err(CriError::call(ACTION))? {
            left -= i64::try_from(chunk.data.len()).unwrap_or(i64::MAX);
            if left < 0 {
                break;
            }
            take(&chunk.data).map_err(CriError::io("writing the archive"))?;
        }
        match left {
            0 => Ok(()),
            _ => Err(CriError::invalid(
                ACTION,
                format!("{} has another length than its image says", part.digest),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(kind: &str, letter: char) -> Value {
        json!({"mediaType": kind, "digest": format!("sha256:{}", letter.to_string().repeat(64)), "size": 7})
    }

    #[test]
    fn export_takes_the_part_of_an_image_for_this_machine() {
        let mut entries = [part("m", 'a'), part("m", 'b'), part("m", 'c')];
        entries[0]["platform"] = json!({"os": "linux", "architecture": "arm64"});
        entries[1]["platform"] = json!({"os": "linux", "architecture": "amd64"});
        entries[2]["platform"] = json!({"os": "unknown", "architecture": "unknown"});
        let found = choices(json!({"manifests": entries}).to_string().as_bytes(), "amd64");
        assert_eq!(found, [Part::of(&part("m", 'b')).unwrap()]);
        let manifest = json!({"config": part("c", 'd'), "layers": [part("l", 'e')]}).to_string();
        let digests: Vec<String> = parts(manifest.as_bytes())
            .unwrap()
            .into_iter()
            .map(|part| part.digest)
            .collect();
        assert_eq!(
            digests,
            [
                format!("sha256:{}", "d".repeat(64)),
                format!("sha256:{}", "e".repeat(64))
            ]
        );
        assert!(parts(b"{}").is_err());
        let odd = Part {
            digest: "sha256:../../x".to_owned(),
            ..found[0].clone()
        };
        assert!(odd.file().is_err());
        let index: Value = serde_json::from_str(&index("example.org/a:1", &found[0])).unwrap();
        assert_eq!(
            index["manifests"][0]["annotations"]["io.containerd.image.name"],
            "example.org/a:1"
        );
    }
}
