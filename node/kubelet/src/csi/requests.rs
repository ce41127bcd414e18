//! Requests to a driver about a volume. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, SecretReference};
use k8s_openapi::api::storage::v1::CSIDriver;
use node_plugin_api::csi::messages::{
    AccessMode, AccessModeType, AccessType, CapacityRange, MountVolume, NodeExpandVolumeRequest,
    NodePublishVolumeRequest, NodeStageVolumeRequest, VolumeCapability,
};
use node_volume::{CsiSource, CsiVolume};

use super::drivers::Abilities;
use super::places::{VolumeKey, inline_handle};
use crate::pods::{name, namespace, spec, uid};

const NAME: &str = "csi.storage.k8s.io/pod.name";
const NAMESPACE: &str = "csi.storage.k8s.io/pod.namespace";
const UID: &str = "csi.storage.k8s.io/pod.uid";
const SERVICE_ACCOUNT: &str = "csi.storage.k8s.io/serviceAccount.name";
const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";
/// Tokens by audience.
pub(super) const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// Bytes of a driver's name of a volume; CSI itself has 128.
const HANDLE_BYTES_MAX: usize = 4 << 10;

/// A text for each name.
pub(super) type Texts = BTreeMap<String, String>;

/// Parts of a volume's source that matter to its driver, wherever the volume comes from.
#[derive(Debug, Clone, Default)]
pub(super) struct Wanted {
    pub(super) key: VolumeKey,
    fs_type: String,
    access_mode: String,
    mount_options: Vec<String>,
    /// Attributes of the volume.
    attributes: Texts,
    pub(super) stage_secret: Option<SecretReference>,
    pub(super) publish_secret: Option<SecretReference>,
    /// It is the pod's own.
    pub(super) is_inline: bool,
    pub(super) is_read_only: bool,
    fs_group: Option<u32>,
    /// One node writes it, as far as its access modes say.
    is_for_one_writer: bool,
}

impl Wanted {
    /// The parts of a pod's volume.
    ///
    /// # Errors
    /// The source is no driver's.
    pub(super) fn of(volume: &CsiVolume) -> Result<Self, String> {
        let own = Self {
            is_read_only: volume.is_read_only,
            fs_group: volume.fs_group,
            access_mode: "ReadWriteOnce".to_owned(),
            ..Self::default()
        };
        let handled = |driver: &str, handle: String| VolumeKey {
            driver: driver.to_owned(),
            handle,
        };
        match &volume.source {
            CsiSource::Inline(source) => Ok(Self {
                key: handled(&source.driver, inline_handle(uid(&volume.pod), &volume.volume)),
                fs_type: source.fs_type.clone().unwrap_or_default(),
                attributes: source.volume_attributes.clone().unwrap_or_default(),
                publish_secret: source
                    .node_publish_secret_ref
                    .as_ref()
                    .map(|own| SecretReference {
                        name: Some(own.name.clone()),
                        namespace: Some(namespace(&volume.pod).to_owned()),
                    }),
                is_inline: true,
                is_for_one_writer: true,
                ..own
            }),
            CsiSource::Persistent(behind) => {
                let spec = behind.spec.clone().unwrap_or_default();
                let source = spec.csi.ok_or("CSI source not found in volume.Spec")?;
                if source.volume_handle.len() > HANDLE_BYTES_MAX {
                    return Err(format!("volumeHandle has more than {HANDLE_BYTES_MAX} bytes"));
                }
                let modes = spec.access_modes.unwrap_or_default();
                Ok(Self {
                    key: handled(&source.driver, source.volume_handle),
                    fs_type: source.fs_type.unwrap_or_default(),
                    attributes: source.volume_attributes.unwrap_or_default(),
                    stage_secret: source.node_stage_secret_ref,
                    publish_secret: source.node_publish_secret_ref,
                    is_for_one_writer: modes
                        .iter()
                        .any(|mode| mode == "ReadWriteOnce" || mode == "ReadWriteOncePod"),
                    access_mode: modes.into_iter().next().unwrap_or(own.access_mode.clone()),
                    mount_options: spec.mount_options.unwrap_or_default(),
                    ..own
                })
            }
        }
    }

