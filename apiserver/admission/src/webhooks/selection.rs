//! Decides whether a webhook is called for a request, and with which version of it (upstream's `ShouldCallHook`).

use super::conditions::{self, Matched};
use super::configuration::Webhook;
use super::rules::Asked;
use crate::host::{Equivalent, Host};
use crate::{AdmissionError, Operation, Request};
use machinery_meta::label_selector::LabelSelector;
use machinery_meta::reader::ObjectReader;
use machinery_meta::{GroupResource, ObjectKey};
use machinery_schema::{Ref, Tree};
use std::sync::OnceLock;

/// A request as selectors and rules see it.
pub(super) struct Selection<'a> {
    pub(super) request: &'a Request<'a>,
    pub(super) host: &'a dyn Host,
    reader: &'a dyn ObjectReader,
    equivalents: OnceLock<Vec<Equivalent>>,
}

/// The objects of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Objects<'a> {
    pub(super) new: Option<&'a Tree>,
    pub(super) old: Option<&'a Tree>,
}

impl<'a> Selection<'a> {
    /// `None` for a request that webhooks do not see.
    pub(super) fn new(request: &'a Request<'a>, reader: &'a dyn ObjectReader) -> Option<Self> {
        Some(Self {
            host: request.host.filter(|_| super::may_see(request))?,
            request,
            reader,
            equivalents: OnceLock::new(),
        })
    }

    /// The namespace of the request; of a namespace itself its name.
    pub(super) fn namespace(&self) -> &'a str {
        match self.is_of_namespaces() && self.request.namespace.is_empty() {
            true => self.request.name,
            false => self.request.namespace,
        }
    }

    fn is_of_namespaces(&self) -> bool {
        self.request.group.is_empty() && self.request.resource == "namespaces"
    }

    /// Reports whether a webhook's conditions hold for a request that its rules and selectors match, which is in its version.
    pub(super) async fn conditions_match(
        &self,
        webhook: &Webhook,
        to: &Equivalent,
        objects: Objects<'_>,
    ) -> Result<bool, AdmissionError> {
        if webhook.conditions.is_empty() {
            return Ok(true);
        }
        match conditions::matched(&webhook.conditions, self, to, objects).await {
            Matched::Yes => Ok(true),
            Matched::No => Ok(false),
            Matched::Failed(_) if webhook.ignores_failure => Ok(false),
            Matched::Failed(why) => {
                tracing::warn!(webhook = webhook.name, %why, "failed evaluating match conditions, failing closed");
                Err(AdmissionError::Forbidden(why))
            }
        }
    }

    /// The request's own resource and kind.
    pub(super) fn own_version(&self) -> Equivalent {
        Equivalent {
            resource: self.host.resource().clone(),
            kind: self.host.kind().clone(),
        }
    }

    /// An object in another version.
    pub(super) async fn converted(
        &self,
        object: Option<&Tree>,
        from: &Equivalent,
        to: &Equivalent,
    ) -> Result<Option<Tree>, AdmissionError> {
        let Some(object) = object else { return Ok(None) };
        let converted = self.host.convert(object, &from.resource, to).await;
        converted.map(Some).map_err(AdmissionError::Internal)
    }

    /// The resource and kind that the webhook is called with; `None` where it is not called.
    pub(super) async fn invocation(
        &self,
        webhook: &Webhook,
        objects: Objects<'_>,
    ) -> Result<Option<Equivalent>, AdmissionError> {
        // The rules first, which cost least: what comes to nothing reports no error.
        let Some(found) = self.by_rules(webhook) else {
            return Ok(None);
        };
        if !self.namespace_matches(webhook, objects).await? || !object_matches(webhook, objects)? {
            return Ok(None);
        }
        Ok(Some(found))
    }

    fn by_rules(&self, webhook: &Webhook) -> Option<Equivalent> {
        let own = self.host.resource();
        let asked = |resource| Asked {
            operation: self.request.operation,
            resource,
            subresource: self.request.subresource,
            namespace: self.namespace(),
        };
        if webhook.rules.iter().any(|rule| rule.matches(asked(own))) {
            return Some(self.own_version());
        }
        if !webhook.matches_equivalents {
            return None;
        }
        let others = self.equivalents.get_or_init(|| self.host.equivalents());
        let mut rules = webhook.rules.iter();
        let found = rules.find_map(|rule| others.iter().find(|other| rule.matches(asked(&other.resource))));
        found.cloned()
    }

    async fn namespace_matches(
        &self,
        webhook: &Webhook,
        objects: Objects<'_>,
    ) -> Result<bool, AdmissionError> {
        let namespace = self.namespace();
        if namespace.is_empty() && !self.is_of_namespaces() {
            return Ok(true);
        }
        let selector = parsed(&webhook.namespace_selector)?;
        if selector.is_everything() {
            return Ok(true);
        }
        let writes = matches!(self.request.operation, Operation::Create | Operation::Update);
        if self.is_of_namespaces() && self.request.subresource.is_empty() && writes {
            return Ok(objects.new.is_some_and(|own| matches(selector, own)));
        }
        let (resource, key) = (
            GroupResource::new("", "namespaces"),
            ObjectKey::new("", namespace),
        );
        match self.reader.get(&resource, &key).await? {
            Some(found) => Ok(selector.matches(&found.header)),
            None => Err(AdmissionError::NotFound {
                resource,
                name: namespace.to_owned(),
            }),
        }
    }
}

fn parsed(selector: &Result<LabelSelector, String>) -> Result<&LabelSelector, AdmissionError> {
    selector
        .as_ref()
        .map_err(|error| AdmissionError::Internal(error.clone()))
}

fn object_matches(webhook: &Webhook, objects: Objects<'_>) -> Result<bool, AdmissionError> {
    let selector = parsed(&webhook.object_selector)?;
    let mut both = [objects.new, objects.old].into_iter().flatten();
    Ok(selector.is_everything() || both.any(|own| matches(selector, own)))
}

/// Options of connections have no metadata, and match nothing.
fn matches(selector: &LabelSelector, object: &Tree) -> bool {
    let Some(metadata) = object.get("metadata") else {
        return false;
    };
    let labels = metadata.get("labels");
    selector.matches_with(|key| labels.and_then(|own| own.get(key)).and_then(Ref::as_str))
}
