//! Validation of DeviceClasses.

use crate::kinds::resource::Problems;
use crate::kinds::resource::devices::{MAX_REFERENCES, opaque, selectors, stored_selectors};
use crate::kinds::resource::qualified_names::extended_resource_name;
use crate::shared::validation::{Path, present};
use machinery_meta::FieldError;
use machinery_schema::Ref;

/// Every problem of a new class.
pub(super) fn validate(class: Ref<'_>) -> Vec<FieldError> {
    validate_with(class, selectors)
}

/// Every problem of a changed class. Selectors that are as before are not compiled again.
pub(super) fn validate_update(class: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let own = |class: Ref<'_>| class.at(&["spec", "selectors"]).map(|own| own.to_json());
    match own(class) == own(old) {
        true => validate_with(class, stored_selectors),
        false => validate_with(class, selectors),
    }
}

fn validate_with(class: Ref<'_>, selectors: impl Fn(&mut Problems, &Path<'_>, Ref<'_>)) -> Vec<FieldError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_schema::Tree;

    #[test]
    fn selectors_of_a_class_are_compiled_where_they_change() {
        let class = |expression: &str| {
            let spec = format!(r#"{{"selectors":[{{"cel":{{"expression":"{expression}"}}}}]}}"#);
            Tree::from_json(&format!(r#"{{"spec":{spec}}}"#)).unwrap()
        };
        // Another release took it.
        let (stored, newer) = (class("device.later"), class("device.latest"));
        assert_eq!(validate_update(stored.root(), stored.root()), []);
        assert_eq!(validate_update(newer.root(), stored.root()).len(), 1);
        assert_eq!(validate(stored.root()).len(), 1);
    }
}
