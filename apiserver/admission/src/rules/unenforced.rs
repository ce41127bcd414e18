//! Refuses objects that guard something and that nothing enforces, and warns of fields without effect (decision 0030).
//!
//! Every way of writing passes it, but for the server's own writes.

use apiserver_registry::{Attributes, Operation, RegistryError, RequestContext, metadata};
use machinery_schema::Tree;

/// The admission of objects that have no effect.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unenforced {
    /// `--allow-unenforced`: nothing is refused.
    pub(super) allowed: bool,
}

impl Unenforced {
    /// Objects stored earlier may be changed as long as what would be refused stays as it is, so that they can be deleted.
    pub(super) fn check(
        self,
        ctx: &RequestContext,
        attributes: &Attributes,
        object: &Tree,
        old: Option<&Tree>,
    ) -> Result<(), RegistryError> {
        let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
        if !writes || !attributes.subresource.is_empty() {
            return Ok(());
        }
        let Some(kind) = attributes.built_in else {
            return Ok(());
        };
        let changed = old.is_none_or(|old| metadata::spec_differs(object, old));
        if !self.allowed
            && changed
            && let Some(why) = kind.refusal(object.root())
        {
            let name = metadata::name(object);
            return Err(RegistryError::forbidden(
                &attributes.resource.group_resource(),
                name,
                why,
            ));
        }
        let old = old.map(Tree::root);
        for warning in kind.field_warnings(object.root(), old) {
            ctx.warnings.add(warning);
        }
        Ok(())
    }
}
