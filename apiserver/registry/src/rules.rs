//! What is wrong with an object of a kind: with a new one, a changed one, and one changed through a subresource.
//!
//! A kind names its functions once, as data; [`Strategy::validate`](crate::Strategy::validate) and
//! [`Strategy::validate_update`](crate::Strategy::validate_update) ask here which of them a write is looked at by.

use crate::strategy::Part;
use jiff::Timestamp;
use machinery_meta::FieldError;
use machinery_schema::Ref;

/// Every problem of a new object.
type Look = fn(Ref<'_>) -> Vec<FieldError>;
/// Every problem of an object, seen beside the one that it replaces.
type Compare = fn(Ref<'_>, Ref<'_>) -> Vec<FieldError>;
/// The same where it matters what time it is.
type CompareAt = fn(Ref<'_>, Ref<'_>, Timestamp) -> Vec<FieldError>;

/// What a status is held to.
#[derive(Debug, Clone, Copy)]
enum OfStatus {
    Nothing,
    Rule(Compare),
    RuleAt(CompareAt),
}

/// The functions of a kind; without any, the table says everything.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    new: Look,
    /// Without one, a changed object is looked at as a new one.
    changed: Option<Compare>,
    status: OfStatus,
    /// Of subresources that see the whole object; those not named have the rules of a changed object.
    parts: &'static [(&'static str, Compare)],
}

impl Rules {
    /// Nothing but what every kind is held to.
    pub(crate) const NONE: Self = Self::on(|_| Vec::new());

    /// What is asked of an object, whether new or changed.
    pub(crate) const fn on(new: Look) -> Self {
        Self {
            new,
            changed: None,
            status: OfStatus::Nothing,
            parts: &[],
        }
    }

    pub(crate) const fn changed(self, changed: Compare) -> Self {
        Self {
            changed: Some(changed),
            ..self
        }
    }

    pub(crate) const fn status(self, status: Compare) -> Self {
        Self {
            status: OfStatus::Rule(status),
            ..self
        }
    }

    /// A status that tells times.
    pub(crate) const fn status_at(self, status: CompareAt) -> Self {
        Self {
            status: OfStatus::RuleAt(status),
            ..self
        }
    }

    pub(crate) const fn parts(self, parts: &'static [(&'static str, Compare)]) -> Self {
        Self { parts, ..self }
    }

    pub(crate) fn of_new(&self, object: Ref<'_>) -> Vec<FieldError> {
        (self.new)(object)
    }

    pub(crate) fn of_changed(
        &self,
        part: Part,
        object: Ref<'_>,
        old: Ref<'_>,
        now: Timestamp,
    ) -> Vec<FieldError> {
        let named = match part {
            Part::Status => return self.of_status(object, old, now),
            Part::Other(name) => self.parts.iter().find(|(own, _)| *own == name),
            Part::Main => None,
        };
        match (named.map(|(_, rule)| *rule), self.changed) {
            (Some(rule), _) | (None, Some(rule)) => rule(object, old),
            (None, None) => (self.new)(object),
        }
    }

    fn of_status(&self, object: Ref<'_>, old: Ref<'_>, now: Timestamp) -> Vec<FieldError> {
        match self.status {
            OfStatus::Nothing => Vec::new(),
            OfStatus::Rule(rule) => rule(object, old),
            OfStatus::RuleAt(rule) => rule(object, old, now),
        }
    }
}
