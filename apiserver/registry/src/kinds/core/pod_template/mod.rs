//! PodTemplate: a template that nothing acts on by itself.

mod columns;

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;
use crate::kinds::core::pod::validation as pod;
use crate::shared::validation::{Errors, Path};
use machinery_meta::FieldError;
use machinery_schema::Ref;

pub(crate) static KIND: Kind = Kind::of("", "podtemplates")
    .traits(Traits::COUNTED.returned())
    .rules(ValidationRules::create(validate))
    .pod_template(crate::kinds::core::pod::template::at(&["template", "spec"]))
    .columns(columns::cells);

/// Every problem of a template, new or changed.
fn validate(object: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    if let Some(template) = object.get("template") {
        pod::validate_template(&mut errors, &Path::of("template"), template);
    }
    errors.into_list()
}
