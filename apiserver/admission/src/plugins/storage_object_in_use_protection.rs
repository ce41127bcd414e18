//! StorageObjectInUseProtection: volumes, claims and attribute classes carry a finalizer until they are no longer in use.
//! The protection controllers take it away.

use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use machinery_schema::{Ref, Tree};

/// Group, resource and finalizer.
const PROTECTED: [(&str, &str, &str); 3] = [
    ("", "persistentvolumes", "kubernetes.io/pv-protection"),
    ("", "persistentvolumeclaims", "kubernetes.io/pvc-protection"),
    (
        "storage.k8s.io",
        "volumeattributesclasses",
        "kubernetes.io/vac-protection",
    ),
];

pub(super) struct StorageObjectInUseProtection;

fn finalizer(request: &Request<'_>) -> Option<&'static str> {
    PROTECTED
        .iter()
        .find(|(group, resource, _)| request.is(group, resource))
        .map(|(_, _, finalizer)| *finalizer)
}

#[async_trait]
impl Plugin for StorageObjectInUseProtection {
    fn name(&self) -> &'static str {
        "StorageObjectInUseProtection"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Admit]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Create]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        request.operation == Operation::Create && finalizer(request).is_some()
    }

    async fn mutate(
        &self,
        request: &Request<'_>,
        object: &mut Tree,
        _: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let Some(finalizer) = finalizer(request) else {
            return Ok(());
        };
        let path = ["metadata", "finalizers"];
        let has = object
            .at(&path)
            .into_iter()
            .flat_map(Ref::items)
            .any(|own| own.as_str() == Some(finalizer));
        if !has {
            object.push(&path, finalizer);
        }
        Ok(())
    }
}
