//! The decisions of a kind about its own objects.
//!
//! The order of calls is the same for every kind. Create: `defaults` (while decoding and after each mutation) →
//! mutating admission → [metadata filled] → `prepare_for_create` → `validate` → validating admission → `warnings` →
//! (allocation) → stored. Update: the change applied to the live object → `defaults` → mutating admission →
//! `prepare_for_update` → `validate_update` → validating admission → (allocation) → stored unless equal. Only
//! `defaults`, the `prepare_` methods and [`allocation`](crate::engine::allocation) may change the object.

use crate::engine::context::RequestContext;
use crate::engine::store::deletion::GarbagePolicy;
use crate::engine::validation_rules::ValidationRules;
use machinery_meta::{FieldError, syntax};
use machinery_runtime::Runtime;
use machinery_schema::{Ref, Tree};
use std::time::Duration;

pub use crate::engine::object_part::ObjectPart;
pub use crate::engine::traits::{name_rule, path_segment_problems};

/// A kind's own rules. Every method has the neutral answer, so that a simple kind writes only what differs.
pub trait Strategy: Send + Sync + std::fmt::Debug + 'static {
    /// Problems of a name; `prefix` for a `generateName`.
    fn name_problems(&self, name: &str, prefix: bool) -> Vec<String> {
        name_rule(syntax::dns1123_subdomain, name, prefix)
    }

    /// The name of an object that has only a `generateName`.
    fn generated_name(&self, base: &str, runtime: &Runtime) -> String {
        crate::engine::metadata::generate_name(base, runtime)
    }

    /// Defaults that the table cannot say (they depend on other fields).
    fn defaults(&self, _object: &mut Tree) {}

    /// Drops what a creator may not set. The status is reset before, where the kind has that subresource.
    fn prepare_for_create(&self, _ctx: &RequestContext, _object: &mut Tree) {}

    /// Drops what this part may not change. Status (or all but status) is restored from `old` before.
    fn prepare_for_update(&self, _ctx: &RequestContext, _part: ObjectPart, _object: &mut Tree, _old: &Tree) {}

    /// The validation rules of the kind.
    fn rules(&self) -> ValidationRules {
        ValidationRules::NONE
    }

    /// Every problem of a new object; metadata are checked by generic code.
    fn validate(&self, object: Ref<'_>) -> Vec<FieldError> {
        self.rules().of_new(object)
    }

    /// The same for a request: checks that may be long end once its client has left.
    fn validate_within(&self, _ctx: &RequestContext, object: Ref<'_>) -> Vec<FieldError> {
        self.validate(object)
    }

    /// Every problem of an object changed through a part of it. Metadata are checked by generic code.
    fn validate_update(
        &self,
        ctx: &RequestContext,
        part: ObjectPart,
        object: Ref<'_>,
        old: Ref<'_>,
    ) -> Vec<FieldError> {
        self.rules().of_changed(part, object, old, ctx.runtime.now())
    }

    /// Reports whether validation may cost much whatever the size of the object is.
    fn is_heavy_to_validate(&self) -> bool {
        false
    }

    /// Warnings about an accepted object; `old` on update.
    fn warnings(&self, _object: Ref<'_>, _old: Option<Ref<'_>>) -> Vec<String> {
        Vec::new()
    }

    /// A finalizer is qualified, or one that the server knows; others check its syntax only.
    fn wants_qualified_finalizers(&self) -> bool {
        true
    }

    /// A PUT to a missing name creates.
    fn allows_create_on_update(&self) -> bool {
        false
    }

    /// A PUT without a resourceVersion overwrites.
    fn allows_unconditional_update(&self) -> bool {
        true
    }

    /// Reports whether an update increments `metadata.generation`.
    fn spec_changed(&self, object: &Tree, old: &Tree) -> bool {
        crate::engine::metadata::spec_differs(object, old)
    }

    /// A creator may set the status (nodes register with theirs).
    fn keeps_status_on_create(&self) -> bool {
        false
    }

    /// `metadata.generation` counts changes outside metadata and status.
    fn counts_generation(&self) -> bool {
        true
    }

    /// The grace period of a delete, for kinds that delete gracefully.
    fn graceful(&self, _object: Ref<'_>, _requested: Option<i64>) -> Option<i64> {
        None
    }

    fn garbage_policy(&self) -> GarbagePolicy {
        GarbagePolicy::Background
    }

    /// A delete answers with the object instead of a `Status`.
    fn returns_deleted_object(&self) -> bool {
        false
    }

    /// Holds a deleted object beyond its finalizers (a namespace's `spec.finalizers`).
    fn keeps_after_finalizers(&self, _object: Ref<'_>) -> bool {
        false
    }

    /// Changes that go with the mark of a deletion (a namespace's phase).
    fn mark_deleting(&self, _object: &mut Tree) {}

    /// Refuses a delete, in the words of a forbidden answer.
    fn refuse_delete(&self, _object: Ref<'_>) -> Option<String> {
        None
    }

    /// Warnings on delete with these options.
    fn delete_warnings(&self, _options: &crate::engine::options::DeleteOptions) -> Vec<String> {
        Vec::new()
    }

    /// Time to live of an object after each write of it, as upstream's `TTLFunc`.
    fn ttl(&self) -> Option<Duration> {
        None
    }
}
