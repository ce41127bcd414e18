//! A pod template: what its pods get, kept as text and never understood.

use machinery_client::LongList;
use machinery_meta::{ObjectHeader, TextMap};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

/// `spec.template` of a workload.
#[derive(Debug, Clone, Deserialize)]
pub struct PodTemplate {
    /// Labels, annotations and finalizers of its pods.
    #[serde(default)]
    pub metadata: TemplateView,
    /// The pods' spec, as it is stored.
    pub spec: Arc<RawValue>,
}

/// `spec.template.metadata`, as far as pods get it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TemplateView {
    /// Labels.
    pub labels: TextMap,
    /// Annotations.
    pub annotations: TextMap,
    /// Finalizers.
    pub finalizers: LongList<String>,
}

impl TemplateView {
    /// Returns the metadata of new pods, to be changed and written.
    pub fn to_meta(&self) -> TemplateMeta {
        TemplateMeta {
            labels: tree(&self.labels),
            annotations: tree(&self.annotations),
            finalizers: self.finalizers.items().into_owned(),
        }
    }
}

/// The pairs of a map, to be changed.
pub fn tree(map: &TextMap) -> BTreeMap<String, String> {
    let pairs = map.iter();
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Metadata of pods to be made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateMeta {
    /// Labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Finalizers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
}

/// A pod to be created.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewPod<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: NewMeta,
    spec: &'a RawValue,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NewMeta {
    name: String,
    generate_name: String,
    namespace: String,
    #[serde(flatten)]
    template: TemplateMeta,
    owner_references: Vec<OwnerReference>,
}

/// An entry of `ownerReferences` as objects write it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference {
    /// `apps/v1`.
    pub api_version: String,
    /// `ReplicaSet`.
    pub kind: String,
    /// The owner's name.
    pub name: String,
    /// The owner's uid.
    pub uid: String,
    /// True if it is the controller.
    pub controller: bool,
    /// True if its foreground deletion waits for this object.
    pub block_owner_deletion: bool,
}

impl OwnerReference {
    /// The reference that a controller puts on what it makes.
    pub fn controller(api_version: &str, kind: &str, owner: &ObjectHeader) -> Self {
        Self {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            name: owner.key.name.clone(),
            uid: owner.uid.0.clone(),
            controller: true,
            block_owner_deletion: true,
        }
    }
}

impl PodTemplate {
    /// A pod of this template under a name, owned by its controller.
    pub fn pod(&self, namespace: &str, name: &str, prefix: &str, owner: OwnerReference) -> NewPod<'_> {
        NewPod::of(
            self.metadata.to_meta(),
            &self.spec,
            [namespace, name, prefix],
            owner,
        )
    }

    /// The template of some of its pods, to be changed.
    pub fn to_edit(&self) -> EditedTemplate {
        EditedTemplate {
            metadata: self.metadata.to_meta(),
            spec: self.spec.clone(),
        }
    }
}

/// A template that a controller has changed for some of its pods.
#[derive(Debug, Clone)]
pub struct EditedTemplate {
    /// Labels, annotations and finalizers of the pods.
    pub metadata: TemplateMeta,
    /// The pods' spec.
    pub spec: Arc<RawValue>,
}

impl EditedTemplate {
    /// A pod of this template under a name, owned by its controller.
    pub fn pod(&self, namespace: &str, name: &str, prefix: &str, owner: OwnerReference) -> NewPod<'_> {
        NewPod::of(
            self.metadata.clone(),
            &self.spec,
            [namespace, name, prefix],
            owner,
        )
    }
}

impl<'a> NewPod<'a> {
    fn of(
        template: TemplateMeta,
        spec: &'a RawValue,
        [namespace, name, prefix]: [&str; 3],
        owner: OwnerReference,
    ) -> Self {
        Self {
            api_version: "v1",
            kind: "Pod",
            metadata: NewMeta {
                name: name.to_owned(),
                generate_name: prefix.to_owned(),
                namespace: namespace.to_owned(),
                template,
                owner_references: vec![owner],
            },
            spec,
        }
    }
}

/// A template with its fingerprint. Versions of an object that have the same text share it: most changes are of the status.
#[derive(Debug)]
pub struct SharedTemplate {
    template: PodTemplate,
    /// See [`fingerprint`].
    pub fingerprint: u64,
    /// Hash of the text of `metadata`, which would cost as much as its pairs.
    metadata_text: Option<u64>,
}

