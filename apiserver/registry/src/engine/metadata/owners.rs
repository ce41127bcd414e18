//! Owner references that an object has twice.

use crate::engine::context::RequestContext;
use machinery_schema::Tree;
use std::collections::HashSet;

/// The step of a request at which owner references are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// As the client sent them.
    Sent,
    /// After mutating admission, and of a patch.
    Mutated,
}

/// Removes owner references that the object has already, and warns of them.
pub fn remove_repeated_owners(ctx: &RequestContext, object: &mut Tree, moment: Moment) {
    let owners = || {
        object
            .at(&["metadata"])
            .into_iter()
            .flat_map(|meta| meta.list("ownerReferences"))
    };
    let mut seen = HashSet::new();
    let keep: Vec<bool> = owners().map(|owner| seen.insert(owner.to_json())).collect();
    let repeated: Vec<&str> = owners()
        .zip(&keep)
        .filter(|(_, keep)| !**keep)
        .map(|(owner, _)| owner.str("uid"))
        .collect();
    if repeated.is_empty() {
        return;
    }
    let after = match moment {
        Moment::Sent => "",
        Moment::Mutated => " after mutating admission happens",
    };
    ctx.warnings.add(format!(
        ".metadata.ownerReferences contains duplicate entries{after}; API server dedups owner references in 1.20+, and \
         may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        repeated.join(", ")
    ));
    let mut keep = keep.into_iter();
    object.with(&["metadata", "ownerReferences"], |mut list| {
        list.retain(|_| keep.next().unwrap_or(true));
    });
}
