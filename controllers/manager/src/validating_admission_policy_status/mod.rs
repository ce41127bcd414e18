//! Checks the expressions of ValidatingAdmissionPolicies against the types of the objects that they are for, and says what it finds in the
//! status: policies themselves are compiled without types, so that `object.spec.replicas > '1'` is no error there.
//!
//! Watches: ValidatingAdmissionPolicies. A policy is read and checked once for each generation ([`kinds`] finds what it is for, [`schemas`] the
//! types, [`check`] compiles). Nothing here decides about requests.

mod check;
mod kinds;
mod schemas;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use check::{Types, warnings};
use futures::future::BoxFuture;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kinds::kinds_of;
use machinery_client::{ApiResource, Client, ClientError, Informer, Patch, Projection};
use machinery_meta::{GroupVersionKind, ObjectHeader, ObjectKey};
use machinery_reconcile::{Outcome, ReconcileError, Reconciler};
use schemas::Schemas;
use serde::Deserialize;
use serde_json::{Value, json};

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "validatingadmissionpolicy-status-controller",
    queue: "validatingadmissionpolicy-status",
    service_account: "validatingadmissionpolicy-status-controller",
    default: true,
    start,
};

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let policies: Informer<PolicyView> = context.informers.of::<ValidatingAdmissionPolicy, _>();
    let controller = ROW.controller(&context.runtime).watches(&policies, |change| {
        change
            .new
            .iter()
            .map(|own| own.key().clone())
            .collect::<Vec<ObjectKey>>()
    });
    controller.run(TypeChecks {
        client: context.client(ROW.service_account),
        policies,
    })
}

/// The generation that was checked.
#[derive(Debug)]
pub(crate) struct PolicyView {
    observed: i64,
}

impl Projection for PolicyView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Status {
            observed_generation: i64,
        }
        #[derive(Deserialize)]
        struct Policy {
            #[serde(default)]
            status: Option<Status>,
        }
        let policy: Policy = machinery_client::json::from_slice(json)?;
        let observed = policy.status.unwrap_or_default().observed_generation;
        Ok(Self { observed })
    }
}

struct TypeChecks {
    client: Client,
    policies: Informer<PolicyView>,
}

impl Reconciler for TypeChecks {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let known = self.policies.get(key);
            if known.is_none_or(|own| own.header.generation <= own.observed) {
                return Ok(Outcome::Done);
            }
            match self.check(key).await {
                Err(error) if error.is_not_found() => Ok(Outcome::Done),
                done => done
                    .map(|()| Outcome::Done)
                    .map_err(ReconcileError::doing("checking the types of a policy")),
            }
        })
    }
}

impl TypeChecks {
    async fn check(&self, key: &ObjectKey) -> Result<(), ClientError> {
        let resource = ApiResource::of::<ValidatingAdmissionPolicy>();
        let policy: ValidatingAdmissionPolicy = self.client.get_as(&resource, key).await?;
        let generation = policy.metadata.generation.unwrap_or_default();
        let spec = policy.spec.unwrap_or_default();
        let kinds = kinds_of(&self.client, &spec).await?;
        let mut schemas = Schemas::new(&self.client);
        let mut types = Types::default();
        for kind in kinds {
            if let Some(declared) = schemas.declared(&kind).await {
                types.objects.push((kind, declared));
            }
        }
        if let Some(kind) = spec.param_kind.as_ref() {
            let version = kind.api_version.as_deref().unwrap_or_default();
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            let kind = GroupVersionKind::new(group, version, kind.kind.as_deref().unwrap_or_default());
            types.params = schemas.declared(&kind).await;
        }
        let found: Vec<Value> = warnings(&spec, &types)
            .into_iter()
            .map(|own| json!({"fieldRef": own.field, "warning": own.text}))
            .collect();
        let mut checked = json!({});
        if !found.is_empty() {
            checked["expressionWarnings"] = Value::Array(found);
        }
        let applied = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": key.name},
            "status": {"observedGeneration": generation, "typeChecking": checked},
        });
        let patch = Patch::Apply {
            manager: ROW.queue.to_owned(),
            force: true,
        };
        self.client
            .patch(&resource, key, "status", &patch, &applied)
            .await
            .map(drop)
    }
}
