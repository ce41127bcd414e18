//! Predicates: which objects of a collection a list or watch means.

use crate::field_selector::FieldSelector;
use crate::header::ObjectHeader;
use crate::label_selector::LabelSelector;

/// Labels and fields that an object must have; by default every object matches.
#[derive(Debug, Clone, Default)]
pub struct Predicate {
    pub labels: LabelSelector,
    pub fields: FieldSelector,
}

impl Predicate {
    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    pub fn matches(&self, header: &ObjectHeader) -> bool {
        self.labels.matches(header) && self.fields.matches(header)
    }
}

impl From<LabelSelector> for Predicate {
    fn from(labels: LabelSelector) -> Self {
        Self {
            labels,
            ..Self::default()
        }
    }
}

impl From<FieldSelector> for Predicate {
    fn from(fields: FieldSelector) -> Self {
        Self {
            fields,
            ..Self::default()
        }
    }
}
