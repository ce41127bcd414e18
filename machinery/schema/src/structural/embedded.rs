//! Objects within a custom object (`x-kubernetes-embedded-resource`): each says what it is, and its metadata are an object's.
//!
//! Upstream: `apiextensions-apiserver/pkg/apiserver/schema/objectmeta/validation.go`.

use super::bounds::{MAX_STEPS, Validation};
use super::validate::shown;
use crate::table::{Shape, TypeId};
use crate::tree::{Kind, Ref};
use machinery_meta::names::GroupVersion;
use machinery_meta::walked_path::WalkedPath;
use machinery_meta::{FieldError, syntax};

/// Problems of an object's metadata, with paths that begin at the metadata.
pub type MetadataProblems<'p> = &'p dyn Fn(Ref<'_>) -> Vec<FieldError>;

/// Everything wrong with what the objects within an object say of themselves.
pub fn validate_embedded(object: Ref<'_>, metadata: MetadataProblems<'_>) -> Vec<FieldError> {
    let mut found = Validation::new(MAX_STEPS);
    found.members_embedded(object, &WalkedPath::ROOT, metadata);
    found.finish()
}

impl Validation {
    /// The value, where it is such an object, and those below it.
    pub(super) fn embedded(&mut self, value: Ref<'_>, path: &WalkedPath<'_>, metadata: MetadataProblems<'_>) {
        let ty = value.schema().ty(value.ty());
        if !self.step(0) || ty.typed || value.ty() == TypeId::ANY {
            return;
        }
        if value.kind() == Kind::Map && ty.embedded {
            self.type_meta(value, path);
            if let Some(own) = value.get("metadata") {
                for mut problem in metadata(own) {
                    if self.over {
                        break;
                    }
                    problem.path = path.child("metadata").to_path().join(&problem.path);
                    self.push(problem);
                }
            }
        }
        self.members_embedded(value, path, metadata);
    }

    fn members_embedded(&mut self, value: Ref<'_>, path: &WalkedPath<'_>, metadata: MetadataProblems<'_>) {
        match value.kind() {
            Kind::Map => {
                let free = value.schema().ty(value.ty()).shape == Shape::Map;
                for (name, member) in value.entries() {
                    if self.over {
                        break;
                    }
                    let path = if free { path.key(name) } else { path.child(name) };
                    self.embedded(member, &path, metadata);
                }
            }
            Kind::List => {
                for (index, item) in value.items().enumerate() {
                    if self.over {
                        break;
                    }
                    self.embedded(item, &path.index(index), metadata);
                }
            }
            _ => {}
        }
    }

    fn type_meta(&mut self, value: Ref<'_>, path: &WalkedPath<'_>) {
        for name in ["apiVersion", "kind"] {
            let at = || path.child(name).to_path();
            let Some(own) = value.get(name) else {
                self.push(FieldError::required(&at(), ""));
                continue;
            };
            let problem = match own.as_str() {
                None => Some("must be a string".to_owned()),
                Some("") => Some("must not be empty".to_owned()),
                Some(text) if name == "kind" => kind_problem(text),
                Some(text) => text.parse::<GroupVersion>().err().map(|error| error.to_string()),
            };
            if let Some(problem) = problem {
                self.push(FieldError::invalid(&at(), shown(own), problem));
            }
        }
    }
}

fn kind_problem(kind: &str) -> Option<String> {
    let problems = syntax::dns1035_label(&kind.to_lowercase());
    let words = "may have mixed case, but should otherwise match";
    (!problems.is_empty()).then(|| format!("{words}: {}", problems.join(",")))
}
