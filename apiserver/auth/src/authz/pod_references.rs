//! Which other objects a pod needs on its node (what the node authorizer's graph has as edges).

use serde::Deserialize;

/// The parts of a pod that name other objects. Unknown parts are skipped.
#[derive(Debug, Deserialize, Default)]
#[serde(default)]
pub(crate) struct PodReferences {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Metadata {
    name: String,
    annotations: Option<std::collections::BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    node_name: String,
    service_account_name: String,
    image_pull_secrets: Vec<Named>,
    init_containers: Vec<Container>,
    containers: Vec<Container>,
    ephemeral_containers: Vec<Container>,
    volumes: Vec<Volume>,
    resource_claims: Vec<ClaimReference>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    resource_claim_statuses: Vec<ClaimReference>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ClaimReference {
    resource_claim_name: Option<String>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Named {
    name: String,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct SecretNamed {
    secret_name: String,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Container {
    env: Vec<Env>,
    env_from: Vec<EnvFrom>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Env {
    value_from: Option<ValueFrom>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ValueFrom {
    secret_key_ref: Option<Named>,
    config_map_key_ref: Option<Named>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct EnvFrom {
    secret_ref: Option<Named>,
    config_map_ref: Option<Named>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Volume {
    name: String,
    secret: Option<SecretNamed>,
    config_map: Option<Named>,
    projected: Option<Projected>,
    persistent_volume_claim: Option<ClaimNamed>,
    ephemeral: Option<serde::de::IgnoredAny>,
    azure_file: Option<SecretNamed>,
    cephfs: Option<WithSecretRef>,
    cinder: Option<WithSecretRef>,
    flex_volume: Option<WithSecretRef>,
    rbd: Option<WithSecretRef>,
    scale_io: Option<WithSecretRef>,
    iscsi: Option<WithSecretRef>,
    storageos: Option<WithSecretRef>,
    csi: Option<Csi>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct WithSecretRef {
    secret_ref: Option<Named>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Csi {
    node_publish_secret_ref: Option<Named>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ClaimNamed {
    claim_name: String,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Projected {
    sources: Vec<Source>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Source {
    secret: Option<Named>,
    config_map: Option<Named>,
}

impl PodReferences {
    pub(crate) fn parse(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }

    /// Mirror pods come from the node itself and open nothing.
    pub(crate) fn is_mirror(&self) -> bool {
        self.metadata
            .annotations
            .as_ref()
            .is_some_and(|all| all.contains_key("kubernetes.io/config.mirror"))
    }

    pub(crate) fn node_name(&self) -> &str {
        &self.spec.node_name
    }

    pub(crate) fn service_account(&self) -> &str {
        &self.spec.service_account_name
    }

    fn containers(&self) -> impl Iterator<Item = &Container> {
        self.spec
            .init_containers
            .iter()
            .chain(&self.spec.containers)
            .chain(&self.spec.ephemeral_containers)
    }

    fn env_values(&self) -> impl Iterator<Item = &ValueFrom> {
        self.containers()
            .flat_map(|c| &c.env)
            .filter_map(|env| env.value_from.as_ref())
    }

    fn env_sources(&self) -> impl Iterator<Item = &EnvFrom> {
        self.containers().flat_map(|c| &c.env_from)
    }

    fn sources(&self) -> impl Iterator<Item = &Source> {
        self.spec
            .volumes
            .iter()
            .filter_map(|v| v.projected.as_ref())
            .flat_map(|p| &p.sources)
    }

    pub(crate) fn uses_secret(&self, name: &str) -> bool {
        let is = |one: &Named| one.name == name;
        self.spec.image_pull_secrets.iter().any(is)
            || self
                .env_values()
                .filter_map(|v| v.secret_key_ref.as_ref())
                .any(is)
            || self.env_sources().filter_map(|e| e.secret_ref.as_ref()).any(is)
            || self.sources().filter_map(|s| s.secret.as_ref()).any(is)
            || self.spec.volumes.iter().any(|volume| volume.uses_secret(name))
    }

    pub(crate) fn uses_config_map(&self, name: &str) -> bool {
        let is = |one: &Named| one.name == name;
        self.env_values()
            .filter_map(|v| v.config_map_key_ref.as_ref())
            .any(is)
            || self
                .env_sources()
                .filter_map(|e| e.config_map_ref.as_ref())
                .any(is)
            || self.sources().filter_map(|s| s.config_map.as_ref()).any(is)
            || self
                .spec
                .volumes
                .iter()
                .filter_map(|v| v.config_map.as_ref())
                .any(is)
    }

    pub(crate) fn uses_volume_claim(&self, name: &str) -> bool {
        self.spec.volumes.iter().any(|volume| {
            volume
                .persistent_volume_claim
                .as_ref()
                .is_some_and(|claim| claim.claim_name == name)
                || (volume.ephemeral.is_some() && name == format!("{}-{}", self.metadata.name, volume.name))
        })
    }

    pub(crate) fn uses_resource_claim(&self, name: &str) -> bool {
        self.spec
            .resource_claims
            .iter()
            .chain(&self.status.resource_claim_statuses)
            .any(|claim| claim.resource_claim_name.as_deref() == Some(name))
    }
}

impl Volume {
    fn uses_secret(&self, name: &str) -> bool {
        let plain = [&self.secret, &self.azure_file];
        let referring = [
            &self.cephfs,
            &self.cinder,
            &self.flex_volume,
            &self.rbd,
            &self.scale_io,
            &self.iscsi,
            &self.storageos,
        ];
        plain.into_iter().flatten().any(|one| one.secret_name == name)
            || referring
                .into_iter()
                .flatten()
                .filter_map(|r| r.secret_ref.as_ref())
                .any(|one| one.name == name)
            || self
                .csi
                .as_ref()
                .and_then(|c| c.node_publish_secret_ref.as_ref())
                .is_some_and(|r| r.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_name_an_object_is_seen() {
        let pod = PodReferences::parse(
            br#"{"metadata":{"name":"p"},"spec":{"nodeName":"n","serviceAccountName":"sa",
            "imagePullSecrets":[{"name":"s1"}],
            "containers":[{"env":[{"name":"A","valueFrom":{"secretKeyRef":{"name":"s2","key":"k"}}},
                                  {"name":"B","valueFrom":{"configMapKeyRef":{"name":"c1","key":"k"}}}],
                           "envFrom":[{"secretRef":{"name":"s3"}},{"configMapRef":{"name":"c2"}}]}],
            "volumes":[{"name":"a","secret":{"secretName":"s4"}},{"name":"b","configMap":{"name":"c3"}},
                       {"name":"c","projected":{"sources":[{"secret":{"name":"s5"}},{"configMap":{"name":"c4"}}]}},
                       {"name":"d","persistentVolumeClaim":{"claimName":"v1"}},
                       {"name":"e","ephemeral":{"volumeClaimTemplate":{}}},
                       {"name":"f","csi":{"driver":"x","nodePublishSecretRef":{"name":"s6"}}}]}}"#,
        )
        .unwrap();
        for secret in ["s1", "s2", "s3", "s4", "s5", "s6"] {
            assert!(pod.uses_secret(secret), "{secret}");
        }
        for config_map in ["c1", "c2", "c3", "c4"] {
            assert!(pod.uses_config_map(config_map), "{config_map}");
        }
        assert!(pod.uses_volume_claim("v1") && pod.uses_volume_claim("p-e"));
        assert!(!pod.uses_secret("c1") && !pod.uses_config_map("s1") && !pod.uses_volume_claim("p-d"));
    }
}
