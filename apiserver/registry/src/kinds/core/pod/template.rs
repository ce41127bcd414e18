//! Defaults of a pod's spec, wherever one stands.

use super::defaults as pod;
use crate::engine::kind::PodTemplate;
use machinery_schema::{Mut, Tree};
use machinery_semantics::image_names::default_pull_policy;

/// The spec of pods at a path of a kind.
pub(crate) const fn at(path: &'static [&'static str]) -> PodTemplate {
    PodTemplate {
        path,
        lines: pod_lines,
        set,
    }
}

/// Defaults of a pod's spec, wherever one stands.
const POD_SPEC: &[&str] = &[
    "dnsPolicy=\"ClusterFirst\"",
    "restartPolicy=\"Always\"",
    "schedulerName=\"default-scheduler\"",
    "securityContext={}",
    "terminationGracePeriodSeconds=30",
    "volumes[].azureDisk.cachingMode=\"ReadWrite\"",
    "volumes[].azureDisk.fsType=\"ext4\"",
    "volumes[].azureDisk.kind=\"Shared\"",
    "volumes[].azureDisk.readOnly=false",
    "volumes[].configMap.defaultMode=420",
    "volumes[].downwardAPI.defaultMode=420",
    "volumes[].downwardAPI.items[].fieldRef.apiVersion=\"v1\"",
    "volumes[].ephemeral.volumeClaimTemplate.spec.volumeMode=\"Filesystem\"",
    "volumes[].hostPath.type=\"\"",
    "volumes[].iscsi.iscsiInterface=\"default\"",
    "volumes[].projected.defaultMode=420",
    "volumes[].projected.sources[].downwardAPI.items[].fieldRef.apiVersion=\"v1\"",
    "volumes[].projected.sources[].serviceAccountToken.expirationSeconds=3600",
    "volumes[].rbd.keyring=\"/etc/ceph/keyring\"",
    "volumes[].rbd.pool=\"rbd\"",
    "volumes[].rbd.user=\"admin\"",
    "volumes[].scaleIO.fsType=\"xfs\"",
    "volumes[].scaleIO.storageMode=\"ThinProvisioned\"",
    "volumes[].secret.defaultMode=420",
];

const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];

/// Defaults of a container.
const CONTAINER: &[&str] = &[
    "env[].valueFrom.fieldRef.apiVersion=\"v1\"",
    "env[].valueFrom.fileKeyRef.optional=false",
    "ports[].protocol=\"TCP\"",
    "terminationMessagePath=\"/dev/termination-log\"",
    "terminationMessagePolicy=\"File\"",
];

/// Defaults of a probe.
const PROBE: &[&str] = &[
    "failureThreshold=3",
    "grpc.service=\"\"",
    "periodSeconds=10",
    "successThreshold=1",
    "timeoutSeconds=1",
];

/// Defaults of a pod's spec with its containers and their probes.
fn pod_lines() -> Vec<String> {
    let containers = CONTAINER_LISTS.iter().flat_map(|list| {
        let probes = PROBES
            .iter()
            .flat_map(|probe| PROBE.iter().map(move |line| format!("{probe}.{line}")));
        let own = CONTAINER.iter().map(|line| (*line).to_owned());
        own.chain(probes).map(move |line| format!("{list}[].{line}"))
    });
    let own = POD_SPEC.iter().map(|line| (*line).to_owned());
    own.chain(containers).collect()
}

/// Defaults that depend on other fields of the spec or of the metadata beside it.
fn set(object: &mut Tree, path: &[&str]) {
    object.with(path, |mut spec| {
        image_volumes(&mut spec);
        pod::spec(&mut spec);
    });
    let above = path.split_last().map_or(&[][..], |(_, above)| above);
    object.with(&[above, &["metadata"]].concat(), |mut own| {
        pod::metadata(&mut own)
    });
}

/// An image volume pulls like a container.
fn image_volumes(spec: &mut Mut<'_>) {
    spec.each("volumes", |mut volume| {
        if let Some(mut image) = volume.field("image") {
            let policy = default_pull_policy(image.as_ref().str("reference"));
            image.default("pullPolicy", policy);
        }
    });
}
