//! Projection of a request: its progress, and the time of its deletion.

use crate::views::{self, Condition};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use machinery_client::Projection;
use machinery_meta::ObjectHeader;
use machinery_x509::first_certificate_validity;
use serde::Deserialize;
use std::borrow::Cow;

/// Times after which requests are deleted, as upstream's.
const APPROVED_FOR: SignedDuration = SignedDuration::from_hours(1);
const DENIED_FOR: SignedDuration = SignedDuration::from_hours(1);
const PENDING_FOR: SignedDuration = SignedDuration::from_hours(24);

/// A signing request, without what it requests.
#[derive(Debug)]
pub(crate) struct RequestView {
    pub(super) signer: Box<str>,
    pub(super) is_approved: bool,
    pub(super) is_denied: bool,
    pub(super) has_failed: bool,
    pub(super) has_certificate: bool,
    /// The moment after which it is deleted; `None` where it waits for its signer.
    pub(super) goes_after: Option<Timestamp>,
}

impl RequestView {
    /// Reports whether it is neither approved nor denied.
    pub(super) fn is_pending(&self) -> bool {
        !self.is_approved && !self.is_denied && !self.has_certificate
    }

    /// Reports whether its signer has to act.
    pub(super) fn waits_for_signer(&self) -> bool {
        self.is_approved && !self.is_denied && !self.has_failed && !self.has_certificate
    }
}

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(default, borrow)]
    spec: Spec<'a>,
    #[serde(default, borrow)]
    status: Status<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec<'a> {
    #[serde(borrow)]
    signer_name: Cow<'a, str>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status<'a> {
    #[serde(borrow)]
    certificate: Option<Cow<'a, str>>,
    conditions: Vec<Condition>,
}

impl Projection for RequestView {
    fn project(header: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let Request { spec, status } = machinery_client::json::from_slice(json)?;
        let has = |kind: &str| status.conditions.iter().any(|own| own.kind == kind);
        Ok(Self {
            is_approved: has("Approved"),
            is_denied: has("Denied"),
            has_failed: has("Failed"),
            has_certificate: status.certificate.as_ref().is_some_and(|own| !own.is_empty()),
            goes_after: goes_after(header, &status),
            signer: spec.signer_name.into(),
        })
    }
}

/// The first of the moments at which a reason to delete the request comes about.
fn goes_after(header: &ObjectHeader, status: &Status<'_>) -> Option<Timestamp> {
    let plus = |at: Option<&str>, time: SignedDuration| {
        let at = views::time(at)?;
        at.checked_add(time).ok()
    };
    if status.conditions.is_empty() {
        return plus(header.creation_timestamp.as_deref(), PENDING_FOR);
    }
    let certificate = status.certificate.as_deref();
    let each = status.conditions.iter().filter_map(|own| {
        let updated = own.last_update_time.as_deref();
        match own.kind.as_str() {
            "Denied" | "Failed" => plus(updated, DENIED_FOR),
            "Approved" => {
                let Some(certificate) = certificate else {
                    return plus(updated, PENDING_FOR);
                };
                let expires = STANDARD.decode(certificate).ok();
                let expires =
                    expires.and_then(|pem| first_certificate_validity(&pem).map(|(_, until)| until));
                expires.into_iter().chain(plus(updated, APPROVED_FOR)).min()
            }
            _ => None,
        }
    });
    each.min()
}
