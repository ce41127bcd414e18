//! Attributes of a request that authorizers decide on (apiserver's `authorizer.Attributes`).

use machinery_meta::{FieldSelector, LabelSelector, UserInfo};

/// One question: may this user do this?
#[derive(Debug, Clone, Copy)]
pub struct Attributes<'a> {
    pub user: &'a UserInfo,
    /// Name of the user that reviews another's access, and whose share of a webhook's calls this is.
    pub asker: Option<&'a str>,
    pub verb: &'a str,
    pub target: AttributesTarget<'a>,
}

/// Target of a request.
#[derive(Debug, Clone, Copy)]
pub enum AttributesTarget<'a> {
    Resource(ResourceTarget<'a>),
    /// A path that is no resource, such as `/healthz`.
    Path(&'a str),
}

/// A resource request; empty text where a part is absent.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResourceTarget<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub field_selector: Option<&'a FieldSelector>,
    pub label_selector: Option<&'a LabelSelector>,
}

impl ResourceTarget<'_> {
    /// Reports whether a field selector limits the request to objects whose field has this value.
    pub(crate) fn selects(&self, field: &str, value: &str) -> bool {
        self.field_selector.and_then(|selector| selector.required(field)) == Some(value)
    }
}