    /// Reports whether one pod of the cluster may have the volume.
    pub(super) fn is_for_one_pod(&self) -> bool {
        self.access_mode == "ReadWriteOncePod"
    }

    fn capability(&self, abilities: Abilities) -> VolumeCapability {
        let group = self.fs_group.filter(|_| abilities.mount_group);
        VolumeCapability {
            access_type: Some(AccessType::Mount(MountVolume {
                fs_type: self.fs_type.clone(),
                mount_flags: self.mount_options.clone(),
                volume_mount_group: group.map(|group| group.to_string()).unwrap_or_default(),
            })),
            access_mode: Some(AccessMode {
                mode: access_mode(&self.access_mode, abilities.single_node_multi_writer).into(),
            }),
        }
    }

    /// Shows the volume once for all pods of the node.
    pub(super) fn stage(
        &self,
        abilities: Abilities,
        place: &str,
        attached: &Texts,
        secrets: Texts,
    ) -> NodeStageVolumeRequest {
        NodeStageVolumeRequest {
            volume_id: self.key.handle.clone(),
            publish_context: attached.clone(),
            staging_target_path: place.to_owned(),
            volume_capability: Some(self.capability(abilities)),
            secrets,
            volume_context: self.attributes.clone(),
        }
    }

    /// Shows the volume to a pod.
    pub(super) fn publish(
        &self,
        abilities: Abilities,
        (place, staged_at): (&str, &str),
        attached: &Texts,
        secrets: Texts,
        of_pod: Texts,
    ) -> NodePublishVolumeRequest {
        let mut volume_context = self.attributes.clone();
        volume_context.extend(of_pod);
        NodePublishVolumeRequest {
            volume_id: self.key.handle.clone(),
            publish_context: attached.clone(),
            staging_target_path: staged_at.to_owned(),
            target_path: place.to_owned(),
            volume_capability: Some(self.capability(abilities)),
            readonly: self.is_read_only,
            secrets,
            volume_context,
        }
    }

    /// Makes the volume as large as this.
    pub(super) fn expand(
        &self,
        abilities: Abilities,
        (place, staged_at): (&str, &str),
        bytes: i64,
        secrets: Texts,
    ) -> NodeExpandVolumeRequest {
        NodeExpandVolumeRequest {
            volume_id: self.key.handle.clone(),
            volume_path: place.to_owned(),
            capacity_range: Some(CapacityRange {
                required_bytes: bytes,
                limit_bytes: 0,
            }),
            staging_target_path: staged_at.to_owned(),
            volume_capability: Some(self.capability(abilities)),
            secrets,
        }
    }

    /// The group that the agent gives the volume's files to, where that is not the driver's affair: upstream's `supportsFSGroup`.
    pub(super) fn group_to_give(&self, abilities: Abilities, driver: Option<&CSIDriver>) -> Option<u32> {
        let policy = driver.and_then(|driver| driver.spec.fs_group_policy.as_deref());
        let by_agent = match policy.unwrap_or("ReadWriteOnceWithFSType") {
            "None" => false,
            "File" => true,
            _ => !self.fs_type.is_empty() && self.is_for_one_writer,
        };
        let by_agent = by_agent && !self.is_read_only && !abilities.mount_group;
        self.fs_group.filter(|_| by_agent)
    }
}

