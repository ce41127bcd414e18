//! The files of Debian's docker-registry, written as it keeps them: blobs by digest, and small files that link to them.

use super::folder::empty;
use super::table::{IMAGES, Image};
use super::{digest, layers};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Writes all images; `folder` has their layers.
pub(super) fn write(folder: &Path, storage: &Path) -> Result<()> {
    empty(storage)?;
    let storage = storage.join("docker/registry/v2");
    for image in IMAGES {
        for (tag, reference) in image.tags.iter().zip(image.references()) {
            write_image(folder, &storage, image, tag, &reference)
                .with_context(|| format!("writing {reference}"))?;
        }
    }
    Ok(())
}

fn write_image(folder: &Path, storage: &Path, image: &Image, tag: &str, reference: &str) -> Result<()> {
    let repository = storage.join("repositories").join(image.name);
    let (mut descriptors, mut diff_ids) = (Vec::new(), Vec::new());
    for name in image.layers {
        let layer = layers::read(folder, name)?;
        let blob = add(storage, &layer.file)?;
        link(&repository.join("_layers"), &blob)?;
        descriptors.push(blob.descriptor(LAYER));
        diff_ids.push(format!("sha256:{}", layer.diff_id));
    }
    let config = add_json(folder, storage, &configuration(image, reference, &diff_ids)?)?;
    link(&repository.join("_layers"), &config)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config.descriptor(CONFIG),
        "layers": descriptors,
    });
    let manifest = add_json(folder, storage, &manifest)?;
    let manifests = repository.join("_manifests");
    link(&manifests.join("revisions"), &manifest)?;
    let tag = manifests.join("tags").join(tag);
    link(&tag.join("index"), &manifest)?;
    write_link(&tag.join("current"), &manifest)
}

/// The image's configuration. The label keeps tags of one image apart: each has an identity of its own.
fn configuration(image: &Image, reference: &str, diff_ids: &[String]) -> Result<Value> {
    let mut config: Value = serde_json::from_str(image.config)?;
    config["Labels"] = json!({"stand-in": reference});
    config["Env"] = json!(["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]);
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let history = vec![json!({"created_by": "cargo xtask conformance --pods"}); diff_ids.len()];
    Ok(json!({
        "architecture": architecture,
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
        "history": history,
    }))
}

/// A blob that is there.
#[derive(Debug)]
struct Blob {
    digest: String,
    bytes: u64,
}

impl Blob {
    fn descriptor(&self, media_type: &str) -> Value {
        json!({"mediaType": media_type, "digest": format!("sha256:{}", self.digest), "size": self.bytes})
    }
}

fn add_json(folder: &Path, storage: &Path, value: &Value) -> Result<Blob> {
    let file = folder.join("blob.json");
    fs::write(&file, value.to_string())?;
    let blob = add(storage, &file)?;
    fs::remove_file(file)?;
    Ok(blob)
}

fn add(storage: &Path, file: &Path) -> Result<Blob> {
    let digest = digest(file)?;
    let blob = storage.join("blobs/sha256").join(&digest[..2]).join(&digest);
    fs::create_dir_all(&blob)?;
    let data = blob.join("data");
    if !data.try_exists()? {
        fs::copy(file, &data)?;
    }
    let bytes = fs::metadata(data)?.len();
    Ok(Blob { digest, bytes })
}

/// Links to a blob by its digest.
fn link(folder: &Path, blob: &Blob) -> Result<()> {
    write_link(&folder.join("sha256").join(&blob.digest), blob)
}

fn write_link(folder: &Path, blob: &Blob) -> Result<()> {
    fs::create_dir_all(folder)?;
    Ok(fs::write(folder.join("link"), format!("sha256:{}", blob.digest))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_differ_by_their_tag_and_keep_their_configuration() {
        let agnhost = &IMAGES[0];
        let made = |tag: &str| configuration(agnhost, tag, &["sha256:0".to_owned()]).expect("JSON");
        let (one, other) = (made("agnhost:1"), made("agnhost:2"));
        assert_ne!(one, other);
        assert_eq!(one["config"]["Entrypoint"], json!(["/agnhost"]));
        assert_eq!(one["rootfs"]["diff_ids"], json!(["sha256:0"]));
    }
}
