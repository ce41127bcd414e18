//! Metadata that the server owns: names, uids, times, generation; [`validation`] checks the rest.

pub mod owners;
pub mod validation;

use crate::engine::context::RequestContext;
use crate::engine::error::RegistryError;
use crate::engine::object_part::ObjectPart;
use jiff::Timestamp;
use machinery_runtime::Runtime;
use machinery_schema::{Mut, Ref, Step, Tree, Value};

/// The member that says how many seconds an object may take to end.
pub(crate) const GRACE: &str = "deletionGracePeriodSeconds";
/// Random characters at the end of a generated name.
const RANDOM_SUFFIX: usize = 5;
const MAX_NAME: usize = 63;
const MAX_GENERATED_BASE: usize = MAX_NAME - RANDOM_SUFFIX;
/// Letters without vowels and look-alikes, as upstream has it.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Finalizers without a domain, which the server itself knows.
pub(crate) const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
/// All annotations of an object together.
pub(crate) const MAX_ANNOTATIONS_BYTES: usize = 256 * 1024;

/// `metadata` of an object; an object without it reads as empty.
pub fn meta(object: &Tree) -> Option<Ref<'_>> {
    object.get("metadata")
}

pub fn name(object: &Tree) -> &str {
    object.str_at(&["metadata", "name"])
}

pub fn namespace(object: &Tree) -> &str {
    object.str_at(&["metadata", "namespace"])
}

pub fn uid(object: &Tree) -> &str {
    object.str_at(&["metadata", "uid"])
}

pub fn resource_version(object: &Tree) -> &str {
    object.str_at(&["metadata", "resourceVersion"])
}

pub fn generation(object: &Tree) -> i64 {
    object
        .at(&["metadata", "generation"])
        .and_then(Ref::as_i64)
        .unwrap_or(0)
}

pub fn finalizers(object: &Tree) -> Vec<String> {
    let listed = meta(object).into_iter().flat_map(|meta| meta.list("finalizers"));
    listed.filter_map(Ref::as_str).map(str::to_owned).collect()
}

pub fn time(object: &Tree, field: &str) -> Option<Timestamp> {
    object.str_at(&["metadata", field]).parse().ok()
}

/// The form of a time in metadata: whole seconds.
pub fn format_time(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second())
        .unwrap_or(time)
        .to_string()
}

/// A name from a base and random characters.
pub fn generate_name(base: &str, runtime: &Runtime) -> String {
    let cut = base.floor_char_boundary(MAX_GENERATED_BASE);
    let mut name = base[..cut].to_owned();
    let mut bits = runtime.random_u64();
    for _ in 0..RANDOM_SUFFIX {
        let at = usize::try_from(bits % 27).unwrap_or(0);
        name.push(char::from(ALPHABET[at]));
        bits /= 27;
    }
    name
}

/// Puts an object that names no namespace into that of the request; another one is refused.
pub fn place(object: &mut Tree, requested: &str) -> Result<(), RegistryError> {
    let own = namespace(object);
    if own.is_empty() {
        object.set_str(&["metadata", "namespace"], requested);
        return Ok(());
    }
    same_namespace(own, requested)
}

/// The namespace that an object names must be that of the request.
pub fn same_namespace(own: &str, requested: &str) -> Result<(), RegistryError> {
    if own == requested {
        return Ok(());
    }
    let message = "the namespace of the provided object does not match the namespace sent on the request";
    Err(RegistryError::BadRequest(message.to_owned()))
}

/// Takes away what a client may not say of a new object.
pub fn wipe(object: &mut Tree) {
    object.with(&["metadata"], |mut meta| {
        for field in ["deletionTimestamp", GRACE, "selfLink", "creationTimestamp", "uid"] {
            meta.remove(field);
        }
    });
}

/// Fills what the server owns of a new object's metadata, all but a generated name.
pub fn fill_new(object: &mut Tree, ctx: &RequestContext) {
    let now = format_time(ctx.runtime.now());
    let uid = ctx.runtime.uuid().to_string();
    wipe(object);
    object.with(&["metadata"], |mut meta| {
        meta.set("creationTimestamp", now.as_str());
        meta.set("uid", uid.as_str());
    });
}