/// The members of a template; there are no others.
#[derive(Deserialize)]
struct Members<'a> {
    #[serde(default, borrow)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    spec: &'a RawValue,
}

impl SharedTemplate {
    /// The template with this text: that of the former version of the object, where it is the same.
    pub fn read(text: &RawValue, former: Option<&Arc<Self>>) -> Result<Arc<Self>, serde_json::Error> {
        let members: Members<'_> = machinery_client::json::from_str(text.get())?;
        if let Some(former) = former.filter(|own| own.has(&members)) {
            return Ok(Arc::clone(former));
        }
        Ok(Arc::new(Self {
            template: machinery_client::json::from_str(text.get())?,
            fingerprint: fingerprint(text)?,
            metadata_text: members.metadata_text(),
        }))
    }

    fn has(&self, members: &Members<'_>) -> bool {
        self.metadata_text == members.metadata_text() && self.spec.get() == members.spec.get()
    }
}

impl Members<'_> {
    fn metadata_text(&self) -> Option<u64> {
        self.metadata.map(|own| fnv(own.get().as_bytes()))
    }
}

impl Deref for SharedTemplate {
    type Target = PodTemplate;

    fn deref(&self) -> &PodTemplate {
        &self.template
    }
}

/// The label by which a Deployment distinguishes the pods of its sets.
pub const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// A fingerprint of a template's JSON that does not look at [`POD_TEMPLATE_HASH`] nor at the order of fields: two
/// templates with one fingerprint are the same template.
pub fn fingerprint(template: &RawValue) -> Result<u64, serde_json::Error> {
    let mut value: serde_json::Value = serde_json::from_str(template.get())?;
    if let Some(meta) = value
        .get_mut("metadata")
        .and_then(serde_json::Value::as_object_mut)
    {
        meta.remove("creationTimestamp");
        if let Some(labels) = meta.get_mut("labels").and_then(serde_json::Value::as_object_mut) {
            labels.remove(POD_TEMPLATE_HASH);
        }
    }
    // serde_json's map is sorted, so equal values have equal texts.
    Ok(fnv(value.to_string().as_bytes()))
}

/// FNV-1a: the same on every machine and in every version.
pub fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::deployment::DeploymentView;
    use crate::views::replica_set::{ReplicaSetView, ReplicationControllerView, SetView};
    use machinery_client::Projection;
    use serde_json::{Value, json};

    fn object(template: &Value, ready: i32) -> Vec<u8> {
        let selector = json!({"app": "web"});
        let spec = json!({"selector": selector, "template": template});
        json!({"spec": spec, "status": {"readyReplicas": ready}})
            .to_string()
            .into_bytes()
    }

    #[track_caller]
    fn check<P: Projection>(template_of: fn(&P) -> &Arc<SharedTemplate>) {
        let (header, project_after) = (ObjectHeader::default(), P::PROJECT_AFTER.unwrap());
        let template = |metadata: Value, image: &str| {
            let spec = json!({"containers": [{"name": "c", "image": image}]});
            json!({"metadata": metadata, "spec": spec})
        };
        let labels = json!({"labels": {"app": "web"}});
        let first = P::project(&header, &object(&template(labels.clone(), "a"), 0)).unwrap();
        let after = |json: Value, ready| project_after(&first, &header, &object(&json, ready)).unwrap();
        let same = after(template(labels.clone(), "a"), 1);
        assert!(Arc::ptr_eq(template_of(&same), template_of(&first)));
        let (image, name) = (template(labels, "b"), template(json!({"name": "n"}), "a"));
        for changed in [image, name, json!({"spec": {"containers": []}})] {
            let anew = P::project(&header, &object(&changed, 1)).unwrap();
            let now = after(changed.clone(), 1);
            assert_eq!(template_of(&now).fingerprint, template_of(&anew).fingerprint);
            assert_ne!(
                template_of(&now).fingerprint,
                template_of(&first).fingerprint,
                "{changed}"
            );
            assert_eq!(template_of(&now).spec.get(), template_of(&anew).spec.get());
        }
    }

    #[test]
    fn template_is_shared_by_versions_with_the_same_text() {
        check::<DeploymentView>(|own| &own.template);
        check::<ReplicaSetView>(|own| &own.template);
        check::<ReplicationControllerView>(|own| &own.view().template);
    }
}
