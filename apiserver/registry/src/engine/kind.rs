//! Everything about a built-in kind, as data and functions of its folder below [`kinds`](crate::kinds).
//!
//! A kind is one constant, `KIND` in the folder's `mod.rs`, and one line in the list of `kinds/mod.rs`. Each version of the kind
//! that is served points at it, so that a request looks nothing up by name. Nothing here knows a kind.

use crate::engine::context::RequestContext;
use crate::engine::conversion::Conversion;
use crate::engine::object_part::ObjectPart;
use crate::engine::options::DeleteOptions;
use crate::engine::selectable::Selectable;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;
use crate::shared::columns::{Completed, KindCells};
use crate::shared::not_enforced::Field;
use machinery_schema::{Ref, Tree};
use std::sync::Arc;

/// Warnings of a written object; the second is the object before.
pub(crate) type WarningsOf = fn(Ref<'_>, Option<Ref<'_>>) -> Vec<String>;

/// Seconds of grace of a delete, of the object and the seconds in the request.
pub(crate) type GraceOf = fn(Ref<'_>, Option<i64>) -> Option<i64>;

/// A built-in kind.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    pub group: &'static str,
    pub plural: &'static str,
    pub(crate) traits: Traits,
    pub(crate) rules: ValidationRules,
    /// Missing, for objects that are stored and that nothing acts on.
    pub(crate) not_enforced: Option<&'static str>,
    pub(crate) refusal: Option<RefusalCheck>,
    pub(crate) fields_not_enforced: Option<FieldsNotEnforced>,
    pub(crate) columns: Option<KindCells>,
    /// The sort key of an object in a list, for kinds that are not sorted by name.
    pub(crate) list_order: Option<fn(Ref<'_>) -> i64>,
    /// The result of an object that has completed.
    pub(crate) completed: Option<fn(Ref<'_>) -> Option<Completed>>,
    /// Fields that field selectors may request, besides name and namespace. Fingerprints of records depend on their order.
    pub(crate) selectable: fn() -> Vec<Selectable>,
    /// The warning that every answer carries.
    pub(crate) deprecation: Option<&'static str>,
    pub(crate) stored_as: Option<StoredAs>,
    pub(crate) old_form: Option<OldForm>,
    /// Defaults as lines, in groups.
    pub(crate) default_lines: &'static [&'static [&'static str]],
    pub(crate) pod_template: Option<PodTemplate>,
    pub(crate) hooks: Hooks,
}

/// The spec of pods within the objects of a kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PodTemplate {
    pub(crate) path: &'static [&'static str],
    /// Lines below the path.
    pub(crate) lines: fn() -> Vec<String>,
    /// Defaults that depend on other fields.
    pub(crate) set: fn(&mut Tree, &[&str]),
}

/// A version that is no longer served and that other servers store to this day.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OldForm {
    pub(crate) version: &'static str,
    /// The same document in the stored version.
    pub(crate) read: fn(&[u8]) -> Result<Vec<u8>, String>,
}

/// Another form in which the objects of one version are stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredAs {
    /// The version that is converted.
    pub(crate) version: &'static str,
    /// Group and version of the stored form.
    pub(crate) stored: (&'static str, &'static str),
    pub(crate) conversion: fn() -> Arc<dyn Conversion>,
}

/// Functions of a kind at moments in the life of an object; the order is that of [`Strategy`](crate::Strategy), whose methods have
/// these names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hooks {
    /// Defaults that come before the lines of the kind.
    pub(crate) first_defaults: Option<fn(&mut Tree)>,
    pub(crate) defaults: Option<fn(&mut Tree)>,
    pub(crate) prepare_for_create: Option<fn(&RequestContext, &mut Tree)>,
    pub(crate) prepare_for_update: Option<fn(&RequestContext, ObjectPart, &mut Tree, &Tree)>,
    pub(crate) spec_changed: Option<fn(&Tree, &Tree) -> bool>,
    pub(crate) warnings: Option<WarningsOf>,
    pub(crate) delete_warnings: Option<fn(&DeleteOptions) -> Vec<String>>,
    pub(crate) graceful: Option<GraceOf>,
    pub(crate) keeps_after_finalizers: Option<fn(Ref<'_>) -> bool>,
    pub(crate) mark_deleting: Option<fn(&mut Tree)>,
}

impl Hooks {
    const NONE: Self = Self {
        first_defaults: None,
        defaults: None,
        prepare_for_create: None,
        prepare_for_update: None,
        spec_changed: None,
        warnings: None,
        delete_warnings: None,
        graceful: None,
        keeps_after_finalizers: None,
        mark_deleting: None,
    };
}

/// The part of an object that is not stored as long as nothing enforces it, with what is missing.
pub(crate) type RefusalCheck = fn(Ref<'_>) -> Option<(String, &'static str)>;
/// The fields of an object that have no effect.
pub(crate) type FieldsNotEnforced = fn(Ref<'_>) -> Vec<Field>;

/// Two kinds are the same by their names.
impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        (self.group, self.plural) == (other.group, other.plural)
    }
}

impl Eq for Kind {}

