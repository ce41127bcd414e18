//! A pod from a file or a URL: its name, uid, annotations and defaults, and why it is none; words are upstream's
//! (`pkg/kubelet/config`). Pure.

use std::path::Path;

use k8s_openapi::api::core::v1::{Container, Pod, Toleration, Volume, VolumeProjection};
use machinery_meta::syntax::{dns1123_label, dns1123_subdomain};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::defaults;
use crate::pods::{CONFIG_HASH, CONFIG_SOURCE, HTTP_SOURCE, all_containers, spec};

/// A longer uid is none; those of the API server have 36.
const UID_BYTES_MAX: usize = 128;

/// Place that a static pod comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin<'a> {
    /// A file of the node.
    File(&'a Path),
    /// A URL.
    Url(&'a str),
}

/// Makes a pod of the value of a file or a URL.
pub(crate) fn pod_of(value: Value, origin: Origin<'_>, node_name: &str) -> Result<Pod, String> {
    let (version, kind) = (value["apiVersion"].as_str(), value["kind"].as_str());
    if (version, kind) != (Some("v1"), Some("Pod")) {
        return Err(format!(
            "invalid pod: it is of kind {:?} of {:?}",
            kind.unwrap_or_default(),
            version.unwrap_or_default()
        ));
    }
    let mut pod: Pod =
        serde_json::from_value(value).map_err(|error| format!("couldn't parse as pod({error})"))?;
    if crate::pods::name(&pod).is_empty() {
        return Err("invalid pod: name is needed for the pod".to_owned());
    }
    identify(&mut pod, origin, node_name)?;
    check(&pod)?;
    defaults::apply(&mut pod);
    Ok(pod)
}

/// Name, namespace and uid on this node, and the toleration that keeps pods of files on it.
fn identify(pod: &mut Pod, origin: Origin<'_>, node_name: &str) -> Result<(), String> {
    let given = pod.metadata.uid.take().filter(|uid| !uid.is_empty());
    let hash = match given {
        Some(uid) => uid,
        None => hash(pod, origin, node_name)?,
    };
    let own = crate::pods::name(pod).to_owned();
    let meta = &mut pod.metadata;
    meta.uid = Some(hash.clone());
    meta.name = Some(format!("{own}-{}", node_name.to_lowercase()));
    meta.namespace = meta
        .namespace
        .take()
        .filter(|own| !own.is_empty())
        .or(Some("default".to_owned()));
    meta.resource_version = None;
    meta.deletion_timestamp = None;
    meta.owner_references = None;
    let annotations = meta.annotations.get_or_insert_default();
    annotations.insert(CONFIG_HASH.to_owned(), hash);
    let source = match origin {
        Origin::File(_) => "file",
        Origin::Url(_) => HTTP_SOURCE,
    };
    annotations.insert(CONFIG_SOURCE.to_owned(), source.to_owned());
    annotations.remove(crate::pods::CONFIG_MIRROR);
    pod.status = None;
    let Some(spec) = pod.spec.as_mut() else {
        return Ok(());
    };
    spec.node_name = Some(node_name.to_owned());
    // As upstream: pods of a URL have the tolerations that they are given.
    if let Origin::Url(_) = origin {
        return Ok(());
    }
    let stays = Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        ..Toleration::default()
    };
    let tolerations = spec.tolerations.get_or_insert_default();
    if !tolerations.contains(&stays) {
        tolerations.push(stays);
    }
    Ok(())
}