/// Attributes of the pod that a driver requests.
pub(super) fn pod_attributes(pod: &Pod, is_inline: bool, driver: Option<&CSIDriver>) -> Texts {
    if driver.and_then(|driver| driver.spec.pod_info_on_mount) != Some(true) {
        return Texts::new();
    }
    let account = spec(pod).service_account_name.as_deref().unwrap_or_default();
    let ephemeral = is_inline.to_string();
    [
        (NAME, name(pod)),
        (NAMESPACE, namespace(pod)),
        (UID, uid(pod)),
        (SERVICE_ACCOUNT, account),
        (EPHEMERAL, &ephemeral),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

/// Checks that a driver gives volumes of this origin. Words are upstream's.
pub(super) fn check_lifecycle(
    driver: &str,
    is_inline: bool,
    found: Option<&CSIDriver>,
) -> Result<(), String> {
    let mode = lifecycle(is_inline);
    let modes = found.map(|found| found.spec.volume_lifecycle_modes.clone());
    let modes = match modes {
        // A driver without an object gives what all drivers gave at first.
        None if is_inline => {
            return Err(format!(
                "volume mode {mode:?} not supported by driver {driver} (no CSIDriver object)"
            ));
        }
        None => return Ok(()),
        Some(modes) => modes.filter(|modes| !modes.is_empty()),
    };
    let modes = modes.unwrap_or_else(|| vec!["Persistent".to_owned()]);
    match modes.iter().any(|own| own == mode) {
        true => Ok(()),
        false => {
            let modes: Vec<String> = modes.iter().map(|own| format!("{own:?}")).collect();
            Err(format!(
                "volume mode {mode:?} not supported by driver {driver} (only supports [{}])",
                modes.join(" ")
            ))
        }
    }
}

/// Upstream's word for the origin of a volume.
pub(super) fn lifecycle(is_inline: bool) -> &'static str {
    match is_inline {
        true => "Ephemeral",
        false => "Persistent",
    }
}

fn access_mode(mode: &str, knows_writers: bool) -> AccessModeType {
    match mode {
        "ReadWriteOnce" if knows_writers => AccessModeType::SingleNodeMultiWriter,
        "ReadWriteOncePod" if knows_writers => AccessModeType::SingleNodeSingleWriter,
        "ReadWriteOnce" | "ReadWriteOncePod" => AccessModeType::SingleNodeWriter,
        "ReadOnlyMany" => AccessModeType::MultiNodeReaderOnly,
        "ReadWriteMany" => AccessModeType::MultiNodeMultiWriter,
        _ => AccessModeType::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::PersistentVolume;
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {"serviceAccountName": "robot", "containers": []},
        }))
        .unwrap()
    }

    fn driver(spec: Value) -> CSIDriver {
        serde_json::from_value(json!({"metadata": {"name": "d"}, "spec": spec})).unwrap()
    }

    fn volume(spec: Value) -> CsiVolume {
        let behind: PersistentVolume =
            serde_json::from_value(json!({"metadata": {"name": "pv"}, "spec": spec})).unwrap();
        CsiVolume {
            pod: Arc::new(pod()),
            volume: "data".to_owned(),
            source: CsiSource::Persistent(Box::new(behind)),
            is_read_only: false,
            fs_group: Some(7),
        }
    }

    fn persistent(modes: &[&str], fs_type: &str) -> Wanted {
        let source =
            json!({"driver": "d", "volumeHandle": "v", "fsType": fs_type, "volumeAttributes": {"a": "1"}});
        Wanted::of(&volume(
            json!({"csi": source, "accessModes": modes, "mountOptions": ["noatime"]}),
        ))
        .unwrap()
    }

    #[test]
    fn volume_whose_handle_would_not_fit_into_a_record_is_refused() {
        let of = |bytes: usize| {
            let source = json!({"driver": "d", "volumeHandle": "v".repeat(bytes)});
            Wanted::of(&volume(json!({"csi": source, "accessModes": ["ReadWriteOnce"]}))).map(drop)
        };
        assert_eq!(of(HANDLE_BYTES_MAX), Ok(()));
        assert_eq!(
            of(HANDLE_BYTES_MAX + 1),
            Err("volumeHandle has more than 4096 bytes".to_owned())
        );
    }

    #[track_caller]
    fn check_mode(mode: &str, knows_writers: bool, expected: AccessModeType) {
        let abilities = Abilities {
            single_node_multi_writer: knows_writers,
            ..Abilities::default()
        };
        let capability = persistent(&[mode], "").capability(abilities);
        assert_eq!(capability.access_mode.unwrap().mode(), expected, "{mode}");
    }

    #[test]
    fn access_mode_is_the_first_of_the_volume_in_the_drivers_words() {
        check_mode("ReadWriteOnce", false, AccessModeType::SingleNodeWriter);
        check_mode("ReadWriteOncePod", false, AccessModeType::SingleNodeWriter);
        check_mode("ReadWriteOnce", true, AccessModeType::SingleNodeMultiWriter);
        check_mode("ReadWriteOncePod", true, AccessModeType::SingleNodeSingleWriter);
        assert!(persistent(&["ReadWriteOncePod"], "").is_for_one_pod());
        assert!(!persistent(&["ReadWriteOnce"], "").is_for_one_pod());
        check_mode("ReadOnlyMany", true, AccessModeType::MultiNodeReaderOnly);
        check_mode("ReadWriteMany", false, AccessModeType::MultiNodeMultiWriter);
        let none = persistent(&[], "").capability(Abilities::default());
        assert_eq!(none.access_mode.unwrap().mode(), AccessModeType::SingleNodeWriter);
    }

    #[test]
    fn files_are_given_to_a_group_by_the_drivers_policy() {
        let of = |modes: &[&str], fs_type: &str, policy: Option<&str>| {
            let found = policy.map(|policy| driver(json!({"fsGroupPolicy": policy})));
            persistent(modes, fs_type).group_to_give(Abilities::default(), found.as_ref())
        };
        assert_eq!(of(&["ReadWriteOnce"], "ext4", None), Some(7));
        assert_eq!(of(&["ReadWriteOnce"], "", None), None);
        assert_eq!(
            of(&["ReadWriteMany"], "ext4", Some("ReadWriteOnceWithFSType")),
            None
        );
        assert_eq!(of(&["ReadWriteMany"], "", Some("File")), Some(7));
        assert_eq!(of(&["ReadWriteOnce"], "ext4", Some("None")), None);
        let mounts = Abilities {
            mount_group: true,
            ..Abilities::default()
        };
        let own = persistent(&["ReadWriteOnce"], "ext4");
        assert_eq!(own.group_to_give(mounts, None), None);
        let Some(AccessType::Mount(mount)) = own.capability(mounts).access_type else {
            panic!("no files")
        };
        assert_eq!(
            (mount.volume_mount_group.as_str(), mount.mount_flags),
            ("7", vec!["noatime".to_owned()])
        );
    }

    #[test]
    fn attributes_of_the_pod_are_the_drivers_who_asks_for_them() {
        let asks = driver(json!({"podInfoOnMount": true}));
        let own = pod_attributes(&pod(), false, Some(&asks));
        let expected = [
            ("csi.storage.k8s.io/ephemeral", "false"),
            ("csi.storage.k8s.io/pod.name", "p"),
            ("csi.storage.k8s.io/pod.namespace", "ns"),
            ("csi.storage.k8s.io/pod.uid", "u"),
            ("csi.storage.k8s.io/serviceAccount.name", "robot"),
        ];
        assert_eq!(
            own,
            expected
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into()
        );
        assert!(pod_attributes(&pod(), false, Some(&driver(json!({})))).is_empty());
        let request = persistent(&[], "").publish(
            Abilities::default(),
            ("/t", "/s"),
            &Texts::new(),
            Texts::new(),
            own,
        );
        assert_eq!(
            (request.volume_context.len(), request.volume_context["a"].as_str()),
            (6, "1")
        );
    }

    #[test]
    fn driver_gives_volumes_of_the_origins_that_it_names() {
        let both = driver(json!({"volumeLifecycleModes": ["Persistent", "Ephemeral"]}));
        let one = driver(json!({"volumeLifecycleModes": ["Persistent"]}));
        check_lifecycle("d", true, Some(&both)).unwrap();
        check_lifecycle("d", false, Some(&one)).unwrap();
        check_lifecycle("d", false, None).unwrap();
        assert_eq!(
            check_lifecycle("d", true, Some(&one)).unwrap_err(),
            "volume mode \"Ephemeral\" not supported by driver d (only supports [\"Persistent\"])"
        );
        assert_eq!(
            check_lifecycle("d", true, None).unwrap_err(),
            "volume mode \"Ephemeral\" not supported by driver d (no CSIDriver object)"
        );
    }

    #[test]
    fn secrets_are_not_printed() {
        let secrets = Texts::from([("key".to_owned(), "hush".to_owned())]);
        let own = persistent(&[], "");
        let staged = own.stage(Abilities::default(), "/s", &Texts::new(), secrets.clone());
        let token = Texts::from([(TOKENS.to_owned(), "hush".to_owned())]);
        let published = own.publish(Abilities::default(), ("/t", ""), &Texts::new(), secrets, token);
        assert!(!format!("{staged:?}{published:?}").contains("hush"));
    }
}
