//! Warnings and refusals of kinds that have no effect yet, or not all of it.

use crate::engine::kind::Kind;
use crate::shared::not_enforced::stored_only;
use machinery_schema::Ref;

impl Kind {
    /// The warning with which an object of this kind is created.
    pub fn not_enforced_warning(&self) -> Option<String> {
        let (plural, missing) = (self.plural, self.not_enforced?);
        Some(format!(
            "{plural} are stored but not enforced by this server yet: {missing}"
        ))
    }

    /// Reports whether there are objects of this kind that are not stored.
    pub fn may_be_refused(&self) -> bool {
        self.refusal.is_some()
    }

    /// The reason not to store an object that nothing enforces; `None` for objects that may be stored with a warning.
    ///
    /// Refused is what denies by itself: requests (webhooks and policies whose failure refuses them, bindings that deny),
    /// and traffic (network policies that leave anything out).
    pub fn refusal(&self, object: Ref<'_>) -> Option<String> {
        let (path, missing) = self.refusal?(object)?;
        Some(format!(
            "{path}: {missing} by this server yet, so that nothing would be kept out; \
             a server that is started with --allow-unenforced stores it all the same"
        ))
    }

    /// The warnings for fields without effect that an object has and its earlier state had not, or had otherwise.
    pub fn field_warnings(&self, object: Ref<'_>, old: Option<Ref<'_>>) -> Vec<String> {
        let Some(of) = self.fields_not_enforced else {
            return Vec::new();
        };
        let known = old.map(of).unwrap_or_default();
        let new = of(object).into_iter().filter(|field| !known.contains(field));
        new.map(|field| stored_only(&field.path, field.missing)).collect()
    }
}
