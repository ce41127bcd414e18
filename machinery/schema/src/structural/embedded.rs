//! Objects within a custom object (`x-kubernetes-embedded-resource`): each says what it is, and its metadata are an object's.
//!
//! Upstream: `apiextensions-apiserver/pkg/apiserver/schema/objectmeta/validation.go`.

use super::bounds::{MAX_STEPS, Validation};
use super::validate::shown;
use crate::table::{Shape, TypeId};
use crate::tree::{Kind, Ref};
use machinery_meta::names::GroupVersion;
use machinery_meta::{FieldError, FieldPath, syntax};

/// Problems of an object's metadata, which stand at a path.
pub type MetadataProblems<'p> = &'p dyn Fn(Ref<'_>, &FieldPath) -> Vec<FieldError>;

/// Everything wrong with what the objects within an object say of themselves.
pub fn validate_embedded(object: Ref<'_>, metadata: MetadataProblems<'_>) -> Vec<FieldError> {
    let mut found = Validation::new(MAX_STEPS);
    found.members_embedded(object, &FieldPath::root(), metadata);
    found.finish()
}

impl Validation {
    /// The value, where it is such an object, and those below it.
    pub(super) fn embedded(&mut self, value: Ref<'_>, path: &FieldPath, metadata: MetadataProblems<'_>) {
        let ty = value.schema().ty(value.ty());
        if !self.step(path.as_str().len()) || ty.typed || value.ty() == TypeId::ANY {
            return;
        }
        if value.kind() == Kind::Map && ty.embedded {
            self.type_meta(value, path);
            if let Some(own) = value.get("metadata") {
                let problems = metadata(own, &path.child("metadata"));
                problems.into_iter().for_each(|problem| self.push(problem));
            }
        }
        self.members_embedded(value, path, metadata);
    }

    fn members_embedded(&mut self, value: Ref<'_>, path: &FieldPath, metadata: MetadataProblems<'_>) {
        match value.kind() {
            Kind::Map => {
                let free = value.schema().ty(value.ty()).shape == Shape::Map;
                for (name, member) in value.entries() {
                    let path = if free { path.key(name) } else { path.child(name) };
                    self.embedded(member, &path, metadata);
                }
            }
            Kind::List => {
                for (index, item) in value.items().enumerate() {
                    self.embedded(item, &path.index(index), metadata);
                }
            }
            _ => {}
        }
    }

    fn type_meta(&mut self, value: Ref<'_>, path: &FieldPath) {
        for name in ["apiVersion", "kind"] {
            let at = path.child(name);
            let Some(own) = value.get(name) else {
                self.push(FieldError::required(&at, ""));
                continue;
            };
            let problem = match own.as_str() {
                None => Some("must be a string".to_owned()),
                Some("") => Some("must not be empty".to_owned()),
                Some(text) if name == "kind" => kind_problem(text),
                Some(text) => text.parse::<GroupVersion>().err().map(|error| error.to_string()),
            };
            if let Some(problem) = problem {
                self.push(FieldError::invalid(&at, shown(own), problem));
            }
        }
    }
}

fn kind_problem(kind: &str) -> Option<String> {
    let problems = syntax::dns1035_label(&kind.to_lowercase());
    let words = "may have mixed case, but should otherwise match";
    (!problems.is_empty()).then(|| format!("{words}: {}", problems.join(",")))
}
