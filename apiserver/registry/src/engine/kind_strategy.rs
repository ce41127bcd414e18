//! The strategy of a built-in kind: what its [`Kind`] says.

use crate::engine::context::RequestContext;
use crate::engine::kind::Kind;
use crate::engine::options::DeleteOptions;
use crate::engine::store::deletion::GarbagePolicy;
use crate::engine::strategy::{ObjectPart, Strategy};
use crate::engine::traits::NameRule;
use crate::engine::validation_rules::ValidationRules;
use machinery_runtime::Runtime;
use machinery_schema::{Additions, Ref, Tree};
use std::time::Duration;

/// See the module's comment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KindStrategy {
    pub(crate) kind: &'static Kind,
    /// Defaults of the served version.
    pub(crate) default_lines: Option<&'static Additions>,
}

impl Strategy for KindStrategy {
    fn name_problems(&self, name: &str, prefix: bool) -> Vec<String> {
        self.kind.traits.names.problems(name, prefix)
    }

    fn generated_name(&self, base: &str, runtime: &Runtime) -> String {
        match self.kind.traits.names {
            // Nothing is an address any more with letters behind it.
            NameRule::IpAddress => base.to_owned(),
            _ => crate::engine::metadata::generate_name(base, runtime),
        }
    }

    fn defaults(&self, object: &mut Tree) {
        self.kind.set_defaults(self.default_lines, object);
    }

    fn prepare_for_create(&self, ctx: &RequestContext, object: &mut Tree) {
        if let Some(prepare) = self.kind.hooks.prepare_for_create {
            prepare(ctx, object);
        }
    }

    fn prepare_for_update(&self, ctx: &RequestContext, part: ObjectPart, object: &mut Tree, old: &Tree) {
        if let Some(prepare) = self.kind.hooks.prepare_for_update {
            prepare(ctx, part, object, old);
        }
    }

    fn spec_changed(&self, object: &Tree, old: &Tree) -> bool {
        let changed = self.kind.hooks.spec_changed;
        changed.unwrap_or(crate::engine::metadata::spec_differs)(object, old)
    }

    fn rules(&self) -> ValidationRules {
        self.kind.rules
    }

    fn warnings(&self, object: Ref<'_>, old: Option<Ref<'_>>) -> Vec<String> {
        let warnings = self.kind.hooks.warnings;
        warnings.map_or_else(Vec::new, |of| of(object, old))
    }

    fn delete_warnings(&self, options: &DeleteOptions) -> Vec<String> {
        let warnings = self.kind.hooks.delete_warnings;
        warnings.map_or_else(Vec::new, |of| of(options))
    }

    fn wants_qualified_finalizers(&self) -> bool {
        self.kind.traits.qualified_finalizers
    }

    fn allows_create_on_update(&self) -> bool {
        self.kind.traits.create_on_update
    }

    fn allows_unconditional_update(&self) -> bool {
        self.kind.traits.unconditional_update
    }

    fn keeps_status_on_create(&self) -> bool {
        self.kind.traits.keeps_status_on_create
    }

    fn counts_generation(&self) -> bool {
        self.kind.traits.generation
    }

    fn graceful(&self, object: Ref<'_>, requested: Option<i64>) -> Option<i64> {
        self.kind.hooks.graceful.and_then(|of| of(object, requested))
    }

    fn garbage_policy(&self) -> GarbagePolicy {
        self.kind.traits.garbage
    }

    fn returns_deleted_object(&self) -> bool {
        self.kind.traits.returns_deleted
    }

    fn keeps_after_finalizers(&self, object: Ref<'_>) -> bool {
        let keeps = self.kind.hooks.keeps_after_finalizers;
        keeps.is_some_and(|keeps| keeps(object))
    }

    fn mark_deleting(&self, object: &mut Tree) {
        if let Some(mark) = self.kind.hooks.mark_deleting {
            mark(object);
        }
    }

    fn ttl(&self) -> Option<Duration> {
        self.kind.traits.ttl
    }
}
