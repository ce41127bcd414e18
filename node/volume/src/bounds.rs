//! Bounds of a pod's volumes by its spec. Each volume is a folder and may be a mount, each part of one that a container shows is a
//! mount of the node, and each token and certificate a request to the API server; a selection of trust bundles looks at all of them.
//!
//! With 110 pods the mounts stay below what Linux takes (`fs.mount-max`, 100,000).

use k8s_openapi::api::core::v1::{EphemeralContainer, Pod, Volume, VolumeMount, VolumeProjection};

use crate::{Failure, VolumeError};

const VOLUMES_MAX: usize = 512;
/// Mounts of all of a pod's containers together.
const MOUNTS_MAX: usize = 2_048;
const SUB_PATHS_MAX: usize = 256;
const TOKENS_MAX: usize = 64;
const CERTIFICATES_MAX: usize = 64;
const TRUST_BUNDLES_MAX: usize = 1_024;

/// A kind of projection, how many of it a pod may have, and upstream's words for it.
type ProjectionBound = (fn(&VolumeProjection) -> bool, usize, &'static str);

const PROJECTIONS_MAX: [ProjectionBound; 3] = [
    (
        |part| part.service_account_token.is_some(),
        TOKENS_MAX,
        "projected service account tokens",
    ),
    (
        |part| part.pod_certificate.is_some(),
        CERTIFICATES_MAX,
        "projected pod certificates",
    ),
    (
        |part| part.cluster_trust_bundle.is_some(),
        TRUST_BUNDLES_MAX,
        "projected trust bundles",
    ),
];

/// Refuses the first volume of a pod beyond what the node gives one pod.
pub(crate) fn check(pod: &Pod) -> Result<(), Failure> {
    let volumes = || pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let projections = |is_such: fn(&VolumeProjection) -> bool| {
        volumes().flat_map(move |volume| std::iter::repeat_n(volume, count_of(volume, is_such)))
    };
    let sub_paths = || mounts(pod).filter(|mount| has_sub_path(mount));
    let beyond = |name: &String, most: usize, what: &str| {
        let error = format!("a pod must not have more than {most} {what}");
        Err((name.clone(), VolumeError::Invalid(error)))
    };
    if let Some(volume) = volumes().nth(VOLUMES_MAX) {
        return beyond(&volume.name, VOLUMES_MAX, "volumes");
    }
    for (is_such, most, what) in PROJECTIONS_MAX {
        if let Some(volume) = projections(is_such).nth(most) {
            return beyond(&volume.name, most, what);
        }
    }
    if let Some(mount) = mounts(pod).nth(MOUNTS_MAX) {
        return beyond(&mount.name, MOUNTS_MAX, "volume mounts");
    }
    match sub_paths().nth(SUB_PATHS_MAX) {
        Some(mount) => beyond(&mount.name, SUB_PATHS_MAX, "volume mounts with a subPath"),
        None => Ok(()),
    }
}

/// The mounts of all containers.
fn mounts(pod: &Pod) -> impl Iterator<Item = &VolumeMount> {
    let spec = pod.spec.iter();
    spec.flat_map(|spec| {
        let init = spec.init_containers.iter().flatten();
        let own = init
            .chain(&spec.containers)
            .map(|container| &container.volume_mounts);
        let ephemeral = spec.ephemeral_containers.iter().flatten();
        own.chain(ephemeral.map(|container: &EphemeralContainer| &container.volume_mounts))
    })
    .flat_map(|mounts| mounts.iter().flatten())
}

fn has_sub_path(mount: &VolumeMount) -> bool {
    let mut paths = [&mount.sub_path, &mount.sub_path_expr].into_iter().flatten();
    paths.any(|path| !path.is_empty())
}

fn count_of(volume: &Volume, is_such: fn(&VolumeProjection) -> bool) -> usize {
    let sources = volume
        .projected
        .iter()
        .flat_map(|source| source.sources.iter().flatten());
    sources.filter(|part| is_such(part)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check_spec(spec: &Value, expected: Option<(&str, &str)>) {
        let pod: Pod = serde_json::from_value(json!({ "spec": spec })).unwrap();
        let refused = check(&pod)
            .err()
            .map(|(volume, error)| (volume, error.to_string()));
        let refused = refused
            .as_ref()
            .map(|(volume, error)| (volume.as_str(), error.as_str()));
        assert_eq!(refused, expected);
    }

    fn volumes(count: usize) -> Value {
        let volume = |number| json!({"name": format!("v{number}"), "emptyDir": {}});
        json!({"containers": [], "volumes": (0..count).map(volume).collect::<Vec<_>>()})
    }

    fn mounted(each: usize, sub_path: &str) -> Value {
        let mounts = vec![json!({"name": "v", "mountPath": "/v", "subPath": sub_path}); each];
        let container = json!({"name": "c", "volumeMounts": mounts});
        json!({"initContainers": [container], "containers": [container], "ephemeralContainers": [container, container]})
    }

    fn projected(source: &Value, count: usize) -> Value {
        let volume = |count| json!({"name": "v", "projected": {"sources": vec![source; count]}});
        json!({"containers": [], "volumes": [volume(count / 2), volume(count - count / 2)]})
    }

    #[test]
    fn volumes_of_a_pod_are_bounded_in_number() {
        check_spec(&volumes(512), None);
        check_spec(
            &volumes(20_000),
            Some(("v512", "a pod must not have more than 512 volumes")),
        );
    }

    #[test]
    fn volume_mounts_of_all_containers_are_bounded_in_number() {
        check_spec(&mounted(512, ""), None);
        check_spec(
            &mounted(513, ""),
            Some(("v", "a pod must not have more than 2048 volume mounts")),
        );
        check_spec(&mounted(64, "part"), None);
        check_spec(
            &mounted(65, "part"),
            Some((
                "v",
                "a pod must not have more than 256 volume mounts with a subPath",
            )),
        );
    }

    #[test]
    fn volume_projections_of_a_pod_are_bounded_in_number() {
        for (source, most, refusal) in [
            (
                json!({"serviceAccountToken": {"path": "token"}}),
                64,
                "a pod must not have more than 64 projected service account tokens",
            ),
            (
                json!({"podCertificate": {"signerName": "s.io/s", "keyType": "ED25519", "keyPath": "k"}}),
                64,
                "a pod must not have more than 64 projected pod certificates",
            ),
            (
                json!({"clusterTrustBundle": {"name": "b", "path": "p"}}),
                1_024,
                "a pod must not have more than 1024 projected trust bundles",
            ),
        ] {
            check_spec(&projected(&source, most), None);
            check_spec(&projected(&source, most + 1), Some(("v", refusal)));
        }
    }
}
