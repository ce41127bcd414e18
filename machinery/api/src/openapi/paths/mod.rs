//! `paths`: operations of what a server serves, by the rules of upstream's installer and of its builders of documents.
//!
//! [`operations`] and [`custom`] list the [`Route`]s of a resource, [`root`] those of discovery and of what stands beside the
//! API; [`items`] groups routes by their paths and gives each its id and tags. An edition is chosen there, once.

pub(super) mod custom;
mod item;
mod names;
pub(super) mod operations;
mod options;
pub(super) mod root;

pub(super) use item::{Parameters, items};
#[cfg(test)]
pub(super) use item::{hash, text};
pub(super) use options::Options;

use std::borrow::Cow;

/// Model names of the types that requests of every group use.
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// Media types of objects in answers.
pub(super) const OBJECTS: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];
/// The same, with those of a watch's events.
const OBJECTS_AND_EVENTS: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];
const ANY: &[&str] = &["*/*"];

/// Place of a parameter in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Path,
    Query,
}

/// A parameter besides the body.
#[derive(Debug, Clone)]
pub(super) struct Parameter<'w> {
    name: &'w str,
    place: Place,
    /// `string`, `integer` or `boolean`.
    ty: &'static str,
    words: Cow<'w, str>,
}

impl<'w> Parameter<'w> {
    fn path(name: &'w str, words: impl Into<Cow<'w, str>>) -> Self {
        Self {
            name,
            place: Place::Path,
            ty: "string",
            words: words.into(),
        }
    }

    fn pretty() -> Self {
        Self {
            name: "pretty",
            place: Place::Query,
            ty: "string",
            words: "If 'true', then the output is pretty printed. Defaults to 'false' unless the user-agent indicates a browser or command-line HTTP tool (curl and wget).".into(),
        }
    }
}

/// Schema of a body or of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    Text,
    /// The model of this name.
    Model(String),
}

impl Content {
    fn meta(kind: &str) -> Self {
        Self::Model(format!("{META}.{kind}"))
    }

    /// The model's name, for those that define it.
    pub(super) fn model(&self) -> Option<&str> {
        match self {
            Self::Text => None,
            Self::Model(name) => Some(name),
        }
    }
}

#[derive(Debug)]
pub(super) struct Body {
    content: Content,
    required: bool,
}

/// Action of an operation and the kind it acts on.
#[derive(Debug, Clone)]
struct About<'w> {
    /// `x-kubernetes-action`.
    action: &'static str,
    /// Group, version, kind.
    kind: [&'w str; 3],
}

/// One operation of a path.
#[derive(Debug)]
pub(super) struct Route<'w> {
    /// In lower case.
    method: &'static str,
    path: String,
    /// Verb and kind of the operation's id, as upstream's installer joins them: `listNamespacedPod`.
    operation: String,
    description: Cow<'static, str>,
    about: Option<About<'w>>,
    consumes: &'static [&'static str],
    produces: Cow<'static, [&'static str]>,
    parameters: Vec<Parameter<'w>>,
    body: Option<Body>,
    /// Schema of the answers of `codes`.
    answer: Content,
    /// Statuses besides 401.
    codes: &'static [Code],
}

/// A status and its reason phrase.
type Code = (&'static str, &'static str);

const OK: &[Code] = &[("200", "OK")];
const OK_ACCEPTED: &[Code] = &[("200", "OK"), ("202", "Accepted")];
const OK_CREATED: &[Code] = &[("200", "OK"), ("201", "Created")];
const OK_CREATED_ACCEPTED: &[Code] = &[("200", "OK"), ("201", "Created"), ("202", "Accepted")];

impl Route<'_> {
    /// Names of the models that the operation's schemas refer to.
    pub(super) fn models(&self) -> impl Iterator<Item = &str> {
        let body = self.body.as_ref().map(|body| &body.content);
        body.into_iter().chain([&self.answer]).filter_map(Content::model)
    }
}

/// `/api/v1`, `/apis/apps/v1`
fn base(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{group}/{version}")
    }
}
