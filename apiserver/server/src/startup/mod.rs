//! What the server itself writes when it starts. A new step is a file here and a row in [`STEPS`]; steps run in order,
//! each safe to run again and again, on a fresh store and on one that another server shares.

mod allocator_repair;
mod custom_resources;
mod default_objects;
mod dns_service;
mod extension_authentication;
mod kubernetes_service;
mod rbac;

use crate::server::Core;
use apiserver_auth::pki::Pki;
use apiserver_registry::options::{CreateOptions, RevisionMatch, UpdateOptions};
use apiserver_registry::{AdmitAll, Part, RegistryError, RequestContext, Store, Target, UpdatedObject};
use async_trait::async_trait;
use futures::future::BoxFuture;
use machinery_meta::UserInfo;
use machinery_schema::{Strictness, Tree, apply_defaults, decode_json, merge_patch};
use std::net::SocketAddr;
use std::sync::Arc;

/// A step did not succeed.
#[derive(Debug, thiserror::Error)]
#[error("start-up step {step:?}: {message}")]
pub struct StartupError {
    pub step: &'static str,
    /// As the API would answer it, with everything that is wrong.
    pub message: String,
}

/// What the steps know.
#[derive(Clone)]
pub(crate) struct Startup {
    pub(crate) core: Arc<Core>,
    pub(crate) pki: Arc<Pki>,
    /// Where the `kubernetes` service leads.
    pub(crate) advertised: SocketAddr,
}

type Step = for<'a> fn(&'a Startup) -> BoxFuture<'a, Result<(), RegistryError>>;

/// In order.
const STEPS: [(&str, Step); 9] = [
    ("system namespaces", default_objects::namespaces),
    ("priority classes", default_objects::priority_classes),
    ("flow control", default_objects::flow_control),
    ("custom resources", custom_resources::serve),
    ("bootstrap RBAC", rbac::reconcile),
    ("kubernetes service", kubernetes_service::keep),
    ("cluster DNS service", dns_service::reconcile),
    ("service allocator repair", allocator_repair::start),
    (
        "extension-apiserver-authentication",
        extension_authentication::reconcile,
    ),
];

/// Runs all steps.
pub(crate) async fn run(facts: &Startup) -> Result<(), StartupError> {
    for (step, run) in STEPS {
        run(facts).await.map_err(|error| StartupError {
            step,
            message: apiserver_endpoints::status::of(&error).message,
        })?;
    }
    Ok(())
}

/// Where an object lives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) group: &'a str,
    pub(crate) plural: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl Startup {
    pub(crate) fn context(&self) -> RequestContext {
        let user = UserInfo::named("system:apiserver", [UserInfo::MASTERS, UserInfo::AUTHENTICATED]);
        RequestContext::internal(user, self.core.runtime.clone())
    }

    pub(crate) fn store(&self, place: Place<'_>) -> Result<Store, RegistryError> {
        let store = self.core.registry.preferred_store(place.group, place.plural);
        store
            .ok_or_else(|| RegistryError::Internal(format!("{}.{} is not served", place.plural, place.group)))
    }

    /// The stored JSON of an object.
    pub(crate) async fn read(&self, place: Place<'_>) -> Result<Option<Tree>, RegistryError> {
        let store = self.store(place)?;
        match store
            .get(place.namespace, place.name, RevisionMatch::MostRecent)
            .await
        {
            Ok(entry) => store.decode(&entry).map(Some),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates an object unless something of its name is there; whether it was created.
    pub(crate) async fn create(&self, place: Place<'_>, json: &str) -> Result<bool, RegistryError> {
        let store = self.store(place)?;
        if self.read(place).await?.is_some() {
            return Ok(false);
        }
        let decoded = decode_json(
            &store.row.schema,
            store.row.ty,
            json.as_bytes(),
            Strictness::Ignore,
        );
        let mut object = decoded
            .map_err(|error| RegistryError::Internal(error.to_string()))?
            .tree;
        apply_defaults(&mut object);
        store.row.strategy.defaults(&mut object);
        let created = store
            .create(
                &self.context(),
                place.namespace,
                object,
                &CreateOptions::default(),
                &AdmitAll,
            )
            .await;
        match created {
            Ok(_) => Ok(true),
            // Another server was quicker.
            Err(RegistryError::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Applies a merge patch to an object that exists; a patch that changes nothing writes nothing.
    pub(crate) async fn patch(&self, place: Place<'_>, part: Part, patch: &str) -> Result<(), RegistryError> {
        let store = self.store(place)?;
        let target = Target {
            namespace: place.namespace,
            name: place.name,
            part,
        };
        let change = Merge(patch.to_owned());
        store
            .update(
                &self.context(),
                target,
                &change,
                &UpdateOptions::default(),
                &AdmitAll,
            )
            .await
            .map(|_| ())
    }
}

/// A merge patch as a change.
struct Merge(String);

#[async_trait]
impl UpdatedObject for Merge {
    async fn apply(&self, _: &RequestContext, live: Option<&Tree>) -> Result<Tree, RegistryError> {
        let Some(live) = live else {
            return Err(RegistryError::NoSuchResource);
        };
        // Patches work on free-form documents.
        let failed = |error: &dyn std::fmt::Display| RegistryError::Internal(error.to_string());
        let mut document = Tree::from_json(&live.root().to_json()).map_err(|error| failed(&error))?;
        merge_patch(&mut document, self.0.as_bytes(), Strictness::Ignore).map_err(|error| failed(&error))?;
        let text = document.root().to_json();
        let decoded = decode_json(live.schema(), live.ty(), text.as_bytes(), Strictness::Ignore);
        let mut object = decoded.map_err(|error| failed(&error))?.tree;
        apply_defaults(&mut object);
        Ok(object)
    }
}