/// A hash of the pod as it is written, and of its file and the node, or of its URL: upstream's form, of another function.
fn hash(pod: &Pod, origin: Origin<'_>, node_name: &str) -> Result<String, String> {
    let text = serde_json::to_vec(pod).map_err(|error| error.to_string())?;
    let mut hash = Sha256::new();
    let (node, place) = match origin {
        Origin::File(path) => (node_name, path.as_os_str().as_encoded_bytes()),
        Origin::Url(url) => ("", url.as_bytes()),
    };
    for part in [text.as_slice(), node.as_bytes(), place] {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    Ok(digest[..16].iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Refuses what could not run: the API server's whole validation comes when the mirror pod is made.
fn check(pod: &Pod) -> Result<(), String> {
    let refuse = |why: String| Err(format!("invalid pod: {why}"));
    let name = crate::pods::name(pod);
    if let Some(why) = dns1123_subdomain(name).into_iter().next() {
        return refuse(format!("metadata.name: Invalid value: {name:?}: {why}"));
    }
    let namespace = crate::pods::namespace(pod);
    if let Some(why) = dns1123_label(namespace).into_iter().next() {
        return refuse(format!("metadata.namespace: Invalid value: {namespace:?}: {why}"));
    }
    // It is the name of the pod's folder, which is removed with the pod.
    let uid = crate::pods::uid(pod);
    if uid.len() > UID_BYTES_MAX || !node_sys::fs::is_name(uid) {
        let why = format!("must be the name of a folder, no more than {UID_BYTES_MAX} bytes");
        return refuse(format!("metadata.uid: Invalid value: {uid:?}: {why}"));
    }
    if spec(pod).containers.is_empty() {
        return refuse("spec.containers: Required value".to_owned());
    }
    check_volumes(pod).or_else(refuse)?;
    let mut names = std::collections::BTreeSet::new();
    for (_, container) in all_containers(pod) {
        let own = &container.name;
        if let Some(why) = dns1123_label(own).into_iter().next() {
            return refuse(format!("spec.containers: name: Invalid value: {own:?}: {why}"));
        }
        if !names.insert(own) {
            return refuse(format!("spec.containers: name: Duplicate value: {own:?}"));
        }
        if container.image.as_deref().unwrap_or_default().is_empty() {
            return refuse(format!("spec.containers: image of {own:?}: Required value"));
        }
    }
    match reference(pod) {
        Some(what) => Err(format!("static pods may not reference {what}")),
        None => Ok(()),
    }
}

/// Volumes have names, each its own: those of their folders.
fn check_volumes(pod: &Pod) -> Result<(), String> {
    let mut names = std::collections::BTreeSet::new();
    for own in spec(pod).volumes.iter().flatten().map(|volume| &volume.name) {
        if let Some(why) = dns1123_label(own).into_iter().next() {
            return Err(format!("spec.volumes: name: Invalid value: {own:?}: {why}"));
        }
        if !names.insert(own) {
            return Err(format!("spec.volumes: name: Duplicate value: {own:?}"));
        }
    }
    Ok(())
}

/// The first kind of API object that the pod names.
fn reference(pod: &Pod) -> Option<&'static str> {
    let spec = spec(pod);
    let named = |name: &Option<String>| name.as_deref().is_some_and(|name| !name.is_empty());
    if named(&spec.service_account_name) || named(&spec.service_account) {
        return Some("serviceaccounts");
    }
    if spec
        .image_pull_secrets
        .as_ref()
        .is_some_and(|all| !all.is_empty())
    {
        return Some("secrets");
    }
    if spec.resource_claims.as_ref().is_some_and(|all| !all.is_empty()) {
        return Some("resourceclaims");
    }
    let containers = all_containers(pod).find_map(|(_, own)| of_container(own));
    containers.or_else(|| spec.volumes.iter().flatten().find_map(of_volume))
}

fn of_container(container: &Container) -> Option<&'static str> {
    let mut secrets = false;
    let mut config_maps = false;
    for source in container.env_from.iter().flatten() {
        secrets |= source.secret_ref.is_some();
        config_maps |= source.config_map_ref.is_some();
    }
    let values = container.env.iter().flatten();
    for source in values.filter_map(|own| own.value_from.as_ref()) {
        secrets |= source.secret_key_ref.is_some();
        config_maps |= source.config_map_key_ref.is_some();
    }
    match (secrets, config_maps) {
        (true, _) => Some("secrets"),
        (false, true) => Some("configmaps"),
        (false, false) => None,
    }
}

fn of_volume(volume: &Volume) -> Option<&'static str> {
    let all = [
        (volume.config_map.is_some(), "configmaps (via configmap volumes)"),
        (volume.secret.is_some(), "secrets (via secret volumes)"),
        (volume.csi.is_some(), "csidrivers (via CSI volumes)"),
        (volume.persistent_volume_claim.is_some(), "persistentvolumeclaims"),
        (
            volume.ephemeral.is_some(),
            "persistentvolumeclaims (via ephemeral volumes)",
        ),
    ];
    let own = all.into_iter().find(|(is_so, _)| *is_so).map(|(_, what)| what);
    own.or_else(|| {
        let mut sources = volume
            .projected
            .iter()
            .flat_map(|own| own.sources.iter().flatten());
        sources.find_map(of_projection)
    })
}

fn of_projection(source: &VolumeProjection) -> Option<&'static str> {
    let all = [
        (source.config_map.is_some(), "configmaps (via projected volumes)"),
        (source.secret.is_some(), "secrets (via projected volumes)"),
        (
            source.service_account_token.is_some(),
            "serviceaccounts (via projected volumes)",
        ),
        (source.cluster_trust_bundle.is_some(), "clustertrustbundles"),
        (source.pod_certificate.is_some(), "podcertificates"),
    ];
    all.into_iter().find(|(is_so, _)| *is_so).map(|(_, what)| what)
}
