//! Decides whether a request matches constraints, and in which version of it (upstream's `ShouldCallHook` and `matching.Matcher`).

use super::Constraints;
use super::rules::{Asked, Rule};
use crate::host::{Equivalent, Host};
use crate::{AdmissionError, Operation, Request};
use machinery_meta::label_selector::LabelSelector;
use machinery_meta::reader::{ObjectReader, ReadObject};
use machinery_meta::{GroupResource, ObjectKey};
use machinery_schema::{Ref, Tree};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A request as selectors and rules see it.
pub(crate) struct Selection<'a> {
    pub(crate) request: &'a Request<'a>,
    pub(crate) host: &'a dyn Host,
    reader: &'a dyn ObjectReader,
    equivalents: OnceLock<Vec<Equivalent>>,
    /// The request's namespace, once it was read.
    namespace_object: OnceLock<Option<Arc<ReadObject>>>,
    /// Steps of all expressions so far.
    work: AtomicU64,
}

/// The objects of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Objects<'a> {
    pub(crate) new: Option<&'a Tree>,
    pub(crate) old: Option<&'a Tree>,
}

impl<'a> Selection<'a> {
    /// `None` for a request of which the host is not known.
    pub(crate) fn new(request: &'a Request<'a>, reader: &'a dyn ObjectReader) -> Option<Self> {
        Some(Self {
            host: request.host?,
            request,
            reader,
            equivalents: OnceLock::new(),
            namespace_object: OnceLock::new(),
            work: AtomicU64::new(0),
        })
    }

    /// Adds steps of an expression, and returns those of all: they have one bound, however many configurations ask.
    pub(crate) fn work(&self, steps: u64) -> u64 {
        self.work
            .fetch_add(steps, Ordering::Relaxed)
            .saturating_add(steps)
    }

    /// The namespace of the request; of a namespace itself its name.
    pub(crate) fn namespace(&self) -> &'a str {
        match self.is_of_namespaces() && self.request.namespace.is_empty() {
            true => self.request.name,
            false => self.request.namespace,
        }
    }

    pub(crate) fn is_of_namespaces(&self) -> bool {
        self.request.group.is_empty() && self.request.resource == "namespaces"
    }

    /// The request's own resource and kind.
    pub(crate) fn own_version(&self) -> Equivalent {
        Equivalent {
            resource: self.host.resource().clone(),
            kind: self.host.kind().clone(),
        }
    }

    /// An object in another version.
    pub(crate) async fn converted(
        &self,
        object: Option<&Tree>,
        from: &Equivalent,
        to: &Equivalent,
    ) -> Result<Option<Tree>, AdmissionError> {
        let Some(object) = object else { return Ok(None) };
        self.host.convert(object, &from.resource, to).await.map(Some)
    }

    /// The resource and kind with which the request matches; `None` where it does not.
    pub(crate) async fn matching(
        &self,
        constraints: &Constraints,
        objects: Objects<'_>,
    ) -> Result<Option<Equivalent>, AdmissionError> {
        // The rules first, which cost least: what comes to nothing reports no error.
        let Some(found) = self.by_rules(constraints) else {
            return Ok(None);
        };
        if !self.namespace_matches(constraints, objects).await? || !object_matches(constraints, objects)? {
            return Ok(None);
        }
        Ok(Some(found))
    }

    fn by_rules(&self, constraints: &Constraints) -> Option<Equivalent> {
        if self.first_of(&constraints.excluded, constraints).is_some() {
            return None;
        }
        match constraints.rules.is_empty() && constraints.without_rules {
            true => Some(self.own_version()),
            false => self.first_of(&constraints.rules, constraints),
        }
    }

    /// The request's own version or, where none of the rules names it, the first equivalent one that a rule names.
    fn first_of(&self, rules: &[Rule], constraints: &Constraints) -> Option<Equivalent> {
        let own = self.host.resource();
        let asked = |resource| Asked {
            operation: self.request.operation,
            resource,
            subresource: self.request.subresource,
            namespace: self.namespace(),
            name: self.request.name,
        };
        if rules.iter().any(|rule| rule.matches(asked(own))) {
            return Some(self.own_version());
        }
        if !constraints.matches_equivalents || rules.is_empty() {
            return None;
        }
        let others = self.equivalents.get_or_init(|| self.host.equivalents());
        let mut rules = rules.iter();
        let found = rules.find_map(|rule| others.iter().find(|other| rule.matches(asked(&other.resource))));
        found.cloned()
    }

    async fn namespace_matches(
        &self,
        constraints: &Constraints,
        objects: Objects<'_>,
    ) -> Result<bool, AdmissionError> {
        if self.namespace().is_empty() && !self.is_of_namespaces() {
            return Ok(true);
        }
        let selector = parsed(&constraints.namespace_selector)?;
        if selector.is_everything() {
            return Ok(true);
        }
        let writes = matches!(self.request.operation, Operation::Create | Operation::Update);
        if self.is_of_namespaces() && self.request.subresource.is_empty() && writes {
            return Ok(objects.new.is_some_and(|own| matches(selector, own)));
        }
        Ok(selector.matches(&self.namespace_object().await?.header))
    }

    /// The request's namespace, which is read once.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub(crate) async fn namespace_object(&self) -> Result<&Arc<ReadObject>, AdmissionError> {
        let (resource, name) = (GroupResource::new("", "namespaces"), self.namespace());
        if self.namespace_object.get().is_none() {
            let found = self.reader.get(&resource, &ObjectKey::new("", name)).await?;
            let _ = self.namespace_object.set(found.map(Arc::new));
        }
        let known = self.namespace_object.get().and_then(Option::as_ref);
        known.ok_or_else(|| AdmissionError::NotFound {
            resource,
            name: name.to_owned(),
        })
    }
}

fn parsed(selector: &Result<LabelSelector, String>) -> Result<&LabelSelector, AdmissionError> {
    selector
        .as_ref()
        .map_err(|error| AdmissionError::Internal(error.clone()))
}

fn object_matches(constraints: &Constraints, objects: Objects<'_>) -> Result<bool, AdmissionError> {
    let selector = parsed(&constraints.object_selector)?;
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
