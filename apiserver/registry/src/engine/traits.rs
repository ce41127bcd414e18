//! Differences between kinds in the behavior that every kind has.

use crate::engine::store::deletion::GarbagePolicy;
use crate::shared::validation::ip_problems;
use machinery_meta::syntax;
use std::time::Duration;

/// Differences between kinds in the behavior that every kind has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Traits {
    pub(crate) names: NameRule,
    pub(crate) generation: bool,
    pub(crate) create_on_update: bool,
    pub(crate) unconditional_update: bool,
    pub(crate) returns_deleted: bool,
    pub(crate) garbage: GarbagePolicy,
    pub(crate) qualified_finalizers: bool,
    pub(crate) keeps_status_on_create: bool,
    pub(crate) ttl: Option<Duration>,
}

/// The rule for names of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameRule {
    Subdomain,
    Label,
    PathSegment,
    IpAddress,
    /// The kind's own validation says it.
    Any,
}

impl NameRule {
    pub(crate) fn problems(self, name: &str, prefix: bool) -> Vec<String> {
        match self {
            Self::Subdomain => name_rule(syntax::dns1123_subdomain, name, prefix),
            Self::Label => name_rule(syntax::dns1123_label, name, prefix),
            Self::PathSegment => path_segment_problems(name, prefix),
            Self::IpAddress => ip_problems(name),
            Self::Any => Vec::new(),
        }
    }
}

impl Traits {
    pub(crate) const PLAIN: Self = Self {
        names: NameRule::Subdomain,
        generation: false,
        create_on_update: false,
        unconditional_update: true,
        returns_deleted: false,
        garbage: GarbagePolicy::Background,
        qualified_finalizers: true,
        keeps_status_on_create: false,
        ttl: None,
    };

    /// Traits with a `metadata.generation` that counts.
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

    /// A creator may set the status.
    pub(crate) const fn status_kept(self) -> Self {
        Self {
            keeps_status_on_create: true,
            ..self
        }
    }

    /// Objects go after this time.
    pub(crate) const fn expiring(self, after: Duration) -> Self {
        Self {
            ttl: Some(after),
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

/// Applies a syntax rule, letting a prefix end in a dash.
pub fn name_rule(rule: fn(&str) -> Vec<String>, name: &str, prefix: bool) -> Vec<String> {
    if prefix && name.len() > 1 && name.ends_with('-') {
        let masked = format!("{}a", &name[..name.len() - 2]);
        return rule(&masked);
    }
    rule(name)
}

/// Any name that can be a path segment (RBAC, CRDs' kinds).
pub fn path_segment_problems(name: &str, prefix: bool) -> Vec<String> {
    let mut problems = Vec::new();
    if !prefix && (name == "." || name == "..") {
        problems.push(format!("may not be '{name}'"));
    }
    for illegal in ["/", "%"] {
        if name.contains(illegal) {
            problems.push(format!("may not contain '{illegal}'"));
        }
    }
    problems
}
