//! Everything about a built-in kind, as data and functions of its folder below [`kinds`](crate::kinds).
//!
//! A kind is one constant, `KIND` in the folder's `mod.rs`, and one line in the list of `kinds/mod.rs`. Each version of the kind
//! that is served points at it, so that a request looks nothing up by name. Nothing here knows a kind.

use crate::not_enforced::Field;
use crate::store::deletion::GarbagePolicy;
use crate::strategy::{name_rule, path_segment_problems};
use crate::validation::ip_problems;
use crate::validation_rules::ValidationRules;
use machinery_meta::syntax;
use machinery_schema::Ref;

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
        }
    }

    pub(crate) const fn traits(self, traits: Traits) -> Self {
        Self { traits, ..self }
    }

    pub(crate) const fn rules(self, rules: ValidationRules) -> Self {
        Self { rules, ..self }
    }

    /// Objects are stored with a warning that says what is missing.
    pub(crate) const fn not_enforced(self, missing: &'static str) -> Self {
        Self {
            not_enforced: Some(missing),
            ..self
        }
    }

    /// Objects of which this finds something are not stored, unless the server is told to (decision 0030).
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

/// Differences between kinds in the behavior that every kind has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traits {
    pub names: NameRule,
    pub generation: bool,
    pub create_on_update: bool,
    pub unconditional_update: bool,
    pub returns_deleted: bool,
    pub garbage: GarbagePolicy,
    pub qualified_finalizers: bool,
}

/// The rule for names of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    Subdomain,
    Label,
    Label1035,
    PathSegment,
    IpAddress,
    /// The kind's own validation says it.
    Any,
}

impl NameRule {
    pub fn problems(self, name: &str, prefix: bool) -> Vec<String> {
        match self {
            Self::Subdomain => name_rule(syntax::dns1123_subdomain, name, prefix),
            Self::Label => name_rule(syntax::dns1123_label, name, prefix),
            Self::Label1035 => name_rule(syntax::dns1035_label, name, prefix),
            Self::PathSegment => path_segment_problems(name, prefix),
            Self::IpAddress => ip_problems(name),
            Self::Any => Vec::new(),
        }
    }
}

impl Traits {
    pub const PLAIN: Self = Self {
        names: NameRule::Subdomain,
        generation: false,
        create_on_update: false,
        unconditional_update: true,
        returns_deleted: false,
        garbage: GarbagePolicy::Background,
        qualified_finalizers: true,
    };

    /// With a `metadata.generation` that counts.
    pub(crate) const COUNTED: Self = Self {
        generation: true,
        ..Self::PLAIN
    };

    pub(crate) const fn named(self, names: NameRule) -> Self {
        Self { names, ..self }
    }

    /// A PUT to a missing name creates.
    pub(crate) const fn put_creates(self) -> Self {
        Self {
            create_on_update: true,
            ..self
        }
    }

    /// A PUT must say which revision it replaces.
    pub(crate) const fn revision_wanted(self) -> Self {
        Self {
            unconditional_update: false,
            ..self
        }
    }

    /// A delete answers with the object.
    pub(crate) const fn returned(self) -> Self {
        Self {
            returns_deleted: true,
            ..self
        }
    }

    /// Dependents are orphaned by default.
    pub(crate) const fn orphaning(self) -> Self {
        Self {
            garbage: GarbagePolicy::Orphan,
            ..self
        }
    }

    /// Events have no dependents.
    pub(crate) const fn garbage_unsupported(self) -> Self {
        Self {
            garbage: GarbagePolicy::Unsupported,
            ..self
        }
    }

    /// Finalizers need no domain.
    pub(crate) const fn any_finalizers(self) -> Self {
        Self {
            qualified_finalizers: false,
            ..self
        }
    }
}
