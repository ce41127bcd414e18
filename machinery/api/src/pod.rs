//! The parts of a pod by which access is decided: its node, its account, and which other objects it names.

use machinery_schema::Ref;

/// Marks the copy of a static pod that its node writes.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// Volume sources that name a secret, and where.
const VOLUME_SECRETS: [(&str, &[&str]); 10] = [
    ("azureFile", &["secretName"]),
    ("cephfs", &["secretRef", "name"]),
    ("cinder", &["secretRef", "name"]),
    ("csi", &["nodePublishSecretRef", "name"]),
    ("flexVolume", &["secretRef", "name"]),
    ("iscsi", &["secretRef", "name"]),
    ("rbd", &["secretRef", "name"]),
    ("scaleIO", &["secretRef", "name"]),
    ("secret", &["secretName"]),
    ("storageos", &["secretRef", "name"]),
];

/// A pod, read in place. Made of a pod's tree, be it stored ([`crate::read_stored`]) or about to be.
#[derive(Debug, Clone, Copy)]
pub struct PodView<'a>(Ref<'a>);

impl<'a> PodView<'a> {
    pub fn new(pod: Ref<'a>) -> Self {
        Self(pod)
    }

    pub fn name(self) -> &'a str {
        self.0.str_at(&["metadata", "name"])
    }

    /// The node the pod is bound to; empty before that.
    pub fn node_name(self) -> &'a str {
        self.0.str_at(&["spec", "nodeName"])
    }

    pub fn service_account(self) -> &'a str {
        self.0.str_at(&["spec", "serviceAccountName"])
    }

    /// Mirror pods come from the node itself and open nothing.
    pub fn is_mirror(self) -> bool {
        self.annotation(MIRROR_ANNOTATION).is_some()
    }

    pub fn annotation(self, key: &str) -> Option<&'a str> {
        self.0.at(&["metadata", "annotations", key]).and_then(Ref::as_str)
    }

    fn spec_list(self, member: &str) -> impl Iterator<Item = Ref<'a>> + use<'a> {
        self.0.at(&["spec", member]).into_iter().flat_map(Ref::items)
    }

    /// Containers of all three kinds.
    pub fn containers(self) -> impl Iterator<Item = Ref<'a>> {
        ["initContainers", "containers", "ephemeralContainers"]
            .into_iter()
            .flat_map(move |kind| self.spec_list(kind))
    }

    /// Containers of one kind: `containers`, `initContainers` or `ephemeralContainers`.
    pub fn containers_of(self, kind: &str) -> impl Iterator<Item = Ref<'a>> + use<'a> {
        self.spec_list(kind)
    }

    /// The pod's addresses, the main one first.
    pub fn addresses(self) -> impl Iterator<Item = &'a str> {
        let listed = self.0.at(&["status", "podIPs"]).into_iter().flat_map(Ref::items);
        let mut listed = listed.map(|own| own.str("ip")).peekable();
        let alone = match listed.peek() {
            Some(_) => "",
            None => self.0.str_at(&["status", "podIP"]),
        };
        std::iter::once(alone).filter(|ip| !ip.is_empty()).chain(listed)
    }

    pub fn volumes(self) -> impl Iterator<Item = Ref<'a>> {
        self.spec_list("volumes")
    }

    pub fn resource_claim_references(self) -> impl Iterator<Item = Ref<'a>> {
        self.spec_list("resourceClaims")
    }

    /// Sources of all projected volumes.
    pub fn projections(self) -> impl Iterator<Item = Ref<'a>> {
        self.volumes()
            .filter_map(|volume| volume.get("projected"))
            .flat_map(|projected| projected.list("sources"))
    }

    /// Names of secrets that the pod's containers and volumes need; what its volumes' own secrets are, their
    /// PersistentVolumes say.
    pub fn secrets(self) -> impl Iterator<Item = &'a str> {
        let pulled = self.spec_list("imagePullSecrets").map(|own| own.str("name"));
        let mounted = self.volumes().flat_map(|volume| {
            VOLUME_SECRETS
                .iter()
                .filter_map(move |(source, path)| Some(volume.get(source)?.str_at(path)))
        });
        let projected = self.projections().filter_map(|own| own.get("secret"));
        pulled
            .chain(self.environment("secretKeyRef", "secretRef"))
            .chain(mounted)
            .chain(projected.map(|own| own.str("name")))
            .filter(|name| !name.is_empty())
    }

    /// Names of config maps that the pod's containers and volumes need.
    pub fn config_maps(self) -> impl Iterator<Item = &'a str> {
        let mounted = self.volumes().filter_map(|volume| volume.get("configMap"));
        let projected = self.projections().filter_map(|own| own.get("configMap"));
        self.environment("configMapKeyRef", "configMapRef")
            .chain(mounted.chain(projected).map(|own| own.str("name")))
            .filter(|name| !name.is_empty())
    }

    /// Names in the containers' variables: one by one (`key`) and whole objects (`object`).
    fn environment(self, key: &'static str, object: &'static str) -> impl Iterator<Item = &'a str> {
        self.containers().flat_map(move |container| {
            let ones = container
                .list("env")
                .filter_map(move |own| own.at(&["valueFrom", key]));
            let whole = container.list("envFrom").filter_map(move |own| own.get(object));
            ones.chain(whole).map(|own| own.str("name"))
        })
    }

    /// The name of the claim behind a volume of this pod.
    pub fn claim_of(self, volume: Ref<'a>) -> Option<String> {
        if let Some(claim) = volume.get("persistentVolumeClaim") {
            return Some(claim.str("claimName").to_owned());
        }
        let ephemeral = volume.get("ephemeral").is_some();
        ephemeral.then(|| format!("{}-{}", self.name(), volume.str("name")))
    }

    /// Names of the claims behind the pod's volumes.
    pub fn volume_claims(self) -> impl Iterator<Item = String> {
        self.volumes().filter_map(move |volume| self.claim_of(volume))
    }

    /// Names of resource claims: given in the spec, made from a template and named in the status, or made for extended
    /// resources.
    pub fn resource_claims(self) -> impl Iterator<Item = &'a str> {
        let named = self
            .resource_claim_references()
            .filter_map(move |own| self.resource_claim_of(own));
        let extended = self
            .0
            .str_at(&["status", "extendedResourceClaimStatus", "resourceClaimName"]);
        named
            .chain(std::iter::once(extended))
            .filter(|name| !name.is_empty())
    }

    fn resource_claim_of(self, reference: Ref<'a>) -> Option<&'a str> {
        if let Some(name) = reference.get("resourceClaimName").and_then(Ref::as_str) {
            return Some(name);
        }
        reference.get("resourceClaimTemplateName")?;
        let statuses = self.0.at(&["status", "resourceClaimStatuses"])?;
        let status = statuses
            .items()
            .find(|status| status.str("name") == reference.str("name"))?;
        status.get("resourceClaimName").and_then(Ref::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_stored;

    #[test]
    fn pod_names_every_object_it_needs() {
        let pod = read_stored(
            "",
            "v1",
            "Pod",
            br#"{"metadata":{"name":"p"},"spec":{"nodeName":"n","serviceAccountName":"sa",
            "imagePullSecrets":[{"name":"s1"}],
            "containers":[{"name":"a","env":[{"name":"A","valueFrom":{"secretKeyRef":{"name":"s2","key":"k"}}},
                                  {"name":"B","valueFrom":{"configMapKeyRef":{"name":"c1","key":"k"}}}],
                           "envFrom":[{"secretRef":{"name":"s3"}},{"configMapRef":{"name":"c2"}}]}],
            "volumes":[{"name":"a","secret":{"secretName":"s4"}},{"name":"b","configMap":{"name":"c3"}},
                       {"name":"c","projected":{"sources":[{"secret":{"name":"s5"}},{"configMap":{"name":"c4"}}]}},
                       {"name":"d","persistentVolumeClaim":{"claimName":"v1"}},
                       {"name":"e","ephemeral":{"volumeClaimTemplate":{"spec":{}}}},
                       {"name":"f","csi":{"driver":"x","nodePublishSecretRef":{"name":"s6"}}}],
            "resourceClaims":[{"name":"x","resourceClaimName":"r1"},{"name":"y","resourceClaimTemplateName":"t"}]},
            "status":{"resourceClaimStatuses":[{"name":"y","resourceClaimName":"r2"},{"name":"z","resourceClaimName":"r9"}],
            "extendedResourceClaimStatus":{"resourceClaimName":"r3","requestMappings":[]}}}"#,
        )
        .unwrap();
        let pod = PodView::new(pod.root());
        let sorted = |names: &mut dyn Iterator<Item = String>| {
            let mut all: Vec<String> = names.collect();
            all.sort();
            all.join(" ")
        };
        assert_eq!(sorted(&mut pod.secrets().map(str::to_owned)), "s1 s2 s3 s4 s5 s6");
        assert_eq!(sorted(&mut pod.config_maps().map(str::to_owned)), "c1 c2 c3 c4");
        assert_eq!(sorted(&mut pod.volume_claims()), "p-e v1");
        assert_eq!(sorted(&mut pod.resource_claims().map(str::to_owned)), "r1 r2 r3");
        assert!(!pod.is_mirror());
    }
}
