//! Values of Kubernetes' libraries.

use crate::library::Scaled;
use crate::library::formats::NamedFormat;
use crate::library::semver::Semver;
use crate::library::urls::Url;
use crate::types::Type;
use std::net::IpAddr;
use std::sync::Arc;

/// A value of a type of Kubernetes' libraries.
#[derive(Debug)]
pub enum Opaque<'a> {
    Ip(IpAddr),
    Cidr(IpAddr, u8),
    Url(Url),
    Quantity(Scaled),
    Semver(Semver),
    Format(&'static NamedFormat),
    Authorizer(Subject<'a>),
    PathCheck(Subject<'a>, String),
    GroupCheck(Subject<'a>, String),
    ResourceCheck(Subject<'a>, Check),
    Decision(Decision),
}

/// The authorizer that expressions call.
pub trait Authorizer: std::fmt::Debug + Send + Sync {
    /// Decides whether the user of the request, or a service account (namespace and name), may do something.
    fn authorize(&self, service_account: Option<(&str, &str)>, check: &Check, verb: &str) -> Decision;
}

/// An authorizer, and the user of the decision.
#[derive(Debug, Clone)]
pub struct Subject<'a> {
    pub authorizer: &'a dyn Authorizer,
    /// Namespace and name; none for the user of the request.
    pub service_account: Option<(Arc<str>, Arc<str>)>,
}

/// Attributes of an authorization decision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Check {
    /// Path of a request that is for no resource.
    pub path: Option<String>,
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub field_selector: String,
    pub label_selector: String,
}

impl Check {
    fn bytes(&self) -> usize {
        let path = self.path.as_ref().map_or(0, String::len);
        let others = [
            &self.group,
            &self.resource,
            &self.subresource,
            &self.namespace,
            &self.name,
            &self.field_selector,
            &self.label_selector,
        ];
        others.map(String::len).iter().sum::<usize>() + path
    }
}

/// The authorizer's answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    pub allowed: bool,
    pub reason: String,
    pub error: Option<String>,
}

impl Opaque<'_> {
    pub(crate) fn ty(&self) -> Type {
        Type::Object(Arc::from(match self {
            Self::Ip(_) => return Type::Opaque("net.IP".into(), Arc::new([])),
            Self::Cidr(..) => return Type::Opaque("net.CIDR".into(), Arc::new([])),
            Self::Url(_) => "kubernetes.URL",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Authorizer(_) => "kubernetes.authorization.Authorizer",
            Self::PathCheck(..) => "kubernetes.authorization.PathCheck",
            Self::GroupCheck(..) => "kubernetes.authorization.GroupCheck",
            Self::ResourceCheck(..) => "kubernetes.authorization.ResourceCheck",
            Self::Decision(_) => "kubernetes.authorization.Decision",
        }))
    }

    /// Bytes of the texts in it.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Url(own) => own.bytes(),
            Self::Semver(own) => own.bytes(),
            Self::PathCheck(_, own) | Self::GroupCheck(_, own) => own.len(),
            Self::ResourceCheck(_, own) => own.bytes(),
            Self::Decision(own) => own.reason.len(),
            Self::Ip(_) | Self::Cidr(..) | Self::Quantity(_) | Self::Format(_) | Self::Authorizer(_) => 0,
        }
    }

    /// Work of a comparison: URLs are written out, byte by byte.
    pub(crate) fn steps_to_compare(&self) -> u64 {
        let bytes = self.bytes() as u64;
        match self {
            Self::Url(_) => bytes,
            _ => bytes / crate::eval::BYTES_OF_A_STEP,
        }
    }

    /// Reports whether two values are equal; those of an authorizer never are.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ip(own), Self::Ip(other)) => own == other,
            (Self::Cidr(own, bits), Self::Cidr(other, other_bits)) => own == other && bits == other_bits,
            (Self::Url(own), Self::Url(other)) => own.to_string() == other.to_string(),
            (Self::Quantity(own), Self::Quantity(other)) => own.quantity == other.quantity,
            (Self::Semver(own), Self::Semver(other)) => own.order(other).is_eq(),
            (Self::Format(own), Self::Format(other)) => own.name == other.name,
            _ => false,
        }
    }
}