impl Kind {
    /// A kind about which the table says everything.
    pub(crate) const fn of(group: &'static str, plural: &'static str) -> Self {
        Self {
            group,
            plural,
            traits: Traits::PLAIN,
            rules: ValidationRules::NONE,
            not_enforced: None,
            refusal: None,
            fields_not_enforced: None,
            columns: None,
            list_order: None,
            completed: None,
            selectable: Vec::new,
            deprecation: None,
            stored_as: None,
            old_form: None,
            default_lines: &[],
            pod_template: None,
            hooks: Hooks::NONE,
        }
    }

    pub(crate) const fn traits(self, traits: Traits) -> Self {
        Self { traits, ..self }
    }

    pub(crate) const fn rules(self, rules: ValidationRules) -> Self {
        Self { rules, ..self }
    }

    /// Cells of the columns that upstream has for the kind.
    pub(crate) const fn columns(self, columns: KindCells) -> Self {
        Self {
            columns: Some(columns),
            ..self
        }
    }

    pub(crate) const fn list_order(self, list_order: fn(Ref<'_>) -> i64) -> Self {
        Self {
            list_order: Some(list_order),
            ..self
        }
    }

    pub(crate) const fn completed(self, completed: fn(Ref<'_>) -> Option<Completed>) -> Self {
        Self {
            completed: Some(completed),
            ..self
        }
    }

    pub(crate) const fn selectable(self, selectable: fn() -> Vec<Selectable>) -> Self {
        Self { selectable, ..self }
    }

    pub(crate) const fn deprecated(self, deprecation: &'static str) -> Self {
        Self {
            deprecation: Some(deprecation),
            ..self
        }
    }

    pub(crate) const fn stored_as(self, stored_as: StoredAs) -> Self {
        Self {
            stored_as: Some(stored_as),
            ..self
        }
    }

    pub(crate) const fn old_form(self, old_form: OldForm) -> Self {
        Self {
            old_form: Some(old_form),
            ..self
        }
    }

    /// Defaults as lines `a.b[].c=value`.
    pub(crate) const fn default_lines(self, default_lines: &'static [&'static [&'static str]]) -> Self {
        Self {
            default_lines,
            ..self
        }
    }

    /// Its objects have the spec of pods, with the defaults of one.
    pub(crate) const fn pod_template(self, template: PodTemplate) -> Self {
        Self {
            pod_template: Some(template),
            ..self
        }
    }

    /// Defaults of objects that come before the lines of the kind.
    pub(crate) const fn first_defaults(mut self, hook: fn(&mut Tree)) -> Self {
        self.hooks.first_defaults = Some(hook);
        self
    }

    /// Defaults that depend on other fields.
    pub(crate) const fn defaults(mut self, hook: fn(&mut Tree)) -> Self {
        self.hooks.defaults = Some(hook);
        self
    }

    pub(crate) const fn prepare_for_create(mut self, hook: fn(&RequestContext, &mut Tree)) -> Self {
        self.hooks.prepare_for_create = Some(hook);
        self
    }

    pub(crate) const fn prepare_for_update(
        mut self,
        hook: fn(&RequestContext, ObjectPart, &mut Tree, &Tree),
    ) -> Self {
        self.hooks.prepare_for_update = Some(hook);
        self
    }

    /// Updates that count in `metadata.generation`, where they are not those of the spec.
    pub(crate) const fn spec_changed(mut self, hook: fn(&Tree, &Tree) -> bool) -> Self {
        self.hooks.spec_changed = Some(hook);
        self
    }

    pub(crate) const fn warnings(mut self, hook: fn(Ref<'_>, Option<Ref<'_>>) -> Vec<String>) -> Self {
        self.hooks.warnings = Some(hook);
        self
    }

    pub(crate) const fn delete_warnings(mut self, hook: fn(&DeleteOptions) -> Vec<String>) -> Self {
        self.hooks.delete_warnings = Some(hook);
        self
    }

    pub(crate) const fn graceful(mut self, hook: fn(Ref<'_>, Option<i64>) -> Option<i64>) -> Self {
        self.hooks.graceful = Some(hook);
        self
    }

    pub(crate) const fn keeps_after_finalizers(mut self, hook: fn(Ref<'_>) -> bool) -> Self {
        self.hooks.keeps_after_finalizers = Some(hook);
        self
    }

    pub(crate) const fn mark_deleting(mut self, hook: fn(&mut Tree)) -> Self {
        self.hooks.mark_deleting = Some(hook);
        self
    }

    /// Objects are stored with a warning that says what is missing.
    pub(crate) const fn not_enforced(self, missing: &'static str) -> Self {
        Self {
            not_enforced: Some(missing),
            ..self
        }
    }

    /// Objects of which this finds something are not stored, unless a flag of the server says so (decision 0030).
    pub(crate) const fn refused(self, check: RefusalCheck) -> Self {
        Self {
            refusal: Some(check),
            ..self
        }
    }

    /// Fields are stored with a warning.
    pub(crate) const fn fields_not_enforced(self, fields: FieldsNotEnforced) -> Self {
        Self {
            fields_not_enforced: Some(fields),
            ..self
        }
    }
}
