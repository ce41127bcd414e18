//! Validation of DeviceClasses.

use crate::kinds::resource::Problems;
use crate::kinds::resource::devices::{MAX_REFERENCES, opaque, selectors};
use crate::kinds::resource::qualified_names::extended_resource_name;
use crate::shared::validation::{Path, present};
use machinery_meta::FieldError;
use machinery_schema::Ref;

/// Every problem of a class, new or changed.
pub(super) fn validate(class: Ref<'_>) -> Vec<FieldError> {
    let mut problems = Problems::default();
    let Some(spec) = class.get("spec") else {
        return Vec::new();
    };
    let path = Path::of("spec");
    selectors(&mut problems, &path.child("selectors"), spec);
    let config = path.child("config");
    let count = spec.list("config").len();
    if count > MAX_REFERENCES {
        problems.declared.too_many(&config, count, MAX_REFERENCES);
    } else {
        for (index, own) in spec.list("config").enumerate() {
            opaque(&mut problems, &config.index(index), own);
        }
    }
    if let Some(name) = present(spec, "extendedResourceName").and_then(Ref::as_str) {
        extended_resource_name(&mut problems.declared, &path.child("extendedResourceName"), name);
    }
    problems.into_list()
}
