//! PersistentVolumeClaimResize: a claim requests more only once it is bound, and where its class says that volumes grow.

use super::objects::{annotation, find};
use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use machinery_meta::Quantity;
use machinery_meta::reader::ObjectReader;
use machinery_schema::Tree;
use serde::Deserialize;
use std::sync::Arc;

/// The older form of `storageClassName`, which counts first.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

pub(super) struct PersistentVolumeClaimResize {
    reader: Arc<dyn ObjectReader>,
}

impl PersistentVolumeClaimResize {
    pub(super) fn new(reader: &Arc<dyn ObjectReader>) -> Self {
        let reader = Arc::clone(reader);
        Self { reader }
    }

    /// Reports whether the class of a claim lets volumes grow; what cannot be read lets nothing.
    async fn lets_grow(&self, claim: &Tree, old: &Tree) -> Result<bool, AdmissionError> {
        let class = class_of(claim);
        if class.is_empty() || class != class_of(old) {
            return Ok(false);
        }
        let found = find(&*self.reader, "storage.k8s.io", "storageclasses", "", class).await?;
        let class = found.and_then(|found| serde_json::from_slice::<Class>(&found.json).ok());
        Ok(class.unwrap_or_default().allow_volume_expansion == Some(true))
    }
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Class {
    allow_volume_expansion: Option<bool>,
}

fn class_of(claim: &Tree) -> &str {
    annotation(claim, CLASS_ANNOTATION).unwrap_or_else(|| claim.str_at(&["spec", "storageClassName"]))
}

fn requested(claim: &Tree) -> Quantity {
    let text = claim.str_at(&["spec", "resources", "requests", "storage"]);
    text.parse().unwrap_or_default()
}

#[async_trait]
impl Plugin for PersistentVolumeClaimResize {
    fn name(&self) -> &'static str {
        "PersistentVolumeClaimResize"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Validate]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Update]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        request.operation == Operation::Update && request.is("", "persistentvolumeclaims")
    }

    async fn validate(
        &self,
        _: &Request<'_>,
        object: Option<&Tree>,
        old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let (Some(claim), Some(old)) = (object, old) else {
            return Ok(());
        };
        if requested(claim) <= requested(old) {
            return Ok(());
        }
        if old.str_at(&["status", "phase"]) != "Bound" {
            let why = "Only bound persistent volume claims can be expanded";
            return Err(AdmissionError::forbidden(why));
        }
        match self.lets_grow(claim, old).await? {
            true => Ok(()),
            false => Err(AdmissionError::forbidden(
                "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::tests::{Objects, block_on};
    use machinery_meta::UserInfo;

    fn claim(class: &str, phase: &str, size: &str) -> Tree {
        let resources = format!(r#"{{"requests":{{"storage":"{size}"}}}}"#);
        let spec = format!(r#"{{"storageClassName":"{class}","resources":{resources}}}"#);
        Tree::from_json(&format!(r#"{{"spec":{spec},"status":{{"phase":"{phase}"}}}}"#)).unwrap()
    }

    #[track_caller]
    fn check(old: &Tree, new: &Tree, expected: Option<&str>) {
        let objects = Objects::default()
            .with("storageclasses", "", "grows", r#"{"allowVolumeExpansion":true}"#)
            .with("storageclasses", "", "stays", r#"{"allowVolumeExpansion":false}"#)
            .with("storageclasses", "", "silent", "{}");
        let reader: Arc<dyn ObjectReader> = Arc::new(objects);
        let plugin = PersistentVolumeClaimResize::new(&reader);
        let user = UserInfo::named("jane", ["dev"]);
        let request = Request {
            user: &user,
            operation: Operation::Update,
            group: "",
            kind: "PersistentVolumeClaim",
            resource: "persistentvolumeclaims",
            subresource: "",
            namespace: "a",
            name: "x",
            dry_run: false,
            remarks: &crate::Unheard,
            host: None,
            reinvocation: None,
        };
        assert!(plugin.handles(&request));
        let found = block_on(plugin.validate(&request, Some(new), Some(old)));
        let found = found.err().map(|error| error.to_string());
        let starts = |words: &str| found.as_deref().is_some_and(|found| found.starts_with(words));
        assert!(expected.map_or(found.is_none(), starts), "{found:?}");
    }

    /// Cases of upstream's `persistentvolume/resize/admission_test.go`.
    #[test]
    fn claims_grow_where_their_class_says_so() {
        let refused = Some("only dynamically provisioned pvc");
        let bound = |class: &str, size: &str| claim(class, "Bound", size);
        check(&bound("grows", "1Gi"), &bound("grows", "2Gi"), None);
        check(&bound("stays", "1Gi"), &bound("stays", "2Gi"), refused);
        check(&bound("silent", "1Gi"), &bound("silent", "2Gi"), refused);
        check(&bound("absent", "1Gi"), &bound("absent", "2Gi"), refused);
        check(&bound("", "1Gi"), &bound("", "2Gi"), refused);
        check(&bound("stays", "1Gi"), &bound("grows", "2Gi"), refused);
        let pending = |size: &str| claim("grows", "Pending", size);
        check(
            &pending("1Gi"),
            &pending("2Gi"),
            Some("Only bound persistent volume claims"),
        );
        // What stays or becomes less is validation's.
        check(&bound("stays", "1Gi"), &bound("stays", "1024Mi"), None);
        check(&bound("stays", "2Gi"), &bound("stays", "1Gi"), None);
    }
}
