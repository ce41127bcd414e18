//! Discover, empty, report, finalize.

use super::FINALIZER;
use super::content::empty;
use super::plan::{Findings, conditions};
use crate::views::{NamespaceView, time};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use machinery_client::{ApiResource, Client, Edit, Informer, Object};
use machinery_meta::ObjectKey;
use machinery_reconcile::{Outcome, ReconcileError, Reconciler};
use machinery_runtime::Runtime;
use std::time::Duration;

/// Requeue interval of a namespace while remaining objects state no time.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

pub(super) struct NamespaceReconciler {
    pub(super) client: Client,
    pub(super) runtime: Runtime,
    pub(super) namespaces: Informer<NamespaceView>,
}

impl Reconciler for NamespaceReconciler {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let Some(namespace) = self.namespaces.get(key) else {
                return Ok(Outcome::Done);
            };
            let ours = namespace.finalizers.iter().any(|own| own == FINALIZER);
            if !namespace.header.is_deleting() || !ours {
                return Ok(Outcome::Done);
            }
            let findings = self.empty(&namespace).await?;
            // Before the finalizer goes: a client that waits for the namespace sees why it stays.
            self.report(&namespace, &findings).await?;
            if findings.is_empty() {
                return self.finalize(key).await;
            }
            if !findings.failures.is_empty() {
                return Err(ReconcileError::Unusable(findings.failures.join("; ")));
            }
            Ok(Outcome::RequeueAfter(wait(&findings)))
        })
    }
}

/// Half of what is left of the estimate, as upstream waits; a short while where there is none.
fn wait(findings: &Findings) -> Duration {
    match u64::try_from(findings.estimate_seconds) {
        Ok(seconds) if seconds > 0 => Duration::from_secs(seconds / 2 + 1),
        _ => LOOK_AGAIN,
    }
}

impl NamespaceReconciler {
    /// Deletes pods, then, once none is left, everything else.
    async fn empty(&self, namespace: &Object<NamespaceView>) -> Result<Findings, ReconcileError> {
        let discovered = self
            .client
            .discover()
            .await
            .map_err(ReconcileError::doing("discovering what is served"))?;
        let mut findings = Findings {
            discovery: discovered.stale,
            ..Findings::default()
        };
        let now = self.runtime.now();
        let deleted_at = time(namespace.header.deletion_timestamp.as_deref()).unwrap_or(now);
        let pods = ApiResource::of::<Pod>();
        let mut rest = Vec::new();
        for resource in &discovered.resources {
            // Pods first, and alone: a ConfigMap, Secret or ServiceAccount that goes before them breaks their
            // graceful end (KEP-5080, ordered namespace deletion).
            if resource.resource == pods {
                empty(
                    &self.client,
                    resource,
                    namespace.name(),
                    deleted_at,
                    now,
                    &mut findings,
                )
                .await;
            } else if resource.preferred
                && resource.resource.namespaced
                && resource.has_verbs(&["list", "delete"])
            {
                rest.push(resource);
            }
        }
        // Whether pods are left is not known where asking failed.
        if !findings.remaining.is_empty() || !findings.failures.is_empty() {
            return Ok(findings);
        }
        for resource in rest {
            empty(
                &self.client,
                resource,
                namespace.name(),
                deleted_at,
                now,
                &mut findings,
            )
            .await;
        }
        Ok(findings)
    }

    async fn report(
        &self,
        namespace: &Object<NamespaceView>,
        findings: &Findings,
    ) -> Result<(), ReconcileError> {
        // A namespace that was empty at first look says nothing and goes.
        if findings.is_empty() && namespace.conditions.is_empty() {
            return Ok(());
        }
        let conditions = conditions(&namespace.conditions, findings, self.runtime.now());
        if conditions == namespace.conditions {
            return Ok(());
        }
        let resource = ApiResource::of::<Namespace>();
        let mut edit = Edit::of(&resource, &namespace.json())?;
        edit.set_in("status", "conditions", &conditions)?;
        match self
            .client
            .update(&resource, namespace.key(), "status", edit.body())
            .await
        {
            Err(error) if !error.is_not_found() && !error.is_conflict() => {
                Err(ReconcileError::doing("writing conditions")(error))
            }
            _ => Ok(()),
        }
    }

    /// Takes our finalizer off the namespace as it now is.
    async fn finalize(&self, key: &ObjectKey) -> Result<Outcome, ReconcileError> {
        let resource = ApiResource::of::<Namespace>();
        // Read live: the cache may lack a finalizer that was added since, and `finalize` writes the whole list.
        let live = match self.client.get(&resource, key).await {
            Ok(live) => live,
            Err(error) if error.is_not_found() => return Ok(Outcome::Done),
            Err(error) => return Err(ReconcileError::doing("reading the namespace")(error)),
        };
        let view = machinery_client::object::object_of::<NamespaceView>(&String::from_utf8_lossy(&live))
            .map_err(|error| ReconcileError::Unusable(error.to_string()))?;
        let kept: Vec<&String> = view.finalizers.iter().filter(|own| *own != FINALIZER).collect();
        let mut edit = Edit::of(&resource, &live)?;
        edit.set_in("spec", "finalizers", &kept)?;
        match self.client.update(&resource, key, "finalize", edit.body()).await {
            Err(error) if !error.is_not_found() => {
                Err(ReconcileError::doing("finalizing the namespace")(error))
            }
            _ => Ok(Outcome::Done),
        }
    }
}
