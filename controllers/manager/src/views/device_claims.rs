//! Claims of devices that a pod names in `spec.resourceClaims`, and those that were made for it.

use serde::Deserialize;
use std::collections::HashMap;

/// Claims of a pod that has some.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceClaims {
    /// One for each of the pod's own names.
    pub claims: Box<[DeviceClaim]>,
    /// The claim that the scheduler made for extended resources, empty where there is none.
    pub extended: Box<str>,
    /// The pod belongs to a PodGroup.
    pub is_grouped: bool,
}

/// One of them. A pod may name very many: each is one text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceClaim {
    /// Its name, its source, and the claim that was made.
    text: Box<str>,
    name: u32,
    source: u32,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Claim,
    NotMade,
    NotNeeded,
    Made,
    Unknown,
}

/// Source of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceClaimSource<'a> {
    /// This claim, which has an owner.
    Claim(&'a str),
    /// A claim made from this template and noted in the pod's status.
    Template(&'a str, MadeClaim<'a>),
    /// A source of a later release.
    Unknown,
}

/// Claim that was made from a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MadeClaim<'a> {
    /// Not yet.
    NotYet,
    /// None is needed.
    NotNeeded,
    /// This one.
    Named(&'a str),
}

impl DeviceClaim {
    fn new(name: &str, source: &str, made: &str, kind: Kind) -> Self {
        // An object is smaller than four gigabytes.
        let length = |text: &str| u32::try_from(text.len()).unwrap_or(u32::MAX);
        Self {
            text: [name, source, made].concat().into(),
            name: length(name),
            source: length(source),
            kind,
        }
    }

    /// The pod's own name of it.
    pub fn name(&self) -> &str {
        &self.text[..self.name as usize]
    }

    /// Its source.
    pub fn source(&self) -> DeviceClaimSource<'_> {
        let (source, made) = self.text[self.name as usize..].split_at(self.source as usize);
        match self.kind {
            Kind::Claim => DeviceClaimSource::Claim(source),
            Kind::NotMade => DeviceClaimSource::Template(source, MadeClaim::NotYet),
            Kind::NotNeeded => DeviceClaimSource::Template(source, MadeClaim::NotNeeded),
            Kind::Made => DeviceClaimSource::Template(source, MadeClaim::Named(made)),
            Kind::Unknown => DeviceClaimSource::Unknown,
        }
    }

    /// The name of the claim, where there is or should be one.
    pub fn claim(&self) -> Option<&str> {
        match self.source() {
            DeviceClaimSource::Claim(name) | DeviceClaimSource::Template(_, MadeClaim::Named(name)) => {
                Some(name)
            }
            _ => None,
        }
    }

    /// The name of the template, where there is one.
    pub fn template(&self) -> Option<&str> {
        match self.source() {
            DeviceClaimSource::Template(name, _) => Some(name),
            _ => None,
        }
    }
}

impl DeviceClaims {
    /// Names of all claims, also of those made for extended resources.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let extended = Some(&*self.extended).filter(|name| !name.is_empty());
        self.claims.iter().filter_map(DeviceClaim::claim).chain(extended)
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodClaim {
    name: Box<str>,
    resource_claim_name: Option<Box<str>>,
    resource_claim_template_name: Option<Box<str>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodClaimStatus {
    name: Box<str>,
    resource_claim_name: Option<Box<str>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ExtendedStatus {
    resource_claim_name: Box<str>,
}

/// Reads the claims of a pod; most have none.
pub(super) fn read(
    spec: Vec<PodClaim>,
    status: Vec<PodClaimStatus>,
    extended: Option<ExtendedStatus>,
    is_grouped: bool,
) -> Option<Box<DeviceClaims>> {
    if spec.is_empty() && extended.is_none() {
        return None;
    }
    // By name, of which the first counts: both lists may have thousands.
    let mut by_name: HashMap<&str, &PodClaimStatus> = HashMap::new();
    for status in &status {
        by_name.entry(&status.name).or_insert(status);
    }
    let claims = spec.into_iter().map(|own| {
        let noted = by_name.get(&*own.name).copied();
        let made = noted.and_then(|status| status.resource_claim_name.as_deref());
        let (source, kind) = match (&own.resource_claim_name, &own.resource_claim_template_name) {
            (Some(claim), _) => (&**claim, Kind::Claim),
            (None, Some(template)) if noted.is_none() => (&**template, Kind::NotMade),
            (None, Some(template)) if made.is_none() => (&**template, Kind::NotNeeded),
            (None, Some(template)) => (&**template, Kind::Made),
            (None, None) => ("", Kind::Unknown),
        };
        let made = made.filter(|_| kind == Kind::Made);
        DeviceClaim::new(&own.name, source, made.unwrap_or_default(), kind)
    });
    Some(Box::new(DeviceClaims {
        claims: claims.collect(),
        extended: extended.map(|own| own.resource_claim_name).unwrap_or_default(),
        is_grouped,
    }))
}