/// Carries over what an update may not change; an absent uid is taken from the live object.
pub fn carry_over(object: &mut Tree, old: &Tree) {
    let Some(old_meta) = meta(old) else { return };
    let kept = ["creationTimestamp", "selfLink", "generation"];
    object.root_mut().entry("metadata");
    object.with(&["metadata"], |mut meta| {
        for field in kept {
            restore(&mut meta, old_meta, field);
        }
        let is_set = |meta: Ref<'_>, field| meta.get(field).is_some_and(|value| !value.is_null());
        // Where the old object has none, a new one stays for validation to refuse.
        if is_set(old_meta, "deletionTimestamp") {
            restore(&mut meta, old_meta, "deletionTimestamp");
        }
        if !is_set(meta.as_ref(), GRACE) {
            restore(&mut meta, old_meta, GRACE);
        }
        if meta.as_ref().str("uid").is_empty() {
            restore(&mut meta, old_meta, "uid");
        }
        if meta.as_ref().str("name").is_empty() {
            restore(&mut meta, old_meta, "name");
        }
    });
}

/// Puts a member back to what it is in `old` (or, without one there, away).
pub fn restore(object: &mut Mut<'_>, old: Ref<'_>, field: &str) {
    match old.get(field) {
        Some(value) => object.set(field, value),
        None => {
            object.remove(field);
        }
    }
}

/// Puts labels, annotations, owners, finalizers and the time of deletion back, for kinds whose status goes without metadata.
pub fn restore_for_status(object: &mut Tree, old: &Tree) {
    for field in [
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
        "deletionTimestamp",
    ] {
        restore_field(object, old, field);
    }
}

/// Restores what [`restore_for_status`] does where the status is what a write addresses.
pub(crate) fn keep_in_status(_ctx: &RequestContext, part: ObjectPart, object: &mut Tree, old: &Tree) {
    if part == ObjectPart::Status {
        restore_for_status(object, old);
    }
}

/// Puts all of the metadata but these fields back to what it is in `old`.
pub fn restore_all_but(object: &mut Tree, old: &Tree, kept: &[&str]) {
    let names = |tree: &Tree| -> Vec<String> {
        let fields = meta(tree).into_iter().flat_map(Ref::entries);
        fields.map(|(name, _)| name.to_owned()).collect()
    };
    let mut fields = names(object);
    fields.extend(names(old));
    for field in fields.iter().filter(|field| !kept.contains(&field.as_str())) {
        restore_field(object, old, field);
    }
}

/// Puts one field of the metadata back to what it is in `old`.
pub fn restore_field(object: &mut Tree, old: &Tree, field: &str) {
    match old.at(&["metadata", field]) {
        Some(value) => object.set(&[Step::Name("metadata"), Step::Name(field)], value),
        None => {
            object.remove(&["metadata", field]);
        }
    }
}

/// Puts a member of the root back to what it is in `old` (or, without one there, away).
pub fn restore_member(object: &mut Tree, old: &Tree, member: &str) {
    match old.get(member) {
        Some(value) => object.set(&[Step::Name(member)], value),
        None => {
            object.remove(&[member]);
        }
    }
}

/// Everything but metadata and `part` is the same.
pub fn spec_differs(object: &Tree, old: &Tree) -> bool {
    let counted = |name: &str| !matches!(name, "metadata" | "status" | "apiVersion" | "kind");
    let mut left = object.root().entries().filter(|(name, _)| counted(name));
    let mut right = old.root().entries().filter(|(name, _)| counted(name));
    loop {
        match (left.next(), right.next()) {
            (None, None) => return false,
            (Some((a, x)), Some((b, y))) if a == b && x == y => {}
            _ => return true,
        }
    }
}

pub fn set_generation(object: &mut Tree, generation: i64) {
    object.set(
        &[Step::Name("metadata"), Step::Name("generation")],
        Value::Int(generation),
    );
}
