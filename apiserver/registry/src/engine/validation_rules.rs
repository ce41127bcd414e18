//! Validation rules of kinds: for a new object, a changed one, and one changed through a subresource.
//!
//! A kind names its functions once, as data; [`Strategy::validate`](crate::Strategy::validate) and
//! [`Strategy::validate_update`](crate::Strategy::validate_update) find here the one that a write must pass.

use crate::engine::object_part::ObjectPart;
use jiff::Timestamp;
use machinery_meta::FieldError;
use machinery_schema::Ref;

/// Every problem of a new object.
type Check = fn(Ref<'_>) -> Vec<FieldError>;
/// Every problem of an object, seen beside the one that it replaces.
type UpdateCheck = fn(Ref<'_>, Ref<'_>) -> Vec<FieldError>;
/// The same where it matters what time it is.
type TimedUpdateCheck = fn(Ref<'_>, Ref<'_>, Timestamp) -> Vec<FieldError>;

/// The rule for a status.
#[derive(Debug, Clone, Copy)]
enum StatusCheck {
    Nothing,
    Rule(UpdateCheck),
    RuleAt(TimedUpdateCheck),
}

/// The functions of a kind; without any, the table says everything.
#[derive(Debug, Clone, Copy)]
pub struct ValidationRules {
    create: Check,
    /// Without one, a changed object is looked at as a new one.
    update: Option<UpdateCheck>,
    status: StatusCheck,
    /// Of subresources that see the whole object; those not named have the rules of a changed object.
    parts: &'static [(&'static str, UpdateCheck)],
}

impl ValidationRules {
    /// Nothing but what every kind is held to.
    pub(crate) const NONE: Self = Self::create(|_| Vec::new());

    /// Rules with this check for new objects, which changed ones must pass too.
    pub(crate) const fn create(create: Check) -> Self {
        Self {
            create,
            update: None,
            status: StatusCheck::Nothing,
            parts: &[],
        }
    }

    pub(crate) const fn update(self, update: UpdateCheck) -> Self {
        Self {
            update: Some(update),
            ..self
        }
    }

    pub(crate) const fn status(self, status: UpdateCheck) -> Self {
        Self {
            status: StatusCheck::Rule(status),
            ..self
        }
    }

    /// A status with times.
    pub(crate) const fn status_at(self, status: TimedUpdateCheck) -> Self {
        Self {
            status: StatusCheck::RuleAt(status),
            ..self
        }
    }

    pub(crate) const fn parts(self, parts: &'static [(&'static str, UpdateCheck)]) -> Self {
        Self { parts, ..self }
    }

    pub(crate) fn of_new(&self, object: Ref<'_>) -> Vec<FieldError> {
        (self.create)(object)
    }

    pub(crate) fn of_changed(
        &self,
        part: ObjectPart,
        object: Ref<'_>,
        old: Ref<'_>,
        now: Timestamp,
    ) -> Vec<FieldError> {
        let named = match part {
            ObjectPart::Status => return self.of_status(object, old, now),
            ObjectPart::Other(name) => self.parts.iter().find(|(own, _)| *own == name),
            ObjectPart::Main => None,
        };
        match (named.map(|(_, rule)| *rule), self.update) {
            (Some(rule), _) | (None, Some(rule)) => rule(object, old),
            (None, None) => (self.create)(object),
        }
    }

    fn of_status(&self, object: Ref<'_>, old: Ref<'_>, now: Timestamp) -> Vec<FieldError> {
        match self.status {
            StatusCheck::Nothing => Vec::new(),
            StatusCheck::Rule(rule) => rule(object, old),
            StatusCheck::RuleAt(rule) => rule(object, old, now),
        }
    }
}
