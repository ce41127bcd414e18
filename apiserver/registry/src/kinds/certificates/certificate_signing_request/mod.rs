//! CertificateSigningRequest: a request for a certificate, the decision on it, and the certificate.

mod columns;
pub(crate) mod decision;
pub(crate) mod validation;

use crate::engine::context::RequestContext;
use crate::engine::kind::Kind;
use crate::engine::selectable::Selectable;
use crate::engine::strategy::ObjectPart;
use crate::engine::traits::{NameRule, Traits};
use crate::engine::validation_rules::ValidationRules;
use machinery_schema::Tree;

pub(crate) static KIND: Kind = Kind::of("certificates.k8s.io", "certificatesigningrequests")
    .traits(Traits::PLAIN.named(NameRule::PathSegment))
    .rules(
        ValidationRules::create(validation::validate)
            .update(decision::validate_main)
            .status(decision::validate_status)
            .parts(&[("approval", decision::validate_approval)]),
    )
    .prepare_for_create(requested_by)
    .prepare_for_update(prepare_for_update)
    .columns(columns::cells)
    .selectable(|| Selectable::texts(["spec.signerName"]));

/// Sets the requesting user, and for serving certificates the address of the request.
fn requested_by(ctx: &RequestContext, object: &mut Tree) {
    object.set_str(&["spec", "username"], &ctx.user.name);
    object.remove(&["spec", "groups"]);
    object.remove(&["spec", "extra"]);
    object.remove(&["spec", "uid"]);
    if !ctx.user.uid.is_empty() {
        object.set_str(&["spec", "uid"], &ctx.user.uid);
    }
    for group in &ctx.user.groups {
        object.push(&["spec", "groups"], group.as_str());
    }
    for (key, values) in &ctx.user.extra {
        for value in values {
            object.push(&["spec", "extra", key], value.as_str());
        }
    }
    validation::note_address(object, ctx.client_address);
}

fn prepare_for_update(ctx: &RequestContext, part: ObjectPart, object: &mut Tree, old: &Tree) {
    let now = crate::engine::metadata::format_time(ctx.runtime.now());
    validation::prepare_for_update(part, object, old, &now);
}
