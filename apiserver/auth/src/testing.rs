//! Objects in memory for the tests of this crate.

use crate::authn::token::{ShownToken, TokenAuthenticator, TokenAuthenticators};
use crate::authn::{AuthnFuture, Outcome, Refusal};
use crate::authz::{Attributes, Authorizer, AuthorizerChain, AuthzFuture, Busy, Decision, UserRules};
use machinery_meta::UserInfo;
use machinery_meta::reader::{ObjectReader, ReadError, ReadFuture, ReadObject};
use machinery_meta::{GroupResource, ObjectHeader, ObjectKey, Revision, Uid};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

#[derive(Default)]
pub(crate) struct Objects(Mutex<State>);

#[derive(Default)]
struct State {
    /// Counts writes.
    revision: u64,
    /// Objects that were read one by one.
    read: usize,
    /// None can be read one by one.
    fails: bool,
    objects: BTreeMap<(GroupResource, ObjectKey), ReadObject>,
}

impl Objects {
    pub(crate) fn fail(&self, fails: bool) {
        self.0.lock().fails = fails;
    }

    /// The uid is `uid-<name>` where the metadata has none; `spec.nodeName` becomes selectable.
    pub(crate) fn put(&self, group: &str, resource: &str, namespace: &str, name: &str, json: &str) {
        let key = ObjectKey::new(namespace, name);
        let mut header = ObjectHeader {
            key: key.clone(),
            uid: Uid(format!("uid-{name}")),
            ..ObjectHeader::default()
        };
        let value: serde_json::Value = serde_json::from_str(json).unwrap();
        if let Some(node) = value.pointer("/spec/nodeName").and_then(|node| node.as_str()) {
            header.fields = machinery_meta::Fields::from([("spec.nodeName", node)]);
        }
        let meta = |name: &str| value.pointer(&format!("/metadata/{name}"));
        if let Some(uid) = meta("uid").and_then(|uid| uid.as_str()) {
            header.uid = Uid(uid.to_owned());
        }
        header.deletion_timestamp = meta("deletionTimestamp").and_then(|at| Some(at.as_str()?.into()));
        for (name, value) in meta("labels")
            .and_then(|own| own.as_object())
            .into_iter()
            .flatten()
        {
            let value = value.as_str().unwrap_or_default();
            header.labels.push((name.as_str().into(), value.into()));
        }
        let mut state = self.0.lock();
        state.revision += 1;
        let object = ReadObject {
            header: Arc::new(header),
            revision: Revision(state.revision),
            json: json.as_bytes().to_vec(),
        };
        state
            .objects
            .insert((GroupResource::new(group, resource), key), object);
    }

    /// Returns the number of objects that were read one by one since the last call.
    pub(crate) fn take_read(&self) -> usize {
        std::mem::take(&mut self.0.lock().read)
    }

    pub(crate) fn remove(&self, group: &str, resource: &str, namespace: &str, name: &str) {
        let mut state = self.0.lock();
        state.objects.remove(&(
            GroupResource::new(group, resource),
            ObjectKey::new(namespace, name),
        ));
    }
}

impl ObjectReader for Objects {
    fn get<'a>(
        &'a self,
        resource: &'a GroupResource,
        key: &'a ObjectKey,
    ) -> ReadFuture<'a, Option<ReadObject>> {
        let mut state = self.0.lock();
        state.read += 1;
        let found = state.objects.get(&(resource.clone(), key.clone())).cloned();
        let error = ReadError {
            resource: resource.resource.to_string(),
            key: key.name.to_string(),
            cause: "as the test has it".to_owned(),
        };
        Box::pin(std::future::ready(if state.fails {
            Err(error)
        } else {
            Ok(found)
        }))
    }

    fn list<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
    ) -> ReadFuture<'a, Vec<ReadObject>> {
        let state = self.0.lock();
        let found = state.objects.iter().filter(|((own, key), _)| {
            own == resource && (namespace.is_empty() || key.namespace == namespace)
        });
        Box::pin(std::future::ready(Ok(found
            .map(|(_, object)| object.clone())
            .collect())))
    }
}

/// Polls once: nothing in these tests waits.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("nothing here waits"),
    }
}

/// Cases of a table kept as YAML.
pub(crate) fn yaml<T: serde::de::DeserializeOwned>(text: &str) -> T {
    let json = machinery_schema::yaml_to_json(text.as_bytes()).unwrap();
    serde_json::from_str(&json).unwrap()
}

/// An authorizer and authenticator that has too much under way to decide.
#[derive(Debug)]
pub(crate) struct Crowded;

impl Authorizer for Crowded {
    fn name(&self) -> &str {
        "crowded"
    }

    fn mode(&self) -> Option<&'static str> {
        Some("Webhook")
    }

    fn authorize<'a>(&'a self, _: &'a Attributes<'a>) -> AuthzFuture<'a, Result<Decision, Busy>> {
        Box::pin(std::future::ready(Err(Busy)))
    }

    fn rules_for<'a>(&'a self, _: &'a UserInfo, _: &'a str) -> AuthzFuture<'a, UserRules> {
        Box::pin(std::future::ready(UserRules::default()))
    }
}

/// The chain of that one alone.
pub(crate) fn crowded() -> AuthorizerChain {
    AuthorizerChain::new(vec![Arc::new(Crowded)])
}

impl TokenAuthenticator for Crowded {
    fn authenticate_token<'a>(&'a self, _: ShownToken<'a>) -> AuthnFuture<'a, Outcome> {
        Box::pin(std::future::ready(Outcome::Refused(Refusal::unchecked(
            "too many",
        ))))
    }
}

/// The authenticators of tokens that are that one alone.
pub(crate) fn crowded_tokens() -> TokenAuthenticators {
    TokenAuthenticators::new(vec![Arc::new(Crowded)], Vec::new())
}
