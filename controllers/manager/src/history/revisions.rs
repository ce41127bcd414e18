//! Upstream's rules for revisions: which are equal, what they are called, which number is next, which are too many.

use super::view::RevisionRef;
use machinery_reconcile::names::safe_encode;
use serde_json::{Value, json};

/// The label by which pods, and revisions of a DaemonSet, name the revision that they belong to.
pub const POD_HASH: &str = "controller-revision-hash";
/// The label of a StatefulSet's revision that holds the hash of its data.
pub const DATA_HASH: &str = "controller.kubernetes.io/hash";

/// Longest part of a revision's name that its owner's name may be.
const MAX_PREFIX_BYTES: usize = 223;

/// JSON with the members of its objects in order, as text. Revisions are equal where these texts are.
pub fn canonical(json: &str) -> String {
    // Text nested deeper than values may be stays as it is; the API server stores none that deep.
    serde_json::from_str::<Value>(json).map_or_else(|_| json.to_owned(), |value| value.to_string())
}

/// The data of a revision: the patch that puts this template, an object's JSON, back in its place.
pub fn template_data(template: &str) -> Result<String, serde_json::Error> {
    let mut template: Value = serde_json::from_str(template)?;
    template["$patch"] = json!("replace");
    Ok(json!({"spec": {"template": template}}).to_string())
}

/// The hash of a revision's data; collisions change it. Upstream's `HashControllerRevision`: FNV-1 of the JSON as Go
/// writes it.
pub fn hash(data: &str, collisions: Option<i32>) -> String {
    let mut text = String::with_capacity(data.len());
    for character in data.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                text.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            other => text.push(other),
        }
    }
    text.extend(collisions.map(|count| count.to_string()));
    let hash = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        hash.wrapping_mul(0x0100_0193) ^ u32::from(byte)
    });
    safe_encode(&hash.to_string())
}

/// The name of an owner's revision.
pub fn name(owner: &str, hash: &str) -> String {
    format!("{}-{hash}", &owner[..owner.floor_char_boundary(MAX_PREFIX_BYTES)])
}

/// Puts revisions in their order: by number, the older first among equals, then by name.
pub fn sort(revisions: &mut [RevisionRef]) {
    revisions.sort_by(|a, b| {
        let order = |own: &RevisionRef| (own.number, own.created);
        order(a).cmp(&order(b)).then_with(|| a.name().cmp(b.name()))
    });
}

/// The revisions with this data, in the order of all.
pub fn equal<'a>(revisions: &'a [RevisionRef], data: &'a str) -> impl Iterator<Item = &'a RevisionRef> {
    revisions.iter().filter(move |own| *own.data == *data)
}

/// The number behind all of these.
pub fn next_number<'a>(revisions: impl IntoIterator<Item = &'a RevisionRef>) -> i64 {
    let largest = revisions.into_iter().map(|own| own.number).max();
    largest.unwrap_or(0).max(0).saturating_add(1)
}

/// Old revisions beyond the limit, the oldest first, without those that are in use; these count against the limit too.
pub fn surplus(
    old: &[RevisionRef],
    limit: usize,
    is_in_use: impl Fn(&RevisionRef) -> bool,
) -> Vec<RevisionRef> {
    let mut old = old.to_vec();
    let excess = old.len().saturating_sub(limit);
    sort(&mut old);
    old.retain(|own| !is_in_use(own));
    old.truncate(excess);
    old
}
