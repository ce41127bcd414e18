//! Volumes that containers of a pod use; the others are not set up (upstream's `getExpectedVolumes`).

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{
    Container, EnvVar, EphemeralContainer, Pod, Volume, VolumeDevice, VolumeMount,
};

/// Volumes of a pod that a container mounts, has as a device or takes variables from.
pub(crate) fn volumes(pod: &Pod) -> impl Iterator<Item = &Volume> {
    let names = names(pod);
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter(move |volume| names.contains(volume.name.as_str()))
}

fn names(pod: &Pod) -> HashSet<&str> {
    let mut names = HashSet::new();
    let Some(spec) = &pod.spec else { return names };
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        names.extend(of_container(container));
    }
    for container in spec.ephemeral_containers.iter().flatten() {
        names.extend(of_ephemeral_container(container));
    }
    names
}

fn of_container(container: &Container) -> impl Iterator<Item = &str> {
    of_parts(
        &container.volume_mounts,
        &container.volume_devices,
        &container.env,
    )
}

fn of_ephemeral_container(container: &EphemeralContainer) -> impl Iterator<Item = &str> {
    of_parts(
        &container.volume_mounts,
        &container.volume_devices,
        &container.env,
    )
}

fn of_parts<'a>(
    mounts: &'a Option<Vec<VolumeMount>>,
    devices: &'a Option<Vec<VolumeDevice>>,
    env: &'a Option<Vec<EnvVar>>,
) -> impl Iterator<Item = &'a str> {
    let mounts = mounts.iter().flatten().map(|mount| mount.name.as_str());
    let devices = devices.iter().flatten().map(|device| device.name.as_str());
    let sources = env
        .iter()
        .flatten()
        .filter_map(|variable| variable.value_from.as_ref());
    let files = sources.filter_map(|source| source.file_key_ref.as_ref());
    mounts
        .chain(devices)
        .chain(files.map(|file| file.volume_name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn volume_is_used_by_each_kind_of_container_and_reference() {
        let mount = |name: &str| json!({"name": name, "volumeMounts": [{"name": name, "mountPath": "/v"}]});
        let file = json!({"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "file", "path": "p", "key": "k"}}});
        let names = ["unused", "init", "main", "debug", "device", "file", "spare"];
        let volumes = names.map(|name| json!({"name": name, "emptyDir": {}}));
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "volumes": volumes,
            "initContainers": [mount("init")],
            "containers": [mount("main"), {"name": "c", "env": [file], "volumeDevices": [{"name": "device", "devicePath": "/d"}]}],
            "ephemeralContainers": [mount("debug")],
        }}))
        .unwrap();
        let used: Vec<&str> = super::volumes(&pod).map(|volume| volume.name.as_str()).collect();
        assert_eq!(used, ["init", "main", "debug", "device", "file"]);
    }
}
